"""Takes back what nobody holds any more: lost leases, passed deadlines, uploads that were never completed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, select, update

from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import jobs, tasks
from visualprof.remote.queue.tasks.bell import Bell
from visualprof.remote.queue.tasks.jobs import touch
from visualprof.remote.queue.tasks.tidy import EVERY_S

_log = logging.getLogger(__name__)

UPLOAD_NS = 3600 * 10**9


class Reaper:
    """Looks every quarter of a lease. Any number of servers may do so: a task is taken back once.

    ended: called with each task that failed here, so that what it had measured is not lost.
    tidy: called every hour.
    """

    def __init__(
        self,
        database: Database,
        bell: Bell,
        lease_s: float,
        ended: Callable[[str], None],
        tidy: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._bell = bell
        self._every_s = lease_s / 4
        self._lease_ns = int(lease_s * 1e9)
        self._offset = _offset()
        self._ended = ended
        self._tidy = tidy
        self._tidied = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="reaper", daemon=True)

    def start(self) -> None:
        """Begins in a quarter of a lease."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def look(self) -> None:
        """One round."""
        self._follow_clock()
        for task in [*self._lost(), *self._late(), *self._expired()]:
            self._ended(task)
        if time.monotonic() - self._tidied > EVERY_S:
            self._tidied = time.monotonic()
            self._tidy()

    def _follow_clock(self) -> None:
        """Moves leases and deadlines with a clock that was set, or went on while the machine slept."""
        offset = _offset()
        jump = offset - self._offset
        if abs(jump) >= self._lease_ns / 2:
            _log.warning("the clock jumped by %.0f s; leases and deadlines move with it", jump / 1e9)
            moved = {"lease_until_ns": time.time_ns() + self._lease_ns, "deadline_ns": tasks.c.deadline_ns + jump}
            with self._database.write() as connection:
                connection.execute(update(tasks).where(tasks.c.state == "running").values(moved))
        self._offset = offset

    def _loop(self) -> None:
        while not self._stop.wait(self._every_s):
            self._try()

    def _try(self) -> None:
        try:
            self.look()
        except Exception:  # noqa: BLE001 - a full disk, a locked database: the next round may do better
            _log.exception("taking back lost tasks failed")

    def _lost(self) -> list[str]:
        now, failed = time.time_ns(), list[str]()
        for row in self._rows(tasks.c.state == "running", tasks.c.lease_until_ns < now):
            again = not row.cancel and row.tries <= row.retries
            end = _given_back() if again else _cancelled() if row.cancel else _agent_lost(row.tries)
            with self._database.write() as connection:
                moved = self._move(connection, row, tasks.c.lease_until_ns == row.lease_until_ns, end)
            if moved and again:
                self._bell.ring()
            elif moved:
                failed.append(row.id)
        return failed

    def _late(self) -> list[str]:
        failed = list[str]()
        for row in self._rows(tasks.c.state == "running", tasks.c.deadline_ns < time.time_ns()):
            end = _cancelled() if row.cancel else _timeout(row.timeout_ns)
            with self._database.write() as connection:
                if self._move(connection, row, tasks.c.deadline_ns == row.deadline_ns, end):
                    failed.append(row.id)
        return failed

    def _expired(self) -> list[str]:
        hour_ago = time.time_ns() - UPLOAD_NS
        for row in self._rows(tasks.c.state == "initiated", tasks.c.updated_ns < hour_ago):
            with self._database.write() as connection:
                self._move(connection, row, tasks.c.updated_ns == row.updated_ns, _EXPIRED)
        return []

    def _rows(self, *conditions: Any) -> list[AnyRow]:
        found = select(tasks, jobs.c.retries, jobs.c.timeout_ns).join(jobs, jobs.c.id == tasks.c.job).where(*conditions)
        with self._database.read() as connection:
            return list(connection.execute(found.order_by(tasks.c.seq)))

    @staticmethod
    def _move(connection: Connection, row: AnyRow, unchanged: Any, end: dict[str, Any]) -> bool:
        same = update(tasks).where(tasks.c.id == row.id, tasks.c.state == row.state, unchanged)
        moved = connection.execute(same.values({**end, "phase": None, "updated_ns": time.time_ns()})).rowcount
        if moved:
            touch(connection, row.job)
        return bool(moved)


def _offset() -> int:
    """The clock's distance from one that cannot be set."""
    return time.time_ns() - time.monotonic_ns()


def _given_back() -> dict[str, Any]:
    """Waits again. The token stays: until somebody else takes it, a late heartbeat may take it back."""
    return {"state": "waiting"}


def _agent_lost(tries: int) -> dict[str, Any]:
    error = f"its agent was lost {tries} times" if tries > 1 else "its agent was lost"
    return _failed("agent_lost", error, "see whether the machine and its agent are well, then retry")


def _timeout(timeout_ns: int) -> dict[str, Any]:
    error = f"it took longer than {timeout_ns / 1e9:g} s"
    return _failed("timeout", error, "give it more time (timeout_s), or fewer sizes")


def _cancelled() -> dict[str, Any]:
    return {"state": "cancelled", "lease": None}


def _failed(reason: str, error: str, hint: str) -> dict[str, Any]:
    return {"state": "failed", "lease": None, "reason": reason, "error": error, "hint": hint}


_EXPIRED = _failed("expired", "its files did not arrive within an hour", "submit it again")
