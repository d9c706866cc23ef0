"""Jobs and their logs in the words of the API. The list is kept as bytes, and only what changed is read again."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, NamedTuple, cast

import msgspec
from msgspec import Meta

from visualprof.messages import msg
from visualprof.remote.protocol import FINAL, Phase, Reason, Request, State
from visualprof.remote.queue.check.matching import eligible_agents
from visualprof.remote.queue.store.records import Job, Task, Wait
from visualprof.remote.queue.tasks.messages import PointHead
from visualprof.server.api.job_results import JobResults, ResultRow
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobService, JobServices
from visualprof.server.responses import build_row
from visualprof.server.routes import Query
from visualprof.server.throttled_cache import ThrottledCache
from visualprof.server.visible import RevisionTracker, Visible
from visualprof.views.answers.encoding import encode
from visualprof.views.measure.evaluation import MARGIN_FIELDS, Verdict, confidence_margin

_WAITS_MAX_AGE_S, _LEAVING_MAX_AGE_S = 2.0, 60.0  # how old what a list says of that may be
_MAX_WAITS = 500  # jobs of which a list says why they wait
_SOON_NS = 7 * 24 * 3600 * 10**9


class TaskRow(msgspec.Struct):
    """One spec of a job. progress: 0..1. run: id of its result in the log directory, null until it is there.

    version: of the runtime: asked for, or the agent's own that serves the task; null before that.
    """

    id: str
    spec: str
    backend: str
    version: str | None
    device: str
    state: State
    phase: Phase | None
    progress: float
    attempt: int
    agent: str | None
    agent_name: str | None
    reason: Reason | None
    error: str | None
    hint: str | None
    warnings: list[str]
    updated_ns: int
    points: int
    run: str | None
    log_bytes: int


class JobRow(msgspec.Struct):
    """A job of the list. data: names of its uploaded arrays. state: of its tasks together.

    sample: it came with visualprof; nobody here ran it. case: name of a benchmark case, "" of models.
    """

    id: str
    name: str
    model: str
    model_blob: str
    graph: str | None
    data: list[str]
    state: State
    progress: float
    submitted_ns: int
    updated_ns: int
    sample: bool
    case: str
    tasks: list[TaskRow]


class JobsQuery(Query):
    """What the page knows."""

    since: Annotated[int, Meta(ge=0, le=2**53, description="revision of an earlier answer")] | None = None


class JobsAnswer(msgspec.Struct, kw_only=True):
    """Jobs, the newest first: all of them, or those that changed since a revision, new ones among them.

    revision: grows with every change. since: null when these are all: no revision was given, or a job is gone or seen
    by others since. problem: why no job can be submitted here, null when one can.

    waits: why jobs wait of which nothing runs, by id, of the 500 that come first. leaving: when those are removed that
    the server removes within a week, ns. Both are whole, whatever changed.
    """

    revision: int
    since: int | None
    jobs: list[JobRow]
    waits: dict[str, Wait]
    leaving: dict[str, int]
    problem: str | None
    hint: str | None


class PointRow(PointHead, kw_only=True):
    """A point that was measured, also while the job still runs; the result's folder has the whole of it.

    Margins: half of the 95 % confidence interval of the mean of its repeats, null with a single one.
    """

    task: str
    spec: str
    samples_per_s_margin: float | None = None
    p50_margin_ns: int | None = None
    p99_margin_ns: int | None = None


msgspec.json.Decoder(PointRow)  # prepares it for `convert`, while the module is imported: see `reader.trace.codec`


class JobAnswer(msgspec.Struct, kw_only=True):
    """One job with what was submitted and the points so far. unserved: specs that no online machine can run.

    results: of the tasks that have one: where and how they really ran, and what is to be known of their numbers.
    verdicts: what is to be known of them beside each other. waits: why tasks wait, by id. kept: it stays whatever the
    server's rules say. removed_ns: when they remove it, null when they do not.
    """

    job: JobRow
    request: Request
    points: list[PointRow]
    unserved: list[str]
    results: list[ResultRow]
    verdicts: list[Verdict]
    waits: dict[str, Wait]
    kept: bool
    removed_ns: int | None


class LogQuery(Query):
    """A piece of a log."""

    offset: Annotated[int, Meta(ge=-(1 << 40), lt=1 << 40, description="bytes to skip; from the end when negative")] = 0
    attempt: Annotated[int, Meta(ge=0, lt=1 << 40, description="which attempt; the last one when absent")] | None = None


class LogAnswer(msgspec.Struct):
    """A piece of a task's log. offset, next_offset: bytes. ended: nothing more will come. cut: bytes beyond the cap."""

    text: str
    offset: int
    next_offset: int
    size_bytes: int
    ended: bool
    cut: int


