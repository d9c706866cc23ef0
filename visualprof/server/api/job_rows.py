"""Jobs and their logs in the words of the API. The list is kept as bytes, and only what changed is read again."""

from __future__ import annotations

import threading
from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.remote.protocol import FINAL, Phase, Reason, Request, State
from visualprof.remote.queue.check.matching import takers
from visualprof.remote.queue.store.records import Agent, Job, Task
from visualprof.remote.queue.tasks.told import PointHead
from visualprof.server.answers import row
from visualprof.server.api.job_results import ResultRow, Results
from visualprof.server.identity import who
from visualprof.server.remote_service import Queue, Remote
from visualprof.server.routes import Query
from visualprof.server.visible import Visible
from visualprof.views.answers.encoding import encode
from visualprof.views.measure.evaluation import MARGINS, Verdict, margin

_KEPT = 64  # lists of as many people


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

    sample: it came with visualprof; nobody here ran it.
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
    tasks: list[TaskRow]


class JobsAnswer(msgspec.Struct):
    """Newest first. revision: grows with every change. problem: why no job can be submitted here, null when one can."""

    revision: int
    jobs: list[JobRow]
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


class JobAnswer(msgspec.Struct):
    """One job with what was submitted and the points so far. unserved: specs that no online machine can run.

    results: of the tasks that have one: where and how they really ran, and what is to be known of their numbers.
    verdicts: what is to be known of them beside each other.
    """

    job: JobRow
    request: Request
    points: list[PointRow]
    unserved: list[str]
    results: list[ResultRow]
    verdicts: list[Verdict]


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


class JobList:
    """Every job of a queue, newest first."""

    def __init__(self, remote: Remote, visible: Visible) -> None:
        self._remote, self._visible = remote, visible
        self._results = Results(remote.root)
        self._lock = threading.Lock()
        self._rows: dict[str, JobRow] = {}
        self._revision = -1
        self._of: Queue | None = None
        self._kept: dict[str | None, tuple[object, bytes]] = {}  # by viewer

    def queue(self) -> Queue:
        """The queue.

        Raises: NotFound: nothing was ever submitted here.
        """
        return self._remote.needed("no job was ever submitted here")

    def listing(self) -> bytes:
        """The list as JSON; polled by every open page, so it is encoded once for each change."""
        queue = self._remote.existing()
        problem = self._remote.problem  # which it may just have met
        with self._lock:
            if queue is not self._of:  # what was kept is gone: another one begins anew
                self._of, self._rows, self._revision = queue, {}, -1
            if queue is not None and queue.jobs.revision() != self._revision:
                self._refresh(queue)
            viewer, shared = self._visible.version
            key = (self._revision, problem, viewer, shared)
            if viewer not in self._kept or self._kept[viewer][0] != key:
                mine = self._rows.keys() if viewer is None or queue is None else queue.jobs.visible(viewer)
                rows = [shown for name, shown in self._rows.items() if name in mine]
                rows.sort(key=lambda shown: (-shown.submitted_ns, shown.id))
                error, hint = problem or (None, None)
                if len(self._kept) >= _KEPT:
                    self._kept.clear()
                self._kept[viewer] = key, encode(JobsAnswer(max(self._revision, 0), rows, error, hint))
            return self._kept[viewer][1]

    def one(self, name: str) -> JobAnswer:
        """A job with its points.

        Raises: NotFound.
        """
        queue = self.queue()
        job = self._visible.job(queue, name)
        points = queue.jobs.points(job)
        rows = [_point_row(task, point) for task in job.tasks for point in points[task.id]]
        agents = queue.agents.all()
        online = [a for a in queue.agents.all(job.owner) if a.online(self._remote.intervals.lease_s)]
        unserved = [spec.id for spec in job.request.specs if not takers(spec, online)]
        results, verdicts = self._results.of_all(job.tasks)
        counts = {task: len(measured) for task, measured in points.items()}
        shown = self._shown(queue, [job], agents, counts)[0]
        return JobAnswer(shown, job.request, rows, unserved, results, verdicts)

    def _refresh(self, queue: Queue) -> None:
        self._revision, changed, there = queue.jobs.since(self._revision)
        agents, counts = queue.agents.all(), queue.jobs.counts(changed)
        self._rows |= {shown.id: shown for shown in self._shown(queue, changed, agents, counts)}
        self._rows = {name: shown for name, shown in self._rows.items() if name in there}

    def _shown(self, queue: Queue, jobs: list[Job], agents: list[Agent], counts: dict[str, int]) -> list[JobRow]:
        files = queue.blobs.facts({(blob, job.owner) for job in jobs for blob in _shown_files(job)})
        names = {agent.id: agent.name for agent in agents}
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
        return row(
            JobRow,
            job,
            name=request.name,
            sample=request.sample,
            model=request.model.name,
            model_blob=request.model.blob,
            graph=files.get((request.model.blob, job.owner), ("", None))[1],
            data=data,
            progress=round(job.progress, 4),
            tasks=[self._task(task, agents, counts.get(task.id, 0)) for task in job.tasks],
        )

    def _task(self, task: Task, agents: dict[str, str], points: int) -> TaskRow:
        agent = None if task.state == "waiting" else task.agent
        prefix = self._remote.root.prefix
        return row(
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


def _shown_files(job: Job) -> list[str]:
    return [job.request.model.blob, *(source.blob for source in job.request.inputs if source.fill == "file")]


def _point_row(task: Task, point: dict[str, object]) -> PointRow:
    shown = msgspec.convert({**point, "task": task.id, "spec": task.spec.id}, PointRow)
    margins = {name: margin(shown.repeats or (), of) for name, of in MARGINS.items()}
    return msgspec.structs.replace(shown, **margins)


def piece(queue: Queue, name: str, query: LogQuery) -> LogAnswer:
    """What the request asks for: bytes from `offset`, or the last ones when it is negative.

    Raises: NotFound.
    """
    task = queue.jobs.of_task(name, who().viewer).task(name)
    attempt = task.attempt if query.attempt is None else query.attempt
    data, begin, size = queue.logs.read(task, attempt, query.offset)
    ended = attempt < task.attempt or task.state in FINAL
    lead = _lead(data) if begin else 0
    more = begin + len(data) < size or not ended
    data = data[lead : _end_of_text(data) if more else None]
    begin += lead
    cut = task.log_cut if attempt == task.attempt else 0
    done = ended and begin + len(data) >= size
    return LogAnswer(data.decode("utf-8", "replace"), begin, begin + len(data), size, done, cut)


def _lead(data: bytes) -> int:
    """Bytes that belong to a character before."""
    return next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))


def _end_of_text(data: bytes) -> int:
    """Where the last whole character of UTF-8 ends; a cut one comes with the next piece."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the first of a character
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)
