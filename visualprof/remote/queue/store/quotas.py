"""Quotas of users: waiting and running jobs, uploaded bytes, and device hours within thirty days.

A row of `quotas` limits its user. The row of user "" limits all users without a row. Without both there is no limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import BigInteger, Connection, bindparam, case, delete, func, insert, select, update

from visualprof.messages import msg
from visualprof.remote.queue.errors import QuotaExceeded
from visualprof.remote.queue.store.database import Database, without_result
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import blobs, device_use, holders, quotas, tasks, uploads

DEFAULT_USER = ""
WINDOW_NS = 30 * 24 * 3600 * 10**9


@dataclass(frozen=True)
class Quota:
    """Limits of a user; None is unlimited.

    Attributes:
        jobs_waiting: Waiting jobs.
        jobs_running: Running jobs.
        upload_bytes: Uploaded bytes.
        device_ns: Device time within the last thirty days.
    """

    jobs_waiting: int | None = None
    jobs_running: int | None = None
    upload_bytes: int | None = None
    device_ns: int | None = None


@dataclass(frozen=True)
class Usage:
    """Current usage of a user. A job is running if any of its tasks is, else waiting if any task waits."""

    jobs_waiting: int
    jobs_running: int
    upload_bytes: int
    device_ns: int


_HOUR_NS = 3600 * 10**9
_ASK_ADMINISTRATOR = msg("queue.ask_administrator_more", "ask an administrator for more")

# Statements are built once, because building one takes longer than running it.
_QUOTA_OF = (
    select(quotas)
    .where(quotas.c.user.in_([bindparam("user_id"), DEFAULT_USER]))
    .order_by(quotas.c.user.desc())
    .limit(1)
)
_IS_RUNNING = func.max(case((tasks.c.state == "running", 1), else_=0))
_JOBS_OF = (
    select(_IS_RUNNING.label("runs"))
    .where(tasks.c.owner == bindparam("user_id"), tasks.c.state.in_(("initiated", "waiting", "running")))
    .group_by(tasks.c.job)
)
_UPLOADED_BYTES = (
    select(func.coalesce(func.sum(blobs.c.size_bytes), 0))
    .join(holders, holders.c.sha256 == blobs.c.sha256)
    .where(holders.c.owner == bindparam("user_id"))
)
_PENDING_BYTES = select(func.coalesce(func.sum(uploads.c.size_bytes), 0)).where(uploads.c.owner == bindparam("user_id"))
_SINCE, _NOW = bindparam("since", type_=BigInteger), bindparam("now", type_=BigInteger)
_USE_START = case((device_use.c.begun_ns < _SINCE, _SINCE), else_=device_use.c.begun_ns)
_USE_END = func.coalesce(device_use.c.ended_ns, _NOW)
_DEVICE_NS = select(func.coalesce(func.sum(_USE_END - _USE_START), 0)).where(
    device_use.c.owner == bindparam("user_id"), _USE_END > _SINCE
)
_INSERT_USE = without_result(insert(device_use))
_SET_USE_END = without_result(
    update(device_use).where(
        device_use.c.task == bindparam("task_id"), device_use.c.attempt == bindparam("task_attempt")
    )
)


class Quotas:
    """The `quotas` table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, Quota]:
        """Return all quotas by user; `DEFAULT_USER` is the default."""
        with self._database.read() as connection:
            return {row.user: _quota_from_row(row) for row in connection.execute(select(quotas))}

    def get(self, user: str) -> tuple[Quota, Usage]:
        """Return the quota and the usage of a user."""
        with self._database.read() as connection:
            return quota_of(connection, user), usage_of(connection, user)

    def usage(self, users: Iterable[str]) -> dict[str, Usage]:
        """Return the usage of several users."""
        with self._database.read() as connection:
            return {user: usage_of(connection, user) for user in users}

    def check_upload(self, user: str, size_bytes: int) -> None:
        """Check whether a user may upload this many bytes.

        Raises:
            QuotaExceeded: The upload exceeds the quota.
        """
        with self._database.read() as connection:
            check_upload_quota(connection, user, size_bytes)


def set_quota(connection: Connection, user: str, quota: Quota | None) -> None:
    """Set the quota of a user or of `DEFAULT_USER`; None removes the row."""
    connection.execute(delete(quotas).where(quotas.c.user == user))
    if quota is not None:
        connection.execute(insert(quotas).values(user=user, **asdict(quota)))


def quota_of(connection: Connection, user: str) -> Quota:
    """Return the quota of a user."""
    row = connection.execute(_QUOTA_OF, {"user_id": user}).first()
    return _quota_from_row(row) if row else Quota()


