"""The job list, cached as JSON: only changed jobs are read again."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import NamedTuple, cast

import msgspec

from visualprof.messages import msg
from visualprof.remote.protocol import FINAL
from visualprof.remote.queue.check.matching import eligible_agents
from visualprof.remote.queue.store.records import Job, Task, Wait
from visualprof.server.api.job_results import JobResults
from visualprof.server.api.job_rows import JobAnswer, JobRow, JobsAnswer, PointRow, TaskRow
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobService, JobServices
from visualprof.server.responses import build_row
from visualprof.server.throttled_cache import ThrottledCache
from visualprof.server.visible import RevisionTracker, Visible
from visualprof.views.answers.encoding import encode
from visualprof.views.measure.reports.evaluation import MARGIN_FIELDS, confidence_margin

_WAITS_MAX_AGE_S, _LEAVING_MAX_AGE_S = 2.0, 60.0  # maximum age of cached values
msgspec.json.Decoder(PointRow)  # prepares `convert` at import time, see `reader.trace.codec`
_MAX_WAITS = 500  # jobs whose reason for waiting a list contains
_SOON_NS = 7 * 24 * 3600 * 10**9


class _CachedJob(NamedTuple):
    """An encoded job row.

    Attributes:
        revision: Revision of the list that added the row.
        submitted_ns: Time of the submission.
        id: Id of the job.
        folder: Result folder of the job.
        idle: Whether no task of the job is running.
        row: The encoded `JobRow`.
    """

    revision: int
    submitted_ns: int
    id: str
    folder: str
    idle: bool
    row: msgspec.Raw


class JobList:
    """The jobs of a queue, newest first."""

    def __init__(self, job_service: JobService, visible: Visible) -> None:
        self._job_service, self._visible = job_service, visible
        self._results = JobResults(job_service.root)
        self._lock = threading.Lock()
        self._revisions = RevisionTracker()
        self._current_queue: JobServices | None = None
        self._waits = ThrottledCache(self._all_waits, _WAITS_MAX_AGE_S)
        self._leaving = ThrottledCache(_soon_removed, _LEAVING_MAX_AGE_S)
        self._reset()

    def _reset(self) -> None:
        """Forget the cached jobs."""
        self._rows: dict[str, _CachedJob] = {}  # the last changed job is last
        # Changes since `_oldest` are changes of jobs only: no job was deleted or shared since.
        self._revision = self._oldest = self._shared_revision = -1

    def queue(self) -> JobServices:
        """Return the queue.

        Raises:
            NotFound: No job was ever submitted here.
        """
        return self._job_service.require(msg("server.no_job_ever_submitted", "no job was ever submitted here"))

    @contextmanager
    def refreshed(self, queue: JobServices | None) -> Generator[None]:
        """Hold the lock on the up-to-date list."""
        revision = -1 if queue is None else queue.jobs.revision()
        with self._lock:
            if queue is not self._current_queue:  # the database was deleted or replaced
                self._current_queue = queue
                self._reset()
            if queue is not None and revision > self._revision:
                self._refresh(queue)
            yield

    def listing(self, since: int | None = None) -> JobsAnswer:
        """Return the visible jobs, or the changed ones. Every open page polls this list."""
        queue, viewer = self._job_service.open_existing(), current_principal().viewer
        problem = self._job_service.problem  # opening the queue may have set it
        with self.refreshed(queue):
            rows, revision = self._rows, self._revision
            since = since if since is not None and self._oldest <= since <= revision else None
            start = -1 if since is None else self._revisions.start_revision(viewer, since)
            changed = list(takewhile(lambda job: job.revision > start, reversed(rows.values())))
        can_see = self._visible.can_see
        visible = sorted((job for job in changed if can_see(job.folder)), key=lambda job: (-job.submitted_ns, job.id))
        waits, leaving = (self._waits.get(queue), self._leaving.get(queue)) if queue else ({}, {})
        visible_waits = (
            (id, wait) for id, wait in waits.items() if id in rows and rows[id].idle and can_see(rows[id].folder)
        )
        visible_leaving = {id: at_ns for id, at_ns in leaving.items() if id in rows and can_see(rows[id].folder)}
        error, hint = problem or (None, None)
        jobs = cast("list[JobRow]", [job.row for job in visible])
        viewer_revision = self._revisions.revision(viewer, since, max(revision, 0), bool(visible))
        return JobsAnswer(
            revision=viewer_revision,
            since=since,
            jobs=jobs,
            waits=dict(islice(visible_waits, _MAX_WAITS)),
            leaving=visible_leaving,
            problem=error,
            hint=hint,
        )

    def get(self, name: str) -> JobAnswer:
        """Return a job with its points.

        Raises:
            NotFound: There is no such job.
        """
        queue = self.queue()
        job = self._visible.job(queue, name)
        points = queue.jobs.points(job)
        rows = [_point_row(task, point) for task in job.tasks for point in points[task.id]]
        online = [a for a in queue.agents.list_visible(job.owner) if a.online(self._job_service.intervals.lease_s)]
        unserved = [spec.id for spec in job.request.specs if not eligible_agents(spec, online)]
        results, verdicts = self._results.get_all(job.tasks)
        counts = {task: len(measured) for task, measured in points.items()}
        row = self._job_rows(queue, [job], counts)[0]
        waits = {} if job.state in FINAL else self._waiting_reasons(queue, name)
        removed_ns = queue.retention.due_times(name).get(name)
        return JobAnswer(
            job=row,
            request=job.request,
            points=rows,
            unserved=unserved,
            results=results,
            verdicts=verdicts,
            waits=waits,
            kept=job.kept,
            removed_ns=removed_ns,
        )

    def keep(self, name: str, is_kept: bool) -> JobAnswer:
        """Set whether the retention rules skip a job.

        Raises:
            NotFound: There is no such job.
        """
        queue = self.queue()
        queue.retention.set_kept(name, is_kept)
        self._leaving.invalidate()
        return self.get(name)

    def _waiting_reasons(self, queue: JobServices, job: str = "") -> dict[str, Wait]:
        """Return why tasks wait, for one job or all jobs."""
        from visualprof.remote.queue.tasks.wait_reasons import wait_reasons  # imports SQLAlchemy

        return wait_reasons(queue.database, self._job_service.intervals.lease_s, job)

    def _all_waits(self, queue: JobServices) -> dict[str, Wait]:
        """Return why jobs wait: the reason of the task that is leased first."""
        by_job: dict[str, Wait] = {}
        for task, wait in self._waiting_reasons(queue).items():
            by_job.setdefault(task.rpartition("-")[0], wait)
        return by_job

    def _refresh(self, queue: JobServices) -> None:
        self._revision, shared, jobs, count = queue.jobs.changes_since(self._revision)
        for job, row in zip(jobs, self._job_rows(queue, jobs, queue.jobs.point_counts(jobs)), strict=True):
            self._rows.pop(job.id, None)
            cached = _CachedJob(
                self._revision,
                job.submitted_ns,
                job.id,
                job.folder,
                row.state != "running",
                msgspec.Raw(encode(row)),
            )
            self._rows[job.id] = cached
        if len(self._rows) != count or shared != self._shared_revision:
            ids = queue.jobs.ids()
            self._rows = {name: cached_job for name, cached_job in self._rows.items() if name in ids}
            self._oldest, self._shared_revision = self._revision, shared

    def _job_rows(self, queue: JobServices, jobs: list[Job], counts: dict[str, int]) -> list[JobRow]:
        files = queue.blobs.names_and_graphs({(blob, job.owner) for job in jobs for blob in _shown_files(job)})
        names = queue.agents.names({task.agent for job in jobs for task in job.tasks if task.agent})
        return [self._row(job, files, names, counts) for job in jobs]

    def _row(
        self,
        job: Job,
        files: dict[tuple[str, str | None], tuple[str, str | None]],
        agents: dict[str, str],
        counts: dict[str, int],
    ) -> JobRow:
        request = job.request
        arrays = [(source.blob, job.owner) for source in request.inputs if source.fill == "file"]
        data = [files[array][0] for array in arrays if array in files]
        return build_row(
            JobRow,
            job,
            name=request.name,
            sample=request.sample,
            case=request.case.name,
            model=request.model.name,
            model_blob=request.model.blob,
            graph=files.get((request.model.blob, job.owner), ("", None))[1],
            data=data,
            progress=round(job.progress, 4),
            tasks=[self._task(task, agents, counts.get(task.id, 0)) for task in job.tasks],
        )

    def _task(self, task: Task, agents: dict[str, str], points: int) -> TaskRow:
        agent = None if task.state == "waiting" else task.agent
        prefix = self._job_service.root.prefix
        return build_row(
            TaskRow,
            task,
            spec=task.spec.id,
            backend=task.spec.backend,
            version=task.on_version or task.spec.version or None,
            device=task.on_device or task.spec.device,
            progress=round(task.progress, 4),
            agent=agent,
            agent_name=agents.get(agent) if agent else None,
            points=points,
            run=(f"{prefix}/{task.run}" if prefix else task.run) if task.run else None,
        )


def _soon_removed(queue: JobServices) -> dict[str, int]:
    soon = queue.database.now_ns() + _SOON_NS
    return {job: at_ns for job, at_ns in queue.retention.due_times().items() if at_ns < soon}


def _shown_files(job: Job) -> list[str]:
    return [job.request.model.blob, *(source.blob for source in job.request.inputs if source.fill == "file")]


def _point_row(task: Task, point: dict[str, object]) -> PointRow:
    row = msgspec.convert({**point, "task": task.id, "spec": task.spec.id}, PointRow)
    margins = {name: confidence_margin(row.repeats or (), field) for name, field in MARGIN_FIELDS.items()}
    return msgspec.structs.replace(row, **margins)
