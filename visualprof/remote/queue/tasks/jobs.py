"""Jobs: submitting, cancelling, retrying, listing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Select, bindparam, case, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.protocol import PRIORITIES, Request, Spec
from visualprof.remote.queue.check.limits import limit_errors
from visualprof.remote.queue.check.request_json import InvalidRequest
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.agents import new_id
from visualprof.remote.queue.store.database import (
    Database,
    current_revision,
    next_revision,
    revision_subquery,
    without_result,
)
from visualprof.remote.queue.store.files import display_name
from visualprof.remote.queue.store.quotas import check_job_quota
from visualprof.remote.queue.store.records import REQUEST, AnyRow, Job, job_from_row
from visualprof.remote.queue.store.tables import OF_OWNER, blobs, jobs, points, revisions, runs, tasks
from visualprof.remote.queue.store.visibility import visible_jobs
from visualprof.remote.queue.tasks.notifier import Notifier

_MANY = 100  # jobs; more are not named one by one in a statement
_PATIENCE_NS = 20 * 10**9  # what an agent takes to end a child, beside two leases

# Statements are made once: making one takes longer than running it.
_ALL = select(jobs)
_number = select(func.count()).select_from(jobs).scalar_subquery()
_NOW = select(
    revision_subquery("jobs").label("revision"), revision_subquery("shared").label("shared"), _number.label("number")
)
_LATER = _ALL.where(jobs.c.revision > bindparam("known")).order_by(jobs.c.submitted_ns.desc(), jobs.c.id)
_TASKS = select(tasks).order_by(tasks.c.seq)
_TASKS_OF = _TASKS.where(tasks.c.job.in_(bindparam("named", expanding=True)))
_POINTS_OF = select(points).where(points.c.task.in_(bindparam("named", expanding=True)))
_COUNTS = (
    select(points.c.task, func.count())
    .join(tasks, tasks.c.id == points.c.task)
    .where(points.c.attempt == tasks.c.attempt, tasks.c.state != "waiting")
    .group_by(points.c.task)
)
_COUNTS_OF = _COUNTS.where(tasks.c.job.in_(bindparam("named", expanding=True)))
_HERE = select(func.count()).select_from(blobs).where(blobs.c.sha256.in_(bindparam("named", expanding=True)))
_WITH_KEY = select(jobs.c.id, jobs.c.digest).where(
    bindparam("of_owner") == OF_OWNER, jobs.c.key == bindparam("its_key")
)
_COUNTED = without_result(update(revisions).where(revisions.c.name == "jobs").values(revision=revisions.c.revision + 1))
_NEWER = without_result(update(jobs).values(revision=revision_subquery("jobs")))
_TOUCHED = _NEWER.where(jobs.c.id == bindparam("of"))
_TOUCHED_OF = _NEWER.where(jobs.c.id.in_(select(tasks.c.job).where(tasks.c.id.in_(bindparam("of", expanding=True)))))
_SUBMITTED, _QUEUED, _PRIVATE = insert(jobs), insert(tasks), insert(runs)


class JobChanges(NamedTuple):
    """The jobs that changed, the newest first, and how many there are. shared: the revision of who may see what."""

    revision: int
    shared: int
    jobs: list[Job]
    total: int


class Jobs:
    """The table of jobs, and that of tasks as far as people change it."""

    def __init__(self, database: Database, notifier: Notifier, lease_s: float) -> None:
        self._database = database
        self._notifier = notifier
        self._lease_ns = int(lease_s * 1e9)

    def submit(self, request: Request, owner: str | None = None) -> tuple[str, bool]:
        """Queues a job; its id, and whether it is new. The same request with the same key is the same job.

        Raises: Conflict: the key belongs to another request. Invalid: what no job may ask for. OverQuota.
        """
        errors = limit_errors(request)
        if errors:
            raise InvalidRequest(errors)
        text = _text(request)
        digest = _digest(text)
        try:
            with self._database.write() as connection:
                before = _with_key(connection, owner, request.key)
                if before is None:
                    check_job_quota(connection, owner)
                    identity = _insert(connection, self._database.now_ns(), request, owner, text, digest)
        except IntegrityError:  # another server was faster with the same key
            with self._database.query() as connection:
                before = _with_key(connection, owner, request.key)
            if before is None:
                raise
        if before is None:
            self._notifier.notify(len(request.specs))
            return identity, True  # pyright: ignore[reportPossiblyUnboundVariable]
        return _same(before, request, digest), False

    def find(self, request: Request, owner: str | None = None) -> str | None:
        """The job that this request made before.

        Raises: Conflict: its key belongs to another request.
        """
        with self._database.query() as connection:
            before = _with_key(connection, owner, request.key)
        return _same(before, request, _digest(_text(request))) if before else None

    def cancel(self, job: str) -> None:
        """End what waits at once, and asks the agents of what runs to end it.

        Raises: NotFound.
        """
        with self._database.write() as connection:
            now = self._database.now_ns()
            self._row(connection, job)
            of_job = tasks.c.job == job
            waiting = of_job & tasks.c.state.in_(("initiated", "waiting"))
            ended = {"state": "cancelled", "phase": None, "lease": None, "updated_ns": now}
            stopped = connection.execute(update(tasks).where(waiting).values(ended)).rowcount
            patience = now + 2 * self._lease_ns + _PATIENCE_NS  # after it `Upkeep` ends it
            asked = connection.execute(
                update(tasks)
                .where(of_job, tasks.c.state == "running", ~tasks.c.cancel)
                .values(cancel=True, deadline_ns=patience, updated_ns=now)
            ).rowcount
            if stopped or asked:
                bump_revision(connection, job)

    def retry(self, job: str, task: str = "") -> None:
        """Queues failed and cancelled tasks again, or one of them.

        Raises: NotFound. Conflict: none has failed or was cancelled. OverQuota.
        """
        with self._database.write() as connection:
            check_job_quota(connection, self._row(connection, job).owner)
            chosen = (tasks.c.job == job) & ((tasks.c.id == task) if task else (tasks.c.job == job))
            if task and connection.execute(select(tasks.c.id).where(chosen)).first() is None:
                raise NotFound(msg("queue.job_no_task", f"job {job} has no task {task[:60]!r}"))
            again = (
                update(tasks)
                .where(chosen, tasks.c.state.in_(("failed", "cancelled")))
                .values(_fresh(self._database.now_ns()))
            )
            queued = connection.execute(again).rowcount
            if not queued:
                raise Conflict(
                    msg("queue.nothing_try_again", "nothing to try again"),
                    msg("queue.only_failed_cancelled_tasks", "only failed and cancelled tasks are"),
                )
            bump_revision(connection, job)
        self._notifier.notify(queued)

    def file_arrived(self, sha256: str) -> None:
        """A file is here: jobs that only lacked it begin to wait for an agent."""
        with self._database.query() as connection:
            pending = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.state == "initiated"))
            rows = connection.execute(select(jobs).where(pending, jobs.c.request.contains(sha256))).all()
        for row in rows:
            with self._database.write() as connection:
                if _lacks(connection, REQUEST.decode(row.request)):
                    continue
                ready = update(tasks).where(tasks.c.job == row.id, tasks.c.state == "initiated")
                queued = connection.execute(ready.values(state="waiting", updated_ns=self._database.now_ns())).rowcount
                bump_revision(connection, row.id)
            self._notifier.notify(queued)

    def revision(self) -> int:
        """Grow with every change of a job."""
        with self._database.query() as connection:
            return current_revision(connection)

    def changes_since(self, known: int) -> JobChanges:
        """What changed after a revision."""
        with self._database.read() as connection:
            later = _jobs(connection, _LATER, {"known": known})
            now = connection.execute(_NOW).one()
            return JobChanges(now.revision, now.shared, later, now.number)

    def ids(self) -> set[str]:
        """Of all jobs."""
        with self._database.query() as connection:
            return set(connection.execute(select(jobs.c.id)).scalars())

    def running(self, viewer: str | None = None) -> list[Job]:
        """The jobs of which a task runs."""
        some = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.state == "running"))
        with self._database.read() as connection:
            return _jobs(connection, visible_jobs(viewer).where(some))

    def totals(self) -> tuple[int, int, int | None]:
        """How many wait, of which nothing runs, and how many run; when the oldest that waits was submitted, ns."""
        runs = func.max(case((tasks.c.state == "running", 1), else_=0)).label("runs")
        live = select(runs, jobs.c.submitted_ns).join(tasks, tasks.c.job == jobs.c.id).group_by(jobs.c.id)
        live = live.where(tasks.c.state.in_(("initiated", "waiting", "running")))
        with self._database.query() as connection:
            rows = connection.execute(live).all()
        waiting = [row.submitted_ns for row in rows if not row.runs]
        return len(waiting), len(rows) - len(waiting), min(waiting, default=None)

    def get(self, job: str, viewer: str | None = None) -> Job:
        """A job.

        Raises: NotFound.
        """
        with self._database.read() as connection:
            rows = _jobs(connection, visible_jobs(viewer).where(jobs.c.id == job))
        if not rows:
            raise NotFound(msg("queue.there_no_job", f"there is no job {job[:40]!r}"))
        return rows[0]

    def get_by_task(self, task: str, viewer: str | None = None) -> Job:
        """The job of a task.

        Raises: NotFound.
        """
        its = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.id == task))
        with self._database.read() as connection:
            rows = _jobs(connection, visible_jobs(viewer).where(its))
        if not rows:
            raise NotFound(msg("queue.there_no_task", f"there is no task {task[:60]!r}"))
        return rows[0]

    def points(self, job: Job) -> dict[str, list[dict[str, Any]]]:
        """The points of each task's last attempt, in the order in which they came."""
        out: dict[str, list[dict[str, Any]]] = {task.id: [] for task in job.tasks}
        attempts = {task.id: task.attempt for task in job.tasks if task.state != "waiting"}
        if not any(attempts.values()):  # none ever ran
            return out
        with self._database.query() as connection:
            for row in connection.execute(_POINTS_OF, {"named": list(out)}):
                if row.attempt == attempts.get(row.task):
                    out[row.task].append(msgspec.json.decode(row.point))
        return {task: sorted(measured, key=_start) for task, measured in out.items()}

    def point_counts(self, of: list[Job]) -> dict[str, int]:
        """Points of the last attempt of each task of these jobs."""
        some = len(of) <= _MANY
        with self._database.query() as connection:
            rows = (
                connection.execute(_COUNTS_OF, {"named": [job.id for job in of]})
                if some
                else connection.execute(_COUNTS)
            )
            return {row[0]: row[1] for row in rows}

    @staticmethod
    def _row(connection: Connection, job: str) -> AnyRow:
        row = connection.execute(select(jobs).where(jobs.c.id == job)).first()
        if row is None:
            raise NotFound(msg("queue.there_no_job", f"there is no job {job[:40]!r}"))
        return row


