"""What is removed when: the rules applied, and what they are going to remove."""

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

_LEAST_DAYS: Mapping[RetentionKind, int] = {"audit": 30}  # nobody does away with the log of what they just did
_MEASURED = 50  # jobs whose bytes are counted at a time
_ROUND_S = 5  # of removing; the upkeep has other things to do


class RecordEvent(Protocol):
    """Notes who changes something, in the transaction that does it."""

    def __call__(self, connection: Connection, *, subject: str) -> object:
        """subject: what is changed."""


def _nobody(connection: Connection, *, subject: str) -> None:
    """Nobody wants to know."""


_unfinished = func.sum(case((tasks.c.state.in_(FINAL), 0), else_=1))
_ENDED: Any = (  # jobs that may be removed, with their ends
    select(jobs.c.id, jobs.c.folder, func.max(tasks.c.updated_ns).label("ended_ns"))
    .join(tasks, tasks.c.job == jobs.c.id)
    .where(~jobs.c.kept)
    .group_by(jobs.c.id, jobs.c.folder)
    .having(_unfinished == 0)
    .order_by(func.max(tasks.c.updated_ns))
)
_SHARED = select(runs.c.folder, runs.c.visibility, runs.c.project).where(runs.c.visibility != "private")
Rules = Mapping[tuple[RetentionKind, str], int | None]


@dataclass(frozen=True)
class RemovalPreview:
    """What a rule removes. count: things. size_bytes: of `measured` of them; None where they have none to speak of."""

    count: int
    size_bytes: int | None
    measured: int


@dataclass(frozen=True)
class _Due:
    job: str
    project: str  # whose rule removes it
    at_ns: int