class _CachedJob(NamedTuple):
    """A job as it is answered, encoded. revision: of the list with which it came. idle: nothing of it runs."""

    revision: int
    submitted_ns: int
    id: str
    folder: str
    idle: bool
    row: msgspec.Raw


class JobList:
    """Every job of a queue, newest first."""

    def __init__(self, job_service: JobService, visible: Visible) -> None:
        self._job_service, self._visible = job_service, visible
        self._results = JobResults(job_service.root)
        self._lock = threading.Lock()
        self._revisions = RevisionTracker()
        self._of: JobServices | None = None
        self._waits = ThrottledCache(self._all_waits, _WAITS_MAX_AGE_S)
        self._leaving = ThrottledCache(_soon_removed, _LEAVING_MAX_AGE_S)
        self._begin()

    def _begin(self) -> None:
        """Nothing is known yet."""
        self._rows: dict[str, _CachedJob] = {}  # the latest changed last
        self._revision = self._oldest = self._shared = -1  # oldest: from then on nothing but jobs changed

    def queue(self) -> JobServices:
        """The queue.

        Raises: NotFound: nothing was ever submitted here.
        """
        return self._job_service.require(msg("server.no_job_ever_submitted", "no job was ever submitted here"))

    @contextmanager
    def refreshed(self, queue: JobServices | None) -> Generator[None]:
        """With the lists as they are now."""
        now = -1 if queue is None else queue.jobs.revision()
        with self._lock:
            if queue is not self._of:  # what was kept is gone: another one begins anew
                self._of = queue
                self._begin()
            if queue is not None and now > self._revision:
                self._refresh(queue)
            yield

    def listing(self, since: int | None = None) -> JobsAnswer:
        """The jobs that whoever asks may see, as far as they changed; polled by every open page."""
        queue, viewer = self._job_service.open_existing(), current_principal().viewer
        problem = self._job_service.problem  # which it may just have met
        with self.refreshed(queue):
            rows, revision = self._rows, self._revision
            since = since if since is not None and self._oldest <= since <= revision else None
            begin = -1 if since is None else self._revisions.start_revision(viewer, since)
            new = list(takewhile(lambda kept: kept.revision > begin, reversed(rows.values())))
        seen = self._visible.can_see
        mine = sorted((kept for kept in new if seen(kept.folder)), key=lambda kept: (-kept.submitted_ns, kept.id))
        waits, leaving = (self._waits.get(queue), self._leaving.get(queue)) if queue else ({}, {})
        told = ((id, wait) for id, wait in waits.items() if id in rows and rows[id].idle and seen(rows[id].folder))
        gone = {id: at_ns for id, at_ns in leaving.items() if id in rows and seen(rows[id].folder)}
        error, hint = problem or (None, None)
        jobs = cast("list[JobRow]", [kept.row for kept in mine])
        told_revision = self._revisions.revision(viewer, since, max(revision, 0), bool(mine))
        return JobsAnswer(
            revision=told_revision,
            since=since,
            jobs=jobs,
            waits=dict(islice(told, _MAX_WAITS)),
            leaving=gone,
            problem=error,
            hint=hint,
        )

    def get(self, name: str) -> JobAnswer:
        """A job with its points.

        Raises: NotFound.
        """
        queue = self.queue()
        job = self._visible.job(queue, name)
        points = queue.jobs.points(job)
        rows = [_point_row(task, point) for task in job.tasks for point in points[task.id]]
        online = [a for a in queue.agents.list_visible(job.owner) if a.online(self._job_service.intervals.lease_s)]
        unserved = [spec.id for spec in job.request.specs if not eligible_agents(spec, online)]
        results, verdicts = self._results.get_all(job.tasks)
        counts = {task: len(measured) for task, measured in points.items()}
        shown = self._job_rows(queue, [job], counts)[0]
        waits = {} if job.state in FINAL else self._waiting_reasons(queue, name)
        removed_ns = queue.retention.due_times(name).get(name)
        return JobAnswer(
            job=shown,
            request=job.request,
            points=rows,
            unserved=unserved,
            results=results,
            verdicts=verdicts,
            waits=waits,
            kept=job.kept,
            removed_ns=removed_ns,
        )

    def keep(self, name: str, kept: bool) -> JobAnswer:
        """A job stays, whatever the server's rules say, or does not any more.

        Raises: NotFound.
        """
        queue = self.queue()
        queue.retention.set_kept(name, kept)
        self._leaving.invalidate()
        return self.get(name)

    def _waiting_reasons(self, queue: JobServices, job: str = "") -> dict[str, Wait]:
        """Why tasks wait, of a job or of all."""
        from visualprof.remote.queue.tasks.wait_reasons import wait_reasons  # with the libraries of the database

        return wait_reasons(queue.database, self._job_service.intervals.lease_s, job)

    def _all_waits(self, queue: JobServices) -> dict[str, Wait]:
        """Why jobs wait: that which is the first of its tasks to be taken."""
        by_job: dict[str, Wait] = {}
        for task, wait in self._waiting_reasons(queue).items():
            by_job.setdefault(task.rpartition("-")[0], wait)
        return by_job

    def _refresh(self, queue: JobServices) -> None:
        self._revision, shared, jobs, count = queue.jobs.changes_since(self._revision)
        for job, shown in zip(jobs, self._job_rows(queue, jobs, queue.jobs.point_counts(jobs)), strict=True):
            self._rows.pop(job.id, None)
            kept = _CachedJob(
                self._revision,
                job.submitted_ns,
                job.id,
                job.folder,
                shown.state != "running",
                msgspec.Raw(encode(shown)),
            )
            self._rows[job.id] = kept
        if len(self._rows) != count or shared != self._shared:
            there = queue.jobs.ids()
            self._rows = {name: kept for name, kept in self._rows.items() if name in there}
            self._oldest, self._shared = self._revision, shared

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


