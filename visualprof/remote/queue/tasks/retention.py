"""Retention rules: applying them, and previewing their effect."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, select, update

from visualprof.errors import BadParameter, NotFound, VisualprofError
from visualprof.messages import msg
from visualprof.remote.protocol import FINAL
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import Job, RetentionKind, RetentionRule
from visualprof.remote.queue.store.retention import DAY_NS, delete_rule, load_rules, set_rule
from visualprof.remote.queue.store.tables import audit, blobs, jobs, notices, projects, runs, tasks
from visualprof.remote.queue.tasks.job_deleter import JobDeleter
from visualprof.remote.queue.tasks.jobs import bump_revision
from visualprof.remote.queue.tasks.maintenance import unused_uploads

_log = logging.getLogger(__name__)

_MIN_DAYS: Mapping[RetentionKind, int] = {"audit": 30}  # users must not delete the record of recent actions
_MAX_MEASURED_JOBS = 50  # jobs whose size a preview measures
_MAX_ROUND_S = 5  # per round, because the maintenance thread has other tasks


class RecordEvent(Protocol):
    """Records an audit event in the transaction of the change."""

    def __call__(self, connection: Connection, *, subject: str) -> object:
        """Record the event; `subject` is the changed rule."""


def _ignore_event(connection: Connection, *, subject: str) -> None:
    """Record nothing."""


_unfinished_tasks = func.sum(case((tasks.c.state.in_(FINAL), 0), else_=1))
_ENDED_JOBS: Any = (  # jobs that may be deleted, with the time at which they ended
    select(jobs.c.id, jobs.c.folder, func.max(tasks.c.updated_ns).label("ended_ns"))
    .join(tasks, tasks.c.job == jobs.c.id)
    .where(~jobs.c.kept)
    .group_by(jobs.c.id, jobs.c.folder)
    .having(_unfinished_tasks == 0)
    .order_by(func.max(tasks.c.updated_ns))
)
_SHARED_FOLDERS = select(runs.c.folder, runs.c.visibility, runs.c.project).where(runs.c.visibility != "private")
Rules = Mapping[tuple[RetentionKind, str], int | None]


@dataclass(frozen=True)
class RemovalPreview:
    """The items that a rule would remove.

    Attributes:
        count: Number of items.
        size_bytes: Size of the first `measured` items; None for items without files.
        measured: Number of items that `size_bytes` includes.
    """

    count: int
    size_bytes: int | None
    measured: int


@dataclass(frozen=True)
class _Due:
    job: str
    project: str  # the rule of this project applies
    at_ns: int


class Retention:
    """Retention rules and their application. Public jobs and jobs marked as kept are never removed."""

    def __init__(self, database: Database, removal: JobDeleter) -> None:
        self._database = database
        self._deleter = removal

    def rules(self) -> list[RetentionRule]:
        """Return all rules."""
        with self._database.read() as connection:
            return [RetentionRule(kind, project, days) for (kind, project), days in load_rules(connection).items()]

    def change(self, rule: RetentionRule, record: RecordEvent = _ignore_event) -> None:
        """Set a rule.

        Raises:
            BadParameter: The rule is invalid.
            NotFound: There is no such project.
        """
        if rule.project and rule.kind != "jobs":
            raise BadParameter(msg("queue.project_only_jobs_belong", "project: only jobs belong to one"))
        if rule.days is not None and rule.days < _MIN_DAYS.get(rule.kind, 1):
            raise BadParameter(msg("queue.days_least_never", f"days: {_MIN_DAYS.get(rule.kind, 1)} at least, or never"))
        with self._database.write() as connection:
            exists = select(projects.c.id).where(projects.c.id == rule.project)
            if rule.project and connection.execute(exists).first() is None:
                raise NotFound(msg("queue.there_no_project", f"there is no project {rule.project[:40]!r}"))
            days = "never" if rule.days is None else msg("queue.after_days", f"after {rule.days} days")
            record(connection, subject=f"{rule.kind} {rule.project}".rstrip() + f": {days}")
            set_rule(connection, rule)

    def drop(self, project: str, record: RecordEvent = _ignore_event) -> None:
        """Delete the rule of a project's jobs."""
        with self._database.write() as connection:
            record(connection, subject=msg("queue.jobs_all_others", f"jobs {project[:40]}: as all others"))
            delete_rule(connection, "jobs", project)

    def set_kept(self, job: str, is_kept: bool) -> None:
        """Keep a job regardless of the rules, or apply the rules again.

        Raises:
            NotFound: There is no such job.
        """
        with self._database.write() as connection:
            if not connection.execute(update(jobs).where(jobs.c.id == job).values(kept=is_kept)).rowcount:
                raise NotFound(msg("queue.there_no_job", f"there is no job {job[:40]!r}"))
            bump_revision(connection, job)

    def due_times(self, job: str | None = None) -> dict[str, int]:
        """Return when ended jobs are removed, in ns, by id; jobs that no rule removes are omitted.

        Args:
            job: Id of one job; None is all jobs.
        """
        with self._database.read() as connection:
            return {due.job: due.at_ns for due in _due_jobs(connection, load_rules(connection), job)}

    def job_of_run(self, run: str) -> tuple[str | None, int | None]:
        """Return the job that created a run, and its removal time in ns; None if unknown."""
        with self._database.read() as connection:
            by_folder = select(jobs.c.id).where(jobs.c.folder == run.partition("/")[0])
            job = connection.execute(by_folder).scalar()
        return job, self.due_times(job).get(job) if job else None

    def preview(self, rule: RetentionRule) -> RemovalPreview:
        """Return what a rule would remove now."""
        now_ns = self._database.now_ns()
        if rule.days is None:
            return RemovalPreview(0, None, 0)
        with self._database.read() as connection:
            if rule.kind == "jobs":
                rules = load_rules(connection)
                rules["jobs", rule.project] = rule.days
                overdue = [
                    due.job
                    for due in _due_jobs(connection, rules)
                    if due.project == rule.project and due.at_ns < now_ns
                ]
            elif rule.kind == "uploads":
                sizes = (
                    connection.execute(select(blobs.c.size_bytes).where(unused_uploads(rule.days, now_ns)))
                    .scalars()
                    .all()
                )
                return RemovalPreview(len(sizes), sum(sizes), len(sizes))
            else:
                is_old = _older_than(rule.kind, rule.days, now_ns)
                return RemovalPreview(connection.execute(select(func.count()).where(is_old)).scalar_one(), None, 0)
        return RemovalPreview(
            len(overdue),
            self._deleter.estimate_bytes(overdue[:_MAX_MEASURED_JOBS]),
            min(len(overdue), _MAX_MEASURED_JOBS),
        )

    def apply(self) -> bool:
        """Delete overdue jobs and audit events for a few seconds; return whether more is due.

        Maintenance removes uploads together with leftovers, and notifications together with those above the limit per
        user.
        """
        now_ns, end = self._database.now_ns(), time.monotonic() + _MAX_ROUND_S
        with self._database.read() as connection:
            rules = load_rules(connection)
            overdue = [due.job for due in _due_jobs(connection, rules) if due.at_ns < now_ns]
        self._delete_old_events(rules["audit", ""], now_ns)
        tried = deleted = 0
        while tried < len(overdue) and time.monotonic() < end:
            deleted += self._delete_job(overdue[tried])
            tried += 1
        if deleted:
            _log.warning("deleted %d jobs because of retention rules", deleted)
            with self._database.write() as connection:
                _record_server_event(connection, now_ns, msg("queue.remove_old_jobs", "remove old jobs"), f"{deleted}")
        return tried < len(overdue)

    def _delete_job(self, job: str) -> bool:
        try:
            self._deleter.delete(job, self._require_overdue)
        except VisualprofError as error:  # deleted by another server, kept by a user, or a disk error
            _log.warning("the overdue job %s is not deleted: %s", job, error.error)
            return False
        return True

    def _require_overdue(self, job: Job) -> None:
        """Raise an error if a rule no longer removes the job.

        Raises:
            Conflict: The job is kept.
        """
        if self.due_times(job.id).get(job.id, 2**63) >= self._database.now_ns():
            raise Conflict(msg("queue.kept", "it is kept"))

    def _delete_old_events(self, days: int | None, now_ns: int) -> None:
        """Delete old audit events, and record the deletion. Audit events are never changed."""
        if days is not None:
            with self._database.write() as connection:
                deleted = connection.execute(delete(audit).where(_older_than("audit", days, now_ns))).rowcount
                if deleted:
                    _record_server_event(
                        connection,
                        now_ns,
                        msg("queue.remove_old_log_rows", "remove old log rows"),
                        msg("queue.older_than_days", f"{deleted}, older than {days} days"),
                    )


