"""How much a user may have: jobs that wait and run, uploaded bytes, hours of devices in thirty days.

A row of `quotas` bounds its user; that of nobody ("") everybody who has none. Without either there is no bound.
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
    """What a user may have; None is without a bound. device_ns: of devices in the last thirty days."""

    jobs_waiting: int | None = None
    jobs_running: int | None = None
    upload_bytes: int | None = None
    device_ns: int | None = None


@dataclass(frozen=True)
class Usage:
    """What a user has. A job runs if any of its tasks does, else it waits if any waits."""

    jobs_waiting: int
    jobs_running: int
    upload_bytes: int
    device_ns: int


_HOUR_NS = 3600 * 10**9
_ASK = msg("queue.ask_administrator_more", "ask an administrator for more")

# Statements are made once: making one takes longer than running it.
_OF = (
    select(quotas)
    .where(quotas.c.user.in_([bindparam("user_id"), DEFAULT_USER]))
    .order_by(quotas.c.user.desc())
    .limit(1)
)
_RUNS = func.max(case((tasks.c.state == "running", 1), else_=0))
_JOBS = (
    select(_RUNS.label("runs"))
    .where(tasks.c.owner == bindparam("user_id"), tasks.c.state.in_(("initiated", "waiting", "running")))
    .group_by(tasks.c.job)
)
_BYTES = (
    select(func.coalesce(func.sum(blobs.c.size_bytes), 0))
    .join(holders, holders.c.sha256 == blobs.c.sha256)
    .where(holders.c.owner == bindparam("user_id"))
)
_ARRIVING = select(func.coalesce(func.sum(uploads.c.size_bytes), 0)).where(uploads.c.owner == bindparam("user_id"))
_SINCE, _NOW = bindparam("since", type_=BigInteger), bindparam("now", type_=BigInteger)
_BEGUN = case((device_use.c.begun_ns < _SINCE, _SINCE), else_=device_use.c.begun_ns)
_ENDED = func.coalesce(device_use.c.ended_ns, _NOW)
_DEVICES = select(func.coalesce(func.sum(_ENDED - _BEGUN), 0)).where(
    device_use.c.owner == bindparam("user_id"), _ENDED > _SINCE
)
_BEGIN = without_result(insert(device_use))
_END = without_result(
    update(device_use).where(
        device_use.c.task == bindparam("task_id"), device_use.c.attempt == bindparam("task_attempt")
    )
)


class Quotas:
    """The table of quotas."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, Quota]:
        """By user; `EVERYBODY` is the default."""
        with self._database.read() as connection:
            return {row.user: _quota(row) for row in connection.execute(select(quotas))}

    def get(self, user: str) -> tuple[Quota, Usage]:
        """What somebody may have, and has."""
        with self._database.read() as connection:
            return quota_of(connection, user), usage_of(connection, user)

    def usage(self, users: Iterable[str]) -> dict[str, Usage]:
        """What each of them has."""
        with self._database.read() as connection:
            return {user: usage_of(connection, user) for user in users}

    def check_upload(self, user: str, more: int) -> None:
        """Raises: OverQuota: somebody may not upload so many bytes more."""
        with self._database.read() as connection:
            check_upload_quota(connection, user, more)


def set_quota(connection: Connection, user: str, quota: Quota | None) -> None:
    """Set what a user, or `EVERYBODY`, may have; None removes the row."""
    connection.execute(delete(quotas).where(quotas.c.user == user))
    if quota is not None:
        connection.execute(insert(quotas).values(user=user, **asdict(quota)))


def quota_of(connection: Connection, user: str) -> Quota:
    """What somebody may have."""
    row = connection.execute(_OF, {"user_id": user}).first()
    return _quota(row) if row else Quota()


def usage_of(connection: Connection, user: str) -> Usage:
    """What somebody has."""
    runs = list(connection.execute(_JOBS, {"user_id": user}).scalars())
    return Usage(runs.count(0), runs.count(1), _uploaded(connection, user), _device_ns(connection, user))