def _published_log(queue: JobServices, task: Task, attempt: int) -> Path | None:
    """The log in a run of the bucket, where this server has no other."""
    if queue.mirror is None or task.run is None or attempt != task.attempt or queue.logs.path(task, attempt).is_file():
        return None
    return queue.mirror.log_path(task.run)


def _soon_removed(queue: JobServices) -> dict[str, int]:
    soon = queue.database.now_ns() + _SOON_NS
    return {job: at_ns for job, at_ns in queue.retention.due_times().items() if at_ns < soon}


def _shown_files(job: Job) -> list[str]:
    return [job.request.model.blob, *(source.blob for source in job.request.inputs if source.fill == "file")]


def _point_row(task: Task, point: dict[str, object]) -> PointRow:
    shown = msgspec.convert({**point, "task": task.id, "spec": task.spec.id}, PointRow)
    margins = {name: confidence_margin(shown.repeats or (), of) for name, of in MARGIN_FIELDS.items()}
    return msgspec.structs.replace(shown, **margins)


def read_log_part(queue: JobServices, name: str, query: LogQuery) -> LogAnswer:
    """What the request asks for: bytes from `offset`, or the last ones when it is negative.

    Raises: NotFound. NotReady: it is being fetched. StoreUnavailable.
    """
    task = queue.jobs.get_by_task(name, current_principal().viewer).task(name)
    attempt = task.attempt if query.attempt is None else query.attempt
    data, begin, size = queue.logs.read(task, attempt, query.offset, published=_published_log(queue, task, attempt))
    ended = attempt < task.attempt or task.state in FINAL
    lead = _continuation_bytes(data) if begin else 0
    more = begin + len(data) < size or not ended
    data = data[lead : _text_end(data) if more else None]
    begin += lead
    cut = task.log_cut if attempt == task.attempt else 0
    done = ended and begin + len(data) >= size
    return LogAnswer(data.decode("utf-8", "replace"), begin, begin + len(data), size, done, cut)


def _continuation_bytes(data: bytes) -> int:
    """Bytes that belong to a character before."""
    return next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))


def _text_end(data: bytes) -> int:
    """Where the last whole character of UTF-8 ends; a cut one comes with the next piece."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the first of a character
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)
