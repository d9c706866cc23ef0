"""Jobs: submit, cancel, retry, list."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Select, bindparam, case, func, select, update
from sqlalchemy.exc import IntegrityError

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.protocol import Request
from visualprof.remote.queue.check.limits import limit_errors
from visualprof.remote.queue.check.request_json import InvalidRequest
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.database import Database, current_revision, revision_subquery, without_result
from visualprof.remote.queue.store.quotas import check_job_quota
from visualprof.remote.queue.store.records import REQUEST, AnyRow, Job, job_from_row
from visualprof.remote.queue.store.tables import JOB_OWNER, jobs, points, revisions, tasks
from visualprof.remote.queue.store.visibility import visible_jobs
from visualprof.remote.queue.tasks.job_insertion import insert_job, is_missing_files
from visualprof.remote.queue.tasks.notifier import Notifier

_MAX_IDS_IN_STATEMENT = 100
_CANCEL_GRACE_NS = 20 * 10**9  # time for an agent to end a child, in addition to two leases

# Statements are built once, because building one takes longer than running it.
_SELECT_JOBS = select(jobs)
_total = select(func.count()).select_from(jobs).scalar_subquery()
_CURRENT = select(
    revision_subquery("jobs").label("revision"), revision_subquery("shared").label("shared"), _total.label("number")
)
_CHANGED_SINCE = _SELECT_JOBS.where(jobs.c.revision > bindparam("known")).order_by(
    jobs.c.submitted_ns.desc(), jobs.c.id
)
_TASKS = select(tasks).order_by(tasks.c.seq)
_TASKS_OF_JOBS = _TASKS.where(tasks.c.job.in_(bindparam("job_ids", expanding=True)))
_POINTS_OF_TASKS = select(points).where(points.c.task.in_(bindparam("task_ids", expanding=True)))
_POINT_COUNTS = (
    select(points.c.task, func.count())
    .join(tasks, tasks.c.id == points.c.task)
    .where(points.c.attempt == tasks.c.attempt, tasks.c.state != "waiting")
    .group_by(points.c.task)
)
_POINT_COUNTS_OF_JOBS = _POINT_COUNTS.where(tasks.c.job.in_(bindparam("job_ids", expanding=True)))
_BY_KEY = select(jobs.c.id, jobs.c.digest).where(bindparam("owner_id") == JOB_OWNER, jobs.c.key == bindparam("job_key"))
_NEXT_REVISION = without_result(
    update(revisions).where(revisions.c.name == "jobs").values(revision=revisions.c.revision + 1)
)
_SET_REVISION = without_result(update(jobs).values(revision=revision_subquery("jobs")))
_SET_JOB_REVISION = _SET_REVISION.where(jobs.c.id == bindparam("job_id"))
_SET_REVISION_OF_TASKS = _SET_REVISION.where(
    jobs.c.id.in_(select(tasks.c.job).where(tasks.c.id.in_(bindparam("task_ids", expanding=True))))
)


class JobChanges(NamedTuple):
    """Jobs that changed after a revision.

    Attributes:
        revision: Current revision of jobs.
        shared: Current revision of sharing.
        jobs: The changed jobs, newest first.
        total: Number of all jobs.
    """

    revision: int
    shared: int
    jobs: list[Job]
    total: int


class Jobs:
    """The `jobs` table, and the user-controlled part of the `tasks` table."""

    def __init__(self, database: Database, notifier: Notifier, lease_s: float) -> None:
        self._database = database
        self._notifier = notifier
        self._lease_ns = int(lease_s * 1e9)

    def submit(self, request: Request, owner: str | None = None) -> tuple[str, bool]:
        """Queue a job. The same request with the same key is the same job.

        Returns:
            The job's id, and whether the job is new.

        Raises:
            Conflict: The key belongs to another request.
            InvalidRequest: The request exceeds a limit.
            QuotaExceeded: The owner has reached a quota.
        """
        errors = limit_errors(request)
        if errors:
            raise InvalidRequest(errors)
        text = _encode(request)
        digest = _digest(text)
        try:
            with self._database.write() as connection:
                existing = _find_by_key(connection, owner, request.key)
                if existing is None:
                    check_job_quota(connection, owner)
                    job = insert_job(connection, self._database.now_ns(), request, owner, text, digest)
        except IntegrityError:  # another server was faster with the same key
            with self._database.query() as connection:
                existing = _find_by_key(connection, owner, request.key)
            if existing is None:
                raise
        if existing is None:
            self._notifier.notify(len(request.specs))
            return job, True  # pyright: ignore[reportPossiblyUnboundVariable]
        return _same_job(existing, request, digest), False

    def find(self, request: Request, owner: str | None = None) -> str | None:
        """Return the id of the job that this request created before, else None.

        Raises:
            Conflict: The key belongs to another request.
        """
        with self._database.query() as connection:
            existing = _find_by_key(connection, owner, request.key)
        return _same_job(existing, request, _digest(_encode(request))) if existing else None

    def cancel(self, job: str) -> None:
        """Cancel waiting tasks immediately, and ask agents to cancel running tasks.

        Raises:
            NotFound: There is no such job.
        """
        with self._database.write() as connection:
            now = self._database.now_ns()
            self._row(connection, job)
            of_job = tasks.c.job == job
            waiting = of_job & tasks.c.state.in_(("initiated", "waiting"))
            values = {"state": "cancelled", "phase": None, "lease": None, "updated_ns": now}
            stopped = connection.execute(update(tasks).where(waiting).values(values)).rowcount
            deadline_ns = now + 2 * self._lease_ns + _CANCEL_GRACE_NS  # then `MaintenanceThread` ends the task
            requested = connection.execute(
                update(tasks)
                .where(of_job, tasks.c.state == "running", ~tasks.c.cancel)
                .values(cancel=True, deadline_ns=deadline_ns, updated_ns=now)
            ).rowcount
            if stopped or requested:
                bump_revision(connection, job)

    def retry(self, job: str, task: str = "") -> None:
        """Queue failed and canceled tasks again.

        Args:
            job: Id of the job.
            task: Id of one task; "" is all tasks of the job.

        Raises:
            NotFound: There is no such job or task.
            Conflict: No task has failed or was canceled.
            QuotaExceeded: The owner has reached a quota.
        """
        with self._database.write() as connection:
            check_job_quota(connection, self._row(connection, job).owner)
            selected = (tasks.c.job == job) & ((tasks.c.id == task) if task else (tasks.c.job == job))
            if task and connection.execute(select(tasks.c.id).where(selected)).first() is None:
                raise NotFound(msg("queue.job_no_task", f"job {job} has no task {task[:60]!r}"))
            statement = (
                update(tasks)
                .where(selected, tasks.c.state.in_(("failed", "cancelled")))
                .values(_reset_values(self._database.now_ns()))
            )
            queued = connection.execute(statement).rowcount
            if not queued:
                raise Conflict(
                    msg("queue.nothing_try_again", "nothing to try again"),
                    msg("queue.only_failed_cancelled_tasks", "only failed and cancelled tasks are"),
                )
            bump_revision(connection, job)
        self._notifier.notify(queued)

    def file_arrived(self, sha256: str) -> None:
        """Queue the jobs that waited for this file only."""
        with self._database.query() as connection:
            pending = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.state == "initiated"))
            rows = connection.execute(select(jobs).where(pending, jobs.c.request.contains(sha256))).all()
        for row in rows:
            with self._database.write() as connection:
                if is_missing_files(connection, REQUEST.decode(row.request)):
                    continue
                statement = update(tasks).where(tasks.c.job == row.id, tasks.c.state == "initiated")
                queued = connection.execute(
                    statement.values(state="waiting", updated_ns=self._database.now_ns())
                ).rowcount
                bump_revision(connection, row.id)
            self._notifier.notify(queued)

    def revision(self) -> int:
        """Return the current revision, which increases with every change of a job."""
        with self._database.query() as connection:
            return current_revision(connection)

    def changes_since(self, seen: int) -> JobChanges:
        """Return the jobs that changed after a revision."""
        with self._database.read() as connection:
            changed = _load_jobs(connection, _CHANGED_SINCE, {"known": seen})
            current = connection.execute(_CURRENT).one()
            return JobChanges(current.revision, current.shared, changed, current.number)

    def ids(self) -> set[str]:
        """Return the ids of all jobs."""
        with self._database.query() as connection:
            return set(connection.execute(select(jobs.c.id)).scalars())

    def running(self, viewer: str | None = None) -> list[Job]:
        """Return the jobs that have a running task."""
        is_running = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.state == "running"))
        with self._database.read() as connection:
            return _load_jobs(connection, visible_jobs(viewer).where(is_running))

    def totals(self) -> tuple[int, int, int | None]:
        """Return the numbers of waiting and of running jobs, and the submit time of the oldest waiting job.

        The time is in ns, or None if no job waits.
        """
        is_running = func.max(case((tasks.c.state == "running", 1), else_=0)).label("runs")
        unfinished = select(is_running, jobs.c.submitted_ns).join(tasks, tasks.c.job == jobs.c.id).group_by(jobs.c.id)
        unfinished = unfinished.where(tasks.c.state.in_(("initiated", "waiting", "running")))
        with self._database.query() as connection:
            rows = connection.execute(unfinished).all()
        waiting = [row.submitted_ns for row in rows if not row.runs]
        return len(waiting), len(rows) - len(waiting), min(waiting, default=None)

    def get(self, job: str, viewer: str | None = None) -> Job:
        """Return a job.

        Raises:
            NotFound: There is no such job, or the viewer may not see it.
        """
        with self._database.read() as connection:
            rows = _load_jobs(connection, visible_jobs(viewer).where(jobs.c.id == job))
        if not rows:
            raise NotFound(msg("queue.there_no_job", f"there is no job {job[:40]!r}"))
        return rows[0]

    def get_by_task(self, task: str, viewer: str | None = None) -> Job:
        """Return the job of a task.

        Raises:
            NotFound: There is no such task, or the viewer may not see it.
        """
        has_task = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.id == task))
        with self._database.read() as connection:
            rows = _load_jobs(connection, visible_jobs(viewer).where(has_task))
        if not rows:
            raise NotFound(msg("queue.there_no_task", f"there is no task {task[:60]!r}"))
        return rows[0]

    def points(self, job: Job) -> dict[str, list[dict[str, Any]]]:
        """Return the points of each task's last attempt, in the order of their start."""
        points_by_task: dict[str, list[dict[str, Any]]] = {task.id: [] for task in job.tasks}
        attempts = {task.id: task.attempt for task in job.tasks if task.state != "waiting"}
        if not any(attempts.values()):  # none ever ran
            return points_by_task
        with self._database.query() as connection:
            for row in connection.execute(_POINTS_OF_TASKS, {"task_ids": list(points_by_task)}):
                if row.attempt == attempts.get(row.task):
                    points_by_task[row.task].append(msgspec.json.decode(row.point))
        return {task: sorted(points, key=_start_ns) for task, points in points_by_task.items()}

    def point_counts(self, jobs: list[Job]) -> dict[str, int]:
        """Return the number of points of each task's last attempt."""
        is_short = len(jobs) <= _MAX_IDS_IN_STATEMENT
        with self._database.query() as connection:
            rows = (
                connection.execute(_POINT_COUNTS_OF_JOBS, {"job_ids": [job.id for job in jobs]})
                if is_short
                else connection.execute(_POINT_COUNTS)
            )
            return {row[0]: row[1] for row in rows}

    @staticmethod
    def _row(connection: Connection, job: str) -> AnyRow:
        row = connection.execute(select(jobs).where(jobs.c.id == job)).first()
        if row is None:
            raise NotFound(msg("queue.there_no_job", f"there is no job {job[:40]!r}"))
        return row