def _start(point: dict[str, Any]) -> float:
    """When it was measured; an agent may have sent anything for it."""
    start = point.get("start_ns")
    return start if isinstance(start, (int, float)) else 0


def bump_revision(connection: Connection, job: str) -> None:
    """Count a change of a job or of one of its tasks."""
    connection.execute(_COUNTED)
    connection.execute(_TOUCHED, {"of": job})


def bump_revisions(connection: Connection, tasks: Collection[str]) -> None:
    """As `touch`, of the jobs of tasks."""
    connection.execute(_COUNTED)
    connection.execute(_TOUCHED_OF, {"of": list(tasks)})


def result_folder(model: str, job: str) -> str:
    """The folder of a job's results: the model's name as far as folders may have it, and the id."""
    stem = PurePosixPath(display_name(model)).stem
    slug = re.sub(r"[^\w.-]+", "-", stem).strip("-._")[:48]
    return f"{slug or 'model'}-{job}"


def _with_key(connection: Connection, owner: str | None, key: str) -> AnyRow | None:
    return connection.execute(_WITH_KEY, {"of_owner": owner or "", "its_key": key}).first()


def _text(request: Request) -> str:
    return msgspec.json.encode(request, order="sorted").decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _same(before: AnyRow, request: Request, digest: str) -> str:
    if before.digest != digest:
        raise Conflict(
            msg("queue.key_belongs_another_job", f"the key {request.key!r} belongs to another job"),
            msg("queue.choose_new_key_new", "choose a new key for a new job"),
        )
    return before.id