def check_job_quota(connection: Connection, user: str | None) -> None:
    """Before a job of somebody's is to wait.

    Raises: OverQuota.
    """
    quota = Quota() if user is None else quota_of(connection, user)
    if user is None or (quota.jobs_waiting is None and quota.device_ns is None):
        return
    used = usage_of(connection, user)
    if quota.jobs_waiting is not None and used.jobs_waiting >= quota.jobs_waiting:
        raise QuotaExceeded(
            msg("queue.jobs_wait", f"jobs that wait: {used.jobs_waiting} of {quota.jobs_waiting}"),
            msg("queue.cancel_one", f"cancel one, or {_ASK}"),
        )
    if quota.device_ns is not None and used.device_ns >= quota.device_ns:
        hours = f"{used.device_ns / _HOUR_NS:,.1f} of {quota.device_ns / _HOUR_NS:,.1f}"
        raise QuotaExceeded(
            msg("queue.hours_devices_30_days", f"hours of devices in 30 days: {hours}"),
            msg("queue.wait_some_days", f"wait some days, or {_ASK}"),
        )


def check_upload_quota(connection: Connection, user: str, more: int) -> None:
    """Before somebody has uploaded so many bytes more.

    Raises: OverQuota.
    """
    allowed = quota_of(connection, user).upload_bytes
    used = 0 if allowed is None else _uploaded(connection, user)
    if allowed is not None and used + more > allowed:
        has = msg("queue.mb", f"{used / 1e6:,.1f} of {allowed / 1e6:,.1f} MB")
        raise QuotaExceeded(
            msg("queue.uploads_used_mb_more", f"uploads: {has} are used, and this has {more / 1e6:,.1f} MB more"),
            msg("queue.remove_jobs_versions_models", f"remove jobs or versions of models, or {_ASK}"),
        )


@dataclass(frozen=True)
class Allowance:
    """What a user's quota leaves for tasks that are to begin. device_ns, jobs_running: used, or 0 without bound."""

    quota: Quota
    device_ns: int = 0
    jobs_running: int = 0

    @property
    def may_start_task(self) -> bool:
        """May a further task begin at all?"""
        return self.quota.device_ns is None or self.device_ns < self.quota.device_ns

    @property
    def may_start_job(self) -> bool:
        """Also one of a job of which none runs yet?"""
        return self.may_start_task and (self.quota.jobs_running is None or self.jobs_running < self.quota.jobs_running)


def allowance_of(connection: Connection, user: str | None) -> Allowance:
    """What somebody may begin; a task without an owner has no bound."""
    quota = Quota() if user is None else quota_of(connection, user)
    spent = 0 if user is None or quota.device_ns is None else _device_ns(connection, user)
    bounded = quota.jobs_running is not None
    running = list(connection.execute(_JOBS, {"user_id": user}).scalars()).count(1) if bounded else 0
    return Allowance(quota, spent, running)


def start_device_use(connection: Connection, user: str | None, task: str, attempt: int, now: int) -> None:
    """Somebody's task has a device from now on."""
    if user is not None:
        connection.execute(_BEGIN, {"task": task, "attempt": attempt, "owner": user, "begun_ns": now})


def end_device_use(connection: Connection, user: str | None, task: str, attempt: int, now: int) -> None:
    """It has it no more; a task that was taken back may end again, by an agent that was late."""
    if user is not None:
        connection.execute(_END, {"task_id": task, "task_attempt": attempt, "ended_ns": now})


def _uploaded(connection: Connection, user: str) -> int:
    """Bytes of what is kept, and of what is announced."""
    return sum(int(connection.execute(some, {"user_id": user}).scalar_one()) for some in (_BYTES, _ARRIVING))


def _device_ns(connection: Connection, user: str) -> int:
    now = time.time_ns()
    return int(connection.execute(_DEVICES, {"user_id": user, "now": now, "since": now - WINDOW_NS}).scalar_one())


def _quota(row: AnyRow) -> Quota:
    return Quota(row.jobs_waiting, row.jobs_running, row.upload_bytes, row.device_ns)