def _start_ns(point: dict[str, Any]) -> float:
    """Return the start time of a point, 0 if the agent sent an invalid one."""
    start = point.get("start_ns")
    return start if isinstance(start, (int, float)) else 0


def bump_revision(connection: Connection, job: str) -> None:
    """Record a change of a job or of one of its tasks."""
    connection.execute(_NEXT_REVISION)
    connection.execute(_SET_JOB_REVISION, {"job_id": job})


def bump_revisions(connection: Connection, tasks: Collection[str]) -> None:
    """Record a change of the jobs of several tasks."""
    connection.execute(_NEXT_REVISION)
    connection.execute(_SET_REVISION_OF_TASKS, {"task_ids": list(tasks)})


def _find_by_key(connection: Connection, owner: str | None, key: str) -> AnyRow | None:
    return connection.execute(_BY_KEY, {"owner_id": owner or "", "job_key": key}).first()


def _encode(request: Request) -> str:
    return msgspec.json.encode(request, order="sorted").decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _same_job(existing: AnyRow, request: Request, digest: str) -> str:
    if existing.digest != digest:
        raise Conflict(
            msg("queue.key_belongs_another_job", f"the key {request.key!r} belongs to another job"),
            msg("queue.choose_new_key_new", "choose a new key for a new job"),
        )
    return existing.id


