"""Periodic maintenance by the server: requeue lost tasks, apply retention rules, and remove unused files."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update

from visualprof.clock import Clock
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
from visualprof.remote.queue.store.tables import artifacts, blobs, holders, jobs, tasks, uploads
from visualprof.remote.queue.tasks.jobs import bump_revision
from visualprof.remote.queue.tasks.notifier import Notifier
from visualprof.supervised_thread import SupervisedThread

_log = logging.getLogger(__name__)

UPLOAD_WAIT_NS = 3600 * 10**9
CLEAN_UP_INTERVAL_S = 3600
_MIN_RUN_FILE_AGE_S = 24 * 3600  # the files of a run are stored before its rows; a large run takes time
_MIN_LEFTOVER_AGE_S = 3600  # younger files may be in use by another server on the same folder


class MaintenanceThread:
    """A thread that runs maintenance every quarter of a lease.

    Several servers may run one: each task is requeued only once. On PostgreSQL, one server at a time runs it, and
    leases
    follow the database's clock.

    Args:
        database: Database of the queue.
        notifier: Notified of requeued tasks.
        lease_s: Duration of a lease.
        on_ended: Called with each task that ended here, so that its measurements are saved.
        clean_up: Called every hour.
        extend_running: Called before the first round after a failed one. No heartbeat arrived while the database was
            unavailable.
        apply_retention: Applies the retention rules, on one server at a time. Returns whether more is due.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        lease_s: float,
        *,
        on_ended: Callable[[str], None],
        clean_up: Callable[[], None] = lambda: None,
        extend_running: Callable[[], None] = lambda: None,
        apply_retention: Callable[[], bool] = lambda: False,
    ) -> None:
        self._database, self._clock = database, database.clock
        self._notifier = notifier
        self._interval_s = lease_s / 4
        self._lease_ns = int(lease_s * 1e9)
        self._last_clock_offset = _clock_offset(self._clock)
        self._on_ended = on_ended
        self._clean_up, self._extend_running = clean_up, extend_running
        self._apply_retention = apply_retention
        self._failed = False
        self._last_clean_up, self._next_retention = self._clock.monotonic(), 0.0
        self._stop = threading.Event()
        self._thread = SupervisedThread(self._loop, "maintenance", self._stop.is_set)

    def start(self) -> None:
        """Start the thread; the first round runs after a quarter of a lease."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def run_once(self) -> None:
        """Run one round."""
        if self._database.uses_local_clock:
            self._adjust_to_clock_jump()
        with self._database.exclusive() as is_exclusive:
            for task in self._requeue_or_end_overdue() if is_exclusive else ():
                self._on_ended(task)
            if is_exclusive and self._clock.monotonic() >= self._next_retention:
                self._next_retention = self._clock.monotonic() + CLEAN_UP_INTERVAL_S
                if self._apply_retention():
                    self._next_retention = 0.0
        if self._clock.monotonic() - self._last_clean_up > CLEAN_UP_INTERVAL_S:
            self._last_clean_up = self._clock.monotonic()
            self._clean_up()

    def _loop(self) -> None:
        while not self._clock.wait(self._stop, self._interval_s):
            self._run_and_log_errors()

    def _run_and_log_errors(self) -> None:
        try:
            if self._failed:
                self._extend_running()
            self.run_once()
            self._failed = False
        except Exception:  # noqa: BLE001 - a full disk, a locked database: the next round may do better
            self._failed = True
            _log.exception("taking back lost tasks failed")

    def _adjust_to_clock_jump(self) -> None:
        """Move leases and deadlines if the clock was set, or if it advanced while the machine slept."""
        offset = _clock_offset(self._clock)
        jump = offset - self._last_clock_offset
        if abs(jump) >= self._lease_ns / 2:
            _log.warning("the clock jumped by %.0f s; leases and deadlines move with it", jump / 1e9)
            later = self._database.now_ns() + self._lease_ns
            values = {"lease_until_ns": later, "deadline_ns": tasks.c.deadline_ns + jump}
            with self._database.write() as connection:
                connection.execute(update(tasks).where(tasks.c.state == "running").values(values))
        self._last_clock_offset = offset

    def _requeue_or_end_overdue(self) -> list[str]:
        """Requeue or end overdue tasks; return those that ended."""
        now, ended = self._database.now_ns(), list[str]()
        overdue = or_(tasks.c.lease_until_ns < now, tasks.c.deadline_ns < now)
        never_sent = (tasks.c.state == "initiated") & (tasks.c.updated_ns < now - UPLOAD_WAIT_NS)
        due = select(tasks, jobs.c.retries, jobs.c.timeout_ns).join(jobs, jobs.c.id == tasks.c.job)
        due = due.where(or_((tasks.c.state == "running") & overdue, never_sent)).order_by(tasks.c.seq)
        with self._database.read() as connection:
            rows = connection.execute(due).all()
        for row in rows:
            unchanged, outcome = _outcome(row, now)
            values = {**outcome, "phase": None, "updated_ns": self._database.now_ns()}
            with self._database.write() as connection:
                statement = update(tasks).where(tasks.c.id == row.id, tasks.c.state == row.state, unchanged)
                changed = connection.execute(statement.values(values)).rowcount
                if changed:
                    end_device_use(connection, row.owner, row.id, row.attempt, now)
                    bump_revision(connection, row.job)
            if changed and values["state"] == "waiting":
                self._notifier.notify()
            elif changed:
                ended.append(row.id)
        return ended


def _outcome(row: AnyRow, now: int) -> tuple[ColumnElement[bool], dict[str, Any]]:
    """Return the outcome of an overdue task, and a condition that its lease or deadline is unchanged."""
    if row.state == "initiated":
        return tasks.c.updated_ns == row.updated_ns, _EXPIRED
    if row.lease_until_ns >= now:
        hint = msg("queue.give_more_time_timeout", "give it more time (timeout_s), or fewer sizes")
        values = _failed(
            "timeout", msg("queue.took_longer_than_s", f"it took longer than {row.timeout_ns / 1e9:g} s"), hint
        )
        return tasks.c.deadline_ns == row.deadline_ns, _CANCELLED if row.cancel else values
    # A requeued task keeps its lease token: until another agent claims it, a late heartbeat may reacquire it.
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


def _clock_offset(clock: Clock) -> int:
    """Return the difference between the wall clock and the monotonic clock, in ns."""
    return clock.time_ns() - int(clock.monotonic() * 1e9)


def remove_leftovers(database: Database, store: Store, partial: Path) -> None:
    """Remove files of ended attempts, unfinished results, and uploads that no job has used for too long.

    Args:
        database: Database of the queue.
        store: File store of the queue.
        partial: Folder where results are assembled.
    """
    for path in list(partial.iterdir()) if partial.is_dir() else []:
        if _age_s(path) > _MIN_LEFTOVER_AGE_S:
            _log.info("removing the leftover %s", path)
            shutil.rmtree(path, ignore_errors=True)
    try:
        _remove_unreferenced(database, store)
    except StoreUnavailable as error:
        _log.warning("leftovers are not removed: %s", error.error)


def _remove_unreferenced(database: Database, store: Store) -> None:
    # List the files before the database query: files that arrive later are not touched.
    """Remove stored files that no row of the database references."""
    uploading, stored = store.list_names("incoming"), store.list_names("blobs")
    with database.write() as connection:
        active = _active_uploads(connection, database.now_ns())
    for name in uploading:
        if name not in active:
            _log.info("removing the leftover incoming/%s", name)
            store.delete(f"incoming/{name}")
    _delete_unused_uploads(database)
    with database.read() as connection:
        referenced = set(connection.execute(select(blobs.c.sha256)).scalars())
    for name in stored:
        if name not in referenced and store.age_s(name) > _MIN_LEFTOVER_AGE_S:  # younger files may still be uploading
            _log.info("removing the leftover blobs/%s", name)
            store.delete_blob(name)
    if isinstance(store, Bucket):
        _remove_old_runs(database, store)


def _remove_old_runs(database: Database, store: Bucket) -> None:
    """Remove files of runs that were deleted, replaced or never published."""
    stale = store.run_files(_MIN_RUN_FILE_AGE_S)
    with database.read() as connection:
        referenced = select(artifacts.c.key).where(artifacts.c.key.startswith("runs/"))
        stale.difference_update(connection.execute(referenced).scalars())
    for key in stale:
        store.delete_run_file(key)


def unused_uploads(days: int, now: int) -> ColumnElement[bool]:
    """Return a condition on `blobs`: no job or model version uses the file, and it is older than `days`.

    A younger file may belong to a job that is not submitted yet.

    Args:
        days: Minimum age.
        now: Current time in ns.
    """
    is_old = blobs.c.kept_ns < now - days * DAY_NS
    return is_old & ~used_by_job() & ~used_by_version()


def _delete_unused_uploads(database: Database) -> None:
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
                # ownership ends, even if another user uploads the same file again
                connection.execute(delete(holders).where(holders.c.sha256 == name))


def _active_uploads(connection: Connection, now: int) -> set[str]:
    """Return the names of folders that may still receive uploads; delete the rows of all other announced files."""
    connection.execute(delete(uploads).where(uploads.c.begun_ns < now - UPLOAD_TIMEOUT_NS))
    pending = connection.execute(select(uploads.c.id)).scalars()
    rows = connection.execute(select(tasks.c.id, tasks.c.attempt).where(tasks.c.state.in_(("running", "waiting"))))
    attempts = {(row.id, row.attempt) for row in rows}
    is_upload = artifacts.c.key.startswith("incoming/")
    for row in connection.execute(select(artifacts.c.task, artifacts.c.attempt).where(is_upload).distinct()).all():
        if (row.task, row.attempt) not in attempts:
            connection.execute(delete(artifacts).where(is_upload).filter_by(task=row.task, attempt=row.attempt))
    return {f"{task}-{attempt}" for task, attempt in attempts}.union(pending)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