def usage_of(connection: Connection, user: str) -> Usage:
    """Return the usage of a user."""
    running_flags = list(connection.execute(_JOBS_OF, {"user_id": user}).scalars())
    return Usage(
        running_flags.count(0), running_flags.count(1), _uploaded_bytes(connection, user), _device_ns(connection, user)
    )


def check_job_quota(connection: Connection, user: str | None) -> None:
    """Check whether a user may queue another job.

    Raises:
        QuotaExceeded: The user has reached a quota.
    """
    quota = Quota() if user is None else quota_of(connection, user)
    if user is None or (quota.jobs_waiting is None and quota.device_ns is None):
        return
    used = usage_of(connection, user)
    if quota.jobs_waiting is not None and used.jobs_waiting >= quota.jobs_waiting:
        raise QuotaExceeded(
            msg("queue.jobs_wait", f"jobs that wait: {used.jobs_waiting} of {quota.jobs_waiting}"),
            msg("queue.cancel_one", f"cancel one, or {_ASK_ADMINISTRATOR}"),
        )
    if quota.device_ns is not None and used.device_ns >= quota.device_ns:
        hours = f"{used.device_ns / _HOUR_NS:,.1f} of {quota.device_ns / _HOUR_NS:,.1f}"
        raise QuotaExceeded(
            msg("queue.hours_devices_30_days", f"hours of devices in 30 days: {hours}"),
            msg("queue.wait_some_days", f"wait some days, or {_ASK_ADMINISTRATOR}"),
        )


def check_upload_quota(connection: Connection, user: str, size_bytes: int) -> None:
    """Check whether a user may upload this many bytes.

    Raises:
        QuotaExceeded: The upload exceeds the quota.
    """
    allowed = quota_of(connection, user).upload_bytes
    used = 0 if allowed is None else _uploaded_bytes(connection, user)
    if allowed is not None and used + size_bytes > allowed:
        usage_text = msg("queue.mb", f"{used / 1e6:,.1f} of {allowed / 1e6:,.1f} MB")
        raise QuotaExceeded(
            msg(
                "queue.uploads_used_mb_more",
                f"uploads: {usage_text} are used, and this has {size_bytes / 1e6:,.1f} MB more",
            ),
            msg("queue.remove_jobs_versions_models", f"remove jobs or versions of models, or {_ASK_ADMINISTRATOR}"),
        )


@dataclass(frozen=True)
class Allowance:
    """The remaining allowance of a user's quota for tasks that are to start.

    Attributes:
        quota: The quota.
        device_ns: Device time used, 0 without a limit.
        jobs_running: Running jobs, 0 without a limit.
    """

    quota: Quota
    device_ns: int = 0
    jobs_running: int = 0

    @property
    def may_start_task(self) -> bool:
        """Whether another task may start."""
        return self.quota.device_ns is None or self.device_ns < self.quota.device_ns

    @property
    def may_start_job(self) -> bool:
        """Whether a task of a job without running tasks may start."""
        return self.may_start_task and (self.quota.jobs_running is None or self.jobs_running < self.quota.jobs_running)


def allowance_of(connection: Connection, user: str | None) -> Allowance:
    """Return the allowance of a user; tasks without an owner are unlimited."""
    quota = Quota() if user is None else quota_of(connection, user)
    device_ns = 0 if user is None or quota.device_ns is None else _device_ns(connection, user)
    is_limited = quota.jobs_running is not None
    jobs_running = list(connection.execute(_JOBS_OF, {"user_id": user}).scalars()).count(1) if is_limited else 0
    return Allowance(quota, device_ns, jobs_running)


def start_device_use(connection: Connection, user: str | None, task: str, attempt: int, now: int) -> None:
    """Record that a user's task occupies a device from now on."""
    if user is not None:
        connection.execute(_INSERT_USE, {"task": task, "attempt": attempt, "owner": user, "begun_ns": now})


def end_device_use(connection: Connection, user: str | None, task: str, attempt: int, now: int) -> None:
    """Record that a task has released its device. This may happen again if an agent reports late on a requeued task."""
    if user is not None:
        connection.execute(_SET_USE_END, {"task_id": task, "task_attempt": attempt, "ended_ns": now})


def _uploaded_bytes(connection: Connection, user: str) -> int:
    """Return the bytes of stored and announced files."""
    return sum(
        int(connection.execute(query, {"user_id": user}).scalar_one()) for query in (_UPLOADED_BYTES, _PENDING_BYTES)
    )


def _device_ns(connection: Connection, user: str) -> int:
    now = time.time_ns()
    return int(connection.execute(_DEVICE_NS, {"user_id": user, "now": now, "since": now - WINDOW_NS}).scalar_one())


def _quota_from_row(row: AnyRow) -> Quota:
    return Quota(row.jobs_waiting, row.jobs_running, row.upload_bytes, row.device_ns)