def _reset_values(now: int) -> dict[str, Any]:
    """Return the column values that reset a task for a retry. The number of attempts is kept."""
    empty = ("phase", "agent", "on_device", "on_version", "lease", "lease_until_ns", "deadline_ns")
    empty += ("reason", "error", "hint", "run")
    return {
        **dict.fromkeys(empty),
        "state": "waiting",
        "progress": 0.0,
        "tries": 0,
        "cancel": False,
        "warnings": "[]",
        "log_bytes": 0,
        "log_cut": 0,
        "updated_ns": now,
    }


def _load_jobs(
    connection: Connection, query: Select[tuple[object, ...]], parameters: dict[str, Any] | None = None
) -> list[Job]:
    """Return jobs with their tasks.

    A long list of jobs is not passed as ids, because statements have a limit.
    """
    rows = connection.execute(query, parameters or {}).all()
    tasks_by_job: dict[str, list[AnyRow]] = {row.id: [] for row in rows}
    is_short = len(tasks_by_job) <= _MAX_IDS_IN_STATEMENT
    for row in (
        connection.execute(_TASKS_OF_JOBS, {"job_ids": list(tasks_by_job)}) if is_short else connection.execute(_TASKS)
    ):
        if row.job in tasks_by_job:
            tasks_by_job[row.job].append(row)
    return [job_from_row(row, tasks_by_job[row.id]) for row in rows]
