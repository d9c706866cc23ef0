"""What the server does by itself: takes back tasks that nobody holds any more, and removes files that nobody needs."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update

from visualprof.messages import msg
from visualprof.remote.queue.errors import StoreUnavailable
from visualprof.remote.queue.store.blobs import used_by_job, used_by_version
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.files import Store
from visualprof.remote.queue.store.pending_uploads import UPLOAD_TIMEOUT_NS
from visualprof.remote.queue.store.quotas import end_device_use
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.retention import DAY_NS, load_rules
from visualprof.remote.queue.store.s3 import Bucket
from visualprof.remote.queue.store.tables import artefacts, blobs, holders, jobs, tasks, uploads
from visualprof.remote.queue.tasks.jobs import bump_revision
from visualprof.remote.queue.tasks.notifier import Notifier

_log = logging.getLogger(__name__)

UPLOAD_NS = 3600 * 10**9
REMOVE_EVERY_S = 3600
_STRAY_S = 24 * 3600  # files of a run are there before it is: a large one takes its time
_OLD_S = 3600  # younger files may be the work of another server on the same folder


class MaintenanceThread:
    """A thread that looks every quarter of a lease. Any number of servers may: a task is taken back once.

    On PostgreSQL one of them looks at a time, and leases follow the clock of the database.

    Args:
        database, notifier, lease_s: of the queue.
        ended: called with each task that ended here, so that what it had measured is not lost.
        remove: called every hour.
        grace: called before the first round after one that failed: while the database was away no agent was heard of.
        follow: follows the rules by which things are removed, on one server at a time; is there more to do?
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        lease_s: float,
        ended: Callable[[str], None],
        remove: Callable[[], None] = lambda: None,
        grace: Callable[[], None] = lambda: None,
        follow: Callable[[], bool] = lambda: False,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._every_s = lease_s / 4
        self._lease_ns = int(lease_s * 1e9)
        self._offset = _clock_offset()
        self._ended = ended
        self._remove, self._grace = remove, grace
        self._follow = follow
        self._failed = False
        self._removed, self._follow_at = time.monotonic(), 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="upkeep", daemon=True)

    def start(self) -> None:
        """Begin in a quarter of a lease."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def run_once(self) -> None:
        """One round."""
        if self._database.uses_local_clock:
            self._follow_clock()
        with self._database.exclusive() as mine:
            for task in self._taken_back() if mine else ():
                self._ended(task)
            if mine and time.monotonic() >= self._follow_at:
                self._follow_at = time.monotonic() + REMOVE_EVERY_S
                if self._follow():
                    self._follow_at = 0.0
        if time.monotonic() - self._removed > REMOVE_EVERY_S:
            self._removed = time.monotonic()
            self._remove()

    def _loop(self) -> None:
        while not self._stop.wait(self._every_s):
            self._try()

    def _try(self) -> None:
        try:
            if self._failed:
                self._grace()
            self.run_once()
            self._failed = False
        except Exception:  # noqa: BLE001 - a full disk, a locked database: the next round may do better
            self._failed = True
            _log.exception("taking back lost tasks failed")

    def _follow_clock(self) -> None:
        """Moves leases and deadlines with a clock that was set, or went on while the machine slept."""
        offset = _clock_offset()
        jump = offset - self._offset
        if abs(jump) >= self._lease_ns / 2:
            _log.warning("the clock jumped by %.0f s; leases and deadlines move with it", jump / 1e9)
            later = self._database.now_ns() + self._lease_ns
            moved = {"lease_until_ns": later, "deadline_ns": tasks.c.deadline_ns + jump}
            with self._database.write() as connection:
                connection.execute(update(tasks).where(tasks.c.state == "running").values(moved))
        self._offset = offset

    def _taken_back(self) -> list[str]:
        """Tasks that ended now; those that are given out again are none of them."""
        now, ended = self._database.now_ns(), list[str]()
        late = or_(tasks.c.lease_until_ns < now, tasks.c.deadline_ns < now)
        never_sent = (tasks.c.state == "initiated") & (tasks.c.updated_ns < now - UPLOAD_NS)
        due = select(tasks, jobs.c.retries, jobs.c.timeout_ns).join(jobs, jobs.c.id == tasks.c.job)
        due = due.where(or_((tasks.c.state == "running") & late, never_sent)).order_by(tasks.c.seq)
        with self._database.read() as connection:
            rows = connection.execute(due).all()
        for row in rows:
            unchanged, outcome = _outcome(row, now)
            values = {**outcome, "phase": None, "updated_ns": self._database.now_ns()}
            with self._database.write() as connection:
                same = update(tasks).where(tasks.c.id == row.id, tasks.c.state == row.state, unchanged)
                moved = connection.execute(same.values(values)).rowcount
                if moved:
                    end_device_use(connection, row.owner, row.id, row.attempt, now)
                    bump_revision(connection, row.job)
            if moved and values["state"] == "waiting":
                self._notifier.notify()
            elif moved:
                ended.append(row.id)
        return ended


def _outcome(row: AnyRow, now: int) -> tuple[ColumnElement[bool], dict[str, Any]]:
    """What becomes of a task that is due, as long as the time by which it was due is still its own."""
    if row.state == "initiated":
        return tasks.c.updated_ns == row.updated_ns, _EXPIRED
    if row.lease_until_ns >= now:
        hint = msg("queue.give_more_time_timeout", "give it more time (timeout_s), or fewer sizes")
        values = _failed(
            "timeout", msg("queue.took_longer_than_s", f"it took longer than {row.timeout_ns / 1e9:g} s"), hint
        )
        return tasks.c.deadline_ns == row.deadline_ns, _CANCELLED if row.cancel else values
    # The token of a task that waits again stays: until somebody else takes it, a late heartbeat may take it back.
    error = (
        msg("queue.agent_lost_times", f"its agent was lost {row.tries} times")
        if row.tries > 1
        else msg("queue.agent_lost", "its agent was lost")
    )
    values = _failed(
        "agent_lost",
        error,
        msg("queue.see_whether_machine_agent", "see whether the machine and its agent are well, then retry"),
    )
    values = _CANCELLED if row.cancel else {"state": "waiting"} if row.tries <= row.retries else values
    return tasks.c.lease_until_ns == row.lease_until_ns, values


def _failed(reason: str, error: str, hint: str) -> dict[str, Any]:
    return {"state": "failed", "lease": None, "reason": reason, "error": error, "hint": hint}


_CANCELLED: dict[str, Any] = {"state": "cancelled", "lease": None}
_EXPIRED = _failed(
    "expired",
    msg("queue.files_did_not_arrive", "its files did not arrive within an hour"),
    msg("queue.submit_again", "submit it again"),
)


def _clock_offset() -> int:
    """The clock's distance from one that cannot be set."""
    return time.time_ns() - time.monotonic_ns()