class Retention:
    """The rules, and what they remove. Jobs that are shared with everybody stay, and those that somebody keeps."""

    def __init__(self, database: Database, removal: JobDeleter) -> None:
        self._database = database
        self._removal = removal

    def rules(self) -> list[RetentionRule]:
        """All of them."""
        with self._database.read() as connection:
            return [RetentionRule(kind, project, days) for (kind, project), days in load_rules(connection).items()]

    def change(self, rule: RetentionRule, noted: RecordEvent = _nobody) -> None:
        """Set a rule.

        Raises: BadParameter: there is no such one. NotFound: there is no such project.
        """
        if rule.project and rule.kind != "jobs":
            raise BadParameter(msg("queue.project_only_jobs_belong", "project: only jobs belong to one"))
        if rule.days is not None and rule.days < _LEAST_DAYS.get(rule.kind, 1):
            raise BadParameter(
                msg("queue.days_least_never", f"days: {_LEAST_DAYS.get(rule.kind, 1)} at least, or never")
            )
        with self._database.write() as connection:
            there = select(projects.c.id).where(projects.c.id == rule.project)
            if rule.project and connection.execute(there).first() is None:
                raise NotFound(msg("queue.there_no_project", f"there is no project {rule.project[:40]!r}"))
            days = "never" if rule.days is None else msg("queue.after_days", f"after {rule.days} days")
            noted(connection, subject=f"{rule.kind} {rule.project}".rstrip() + f": {days}")
            set_rule(connection, rule)

    def drop(self, project: str, noted: RecordEvent = _nobody) -> None:
        """Take the rule of a project's jobs away."""
        with self._database.write() as connection:
            noted(connection, subject=msg("queue.jobs_all_others", f"jobs {project[:40]}: as all others"))
            delete_rule(connection, "jobs", project)

    def set_kept(self, job: str, kept: bool) -> None:
        """A job stays, whatever the rules say, or follows them again.

        Raises: NotFound.
        """
        with self._database.write() as connection:
            if not connection.execute(update(jobs).where(jobs.c.id == job).values(kept=kept)).rowcount:
                raise NotFound(msg("queue.there_no_job", f"there is no job {job[:40]!r}"))
            bump_revision(connection, job)

    def due_times(self, job: str | None = None) -> dict[str, int]:
        """When jobs that have ended are removed, ns; without those that stay. job: only this one."""
        with self._database.read() as connection:
            return {due.job: due.at_ns for due in _due(connection, load_rules(connection), job)}

    def job_of_run(self, run: str) -> tuple[str | None, int | None]:
        """The job that made a run, and when that is removed, ns; None where none did, or no rule does."""
        with self._database.read() as connection:
            made = select(jobs.c.id).where(jobs.c.folder == run.partition("/")[0])
            job = connection.execute(made).scalar()
        return job, self.due_times(job).get(job) if job else None

    def preview(self, rule: RetentionRule) -> RemovalPreview:
        """What a rule would remove now."""
        now = self._database.now_ns()
        if rule.days is None:
            return RemovalPreview(0, None, 0)
        with self._database.read() as connection:
            if rule.kind == "jobs":
                rules = load_rules(connection)
                rules["jobs", rule.project] = rule.days
                old = [due.job for due in _due(connection, rules) if due.project == rule.project and due.at_ns < now]
            elif rule.kind == "uploads":
                sizes = (
                    connection.execute(select(blobs.c.size_bytes).where(unused_uploads(rule.days, now))).scalars().all()
                )
                return RemovalPreview(len(sizes), sum(sizes), len(sizes))
            else:
                aged = _aged(rule.kind, rule.days, now)
                return RemovalPreview(connection.execute(select(func.count()).where(aged)).scalar_one(), None, 0)
        return RemovalPreview(len(old), self._removal.estimate_bytes(old[:_MEASURED]), min(len(old), _MEASURED))

    def apply(self) -> bool:
        """Removes jobs and rows of the log that are due, for some seconds; is there more?

        Uploads go with the other files that nobody needs, and notices with those that are too many.
        """
        now, end = self._database.now_ns(), time.monotonic() + _ROUND_S
        with self._database.read() as connection:
            rules = load_rules(connection)
            old = [due.job for due in _due(connection, rules) if due.at_ns < now]
        self._shorten_log(rules["audit", ""], now)
        tried = gone = 0
        while tried < len(old) and time.monotonic() < end:
            gone += self._removes_old(old[tried])
            tried += 1
        if gone:
            _log.warning("removed %d jobs by the rules of retention", gone)
            with self._database.write() as connection:
                _note(connection, now, msg("queue.remove_old_jobs", "remove old jobs"), f"{gone}")
        return tried < len(old)

    def _removes_old(self, job: str) -> bool:
        try:
            self._removal.delete(job, self._refuse_kept)
        except VisualprofError as error:  # somebody else was faster, keeps it, or the disk does not let it go
            _log.warning("job %s is not removed, though it is old: %s", job, error.error)
            return False
        return True

    def _refuse_kept(self, job: Job) -> None:
        """Raises: Conflict: it is not to be removed any more."""
        if self.due_times(job.id).get(job.id, 2**63) >= self._database.now_ns():
            raise Conflict(msg("queue.kept", "it is kept"))

    def _shorten_log(self, days: int | None, now: int) -> None:
        """Rows of the log are never changed; that old ones go is one of them."""
        if days is not None:
            with self._database.write() as connection:
                gone = connection.execute(delete(audit).where(_aged("audit", days, now))).rowcount
                if gone:
                    _note(
                        connection,
                        now,
                        msg("queue.remove_old_log_rows", "remove old log rows"),
                        msg("queue.older_than_days", f"{gone}, older than {days} days"),
                    )


def _due(connection: Connection, rules: Rules, job: str | None = None) -> Iterable[_Due]:
    """What rules remove when, the oldest first. A job follows the rule of the project that it is shared with."""
    if all(days is None for (kind, _), days in rules.items() if kind == "jobs"):
        return
    shared = connection.execute(_SHARED).all()
    public = {row.folder.partition("/")[0] for row in shared if row.visibility == "public"}
    project_of = {row.folder: row.project for row in shared if row.visibility == "project"}
    for row in connection.execute(_ENDED if job is None else _ENDED.where(jobs.c.id == job)):
        project = project_of.get(row.folder, "")
        project = project if ("jobs", project) in rules else ""
        days = rules["jobs", project]
        if days is not None and row.folder not in public:
            yield _Due(row.id, project, row.ended_ns + days * DAY_NS)


def _aged(kind: RetentionKind, days: int, now: int) -> ColumnElement[bool]:
    return (audit if kind == "audit" else notices).c.at_ns < now - days * DAY_NS


def _note(connection: Connection, now: int, action: str, subject: str) -> None:
    row = {"at_ns": now, "user": None, "email": "visualprof", "action": action, "subject": subject, "address": ""}
    connection.execute(insert(audit).values(row))