def _insert(connection: Connection, now: int, request: Request, owner: str | None, text: str, digest: str) -> str:
    job = new_id()
    folder = result_folder(request.model.name, job)
    if owner is not None:
        values = {
            "folder": folder,
            "owner": owner,
            "visibility": "private",
            "revision": next_revision(connection, "runs"),
        }
        connection.execute(_PRIVATE, values)
    values = {
        "id": job,
        "owner": owner,
        "key": request.key,
        "digest": digest,
        "request": text,
        "model_blob": request.model.blob,
        "folder": folder,
        "retries": request.retries,
        "timeout_ns": int(request.timeout_s * 1e9),
        "submitted_ns": now,
        "revision": next_revision(connection),
    }
    connection.execute(_SUBMITTED, values)
    state = "initiated" if _lacks(connection, request) else "waiting"
    common = {"job": job, "owner": owner, "state": state, "updated_ns": now}
    common["priority"] = PRIORITIES.index(request.priority)
    rows = [{"id": f"{job}-{i}", **_wanted(spec), **common} for i, spec in enumerate(request.specs)]
    connection.execute(_QUEUED, rows)
    return job


def _wanted(spec: Spec) -> dict[str, Any]:
    return {
        "spec_id": spec.id,
        "spec": msgspec.json.encode(spec).decode(),
        "backend": spec.backend,
        "version": spec.version,
        "wanted_agent": spec.agent,
        "platform": spec.platform,
        "device": spec.device,
    }


def _lacks(connection: Connection, request: Request) -> bool:
    """Is a file of the job not here yet?"""
    named = list(request.blobs)
    here = connection.execute(_HERE, {"named": named}).scalar_one()
    return here < len(named)


def _fresh(now: int) -> dict[str, Any]:
    """A task as if nobody had ever tried it, but for the number of its attempts."""
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


def _jobs(connection: Connection, query: Select[tuple[object, ...]], given: dict[str, Any] | None = None) -> list[Job]:
    """Jobs with their tasks. A list of ids has a limit, which the whole list of jobs would pass."""
    rows = connection.execute(query, given or {}).all()
    of_job: dict[str, list[AnyRow]] = {row.id: [] for row in rows}
    some = len(of_job) <= _MANY
    for row in connection.execute(_TASKS_OF, {"named": list(of_job)}) if some else connection.execute(_TASKS):
        if row.job in of_job:
            of_job[row.job].append(row)
    return [job_from_row(row, of_job[row.id]) for row in rows]