def remove_leftovers(database: Database, store: Store, partial: Path) -> None:
    """Remove files of attempts that are over, unfinished ones, and uploads that no job has named for too long.

    Args:
        database, store: of the queue.
        partial: where results are put together.
    """
    for path in list(partial.iterdir()) if partial.is_dir() else []:
        if _age_s(path) > _OLD_S:
            _log.info("removing %s, which nobody needs any more", path)
            shutil.rmtree(path, ignore_errors=True)
    try:
        _remove_unnamed(database, store)
    except StoreUnavailable as error:
        _log.warning("nothing is tidied up: %s", error.error)


def _remove_unnamed(database: Database, store: Store) -> None:
    # What there is is listed before the database is asked: what comes after that is not touched.
    arriving, kept = store.list_names("incoming"), store.list_names("blobs")
    with database.write() as connection:
        live = _live(connection, database.now_ns())
    for name in arriving:
        if name not in live:
            _log.info("removing incoming/%s, which nobody needs any more", name)
            store.delete(f"incoming/{name}")
    _forget_unused(database)
    with database.read() as connection:
        known = set(connection.execute(select(blobs.c.sha256)).scalars())
    for name in kept:
        if name not in known and store.age_s(name) > _OLD_S:  # else it is being uploaded
            _log.info("removing blobs/%s, which nobody needs any more", name)
            store.delete_blob(name)
    if isinstance(store, Bucket):
        _remove_old_runs(database, store)


def _remove_old_runs(database: Database, store: Bucket) -> None:
    """Files of runs that were removed or replaced, or never published."""
    old = store.run_files(_STRAY_S)
    with database.read() as connection:
        named = select(artefacts.c.key).where(artefacts.c.key.startswith("runs/"))
        old.difference_update(connection.execute(named).scalars())
    for key in old:
        store.delete_run_file(key)


def unused_uploads(days: int, now: int) -> ColumnElement[bool]:
    """Condition on `blobs`: nothing names it, and nobody sent it lately, whose job may still be written."""
    old = blobs.c.kept_ns < now - days * DAY_NS
    return old & ~used_by_job() & ~used_by_version()


def _forget_unused(database: Database) -> None:
    with database.read() as connection:
        days = load_rules(connection)["uploads", ""]
    if days is None:
        return
    unused = unused_uploads(days, database.now_ns())
    with database.read() as connection:
        names = list(connection.execute(select(blobs.c.sha256).where(unused)).scalars())
    for name in names:
        with database.write() as connection:
            if connection.execute(delete(blobs).where(blobs.c.sha256 == name, unused)).rowcount:
                # who had it has it no more, also when somebody uploads it again
                connection.execute(delete(holders).where(holders.c.sha256 == name))


def _live(connection: Connection, now: int) -> set[str]:
    """Folders of attempts and people that may still upload; what was announced by others is forgotten."""
    connection.execute(delete(uploads).where(uploads.c.begun_ns < now - UPLOAD_TIMEOUT_NS))
    arriving = connection.execute(select(uploads.c.id)).scalars()
    rows = connection.execute(select(tasks.c.id, tasks.c.attempt).where(tasks.c.state.in_(("running", "waiting"))))
    live = {(row.id, row.attempt) for row in rows}
    coming = artefacts.c.key.startswith("incoming/")
    for row in connection.execute(select(artefacts.c.task, artefacts.c.attempt).where(coming).distinct()).all():
        if (row.task, row.attempt) not in live:
            connection.execute(delete(artefacts).where(coming).filter_by(task=row.task, attempt=row.attempt))
    return {f"{task}-{attempt}" for task, attempt in live}.union(arriving)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