def _due_jobs(connection: Connection, rules: Rules, job: str | None = None) -> Iterable[_Due]:
    """Yield the jobs that rules remove, oldest first. A job follows the rule of the project that it is shared with."""
    if all(days is None for (kind, _), days in rules.items() if kind == "jobs"):
        return
    rows = connection.execute(_SHARED_FOLDERS).all()
    public_folders = {row.folder.partition("/")[0] for row in rows if row.visibility == "public"}
    project_of = {row.folder: row.project for row in rows if row.visibility == "project"}
    for row in connection.execute(_ENDED_JOBS if job is None else _ENDED_JOBS.where(jobs.c.id == job)):
        project = project_of.get(row.folder, "")
        project = project if ("jobs", project) in rules else ""
        days = rules["jobs", project]
        if days is not None and row.folder not in public_folders:
            yield _Due(row.id, project, row.ended_ns + days * DAY_NS)


def _older_than(kind: RetentionKind, days: int, now: int) -> ColumnElement[bool]:
    return (audit if kind == "audit" else notices).c.at_ns < now - days * DAY_NS


def _record_server_event(connection: Connection, now: int, action: str, subject: str) -> None:
    row = {"at_ns": now, "user": None, "email": "visualprof", "action": action, "subject": subject, "address": ""}
    connection.execute(insert(audit).values(row))
