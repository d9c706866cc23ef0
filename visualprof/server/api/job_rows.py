"""Jobs as the API returns them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.remote.protocol import Phase, Reason, Request, State
from visualprof.remote.queue.store.records import Wait
from visualprof.remote.queue.tasks.messages import PointHead
from visualprof.server.api.job_results import ResultRow
from visualprof.server.routes import Query
from visualprof.views.measure.reports.verdicts import Verdict


class TaskRow(msgspec.Struct):
    """One run configuration of a job.

    Attributes:
        id: Id of the task.
        spec: Id of the run configuration.
        backend: Name of the backend.
        version: Requested version of the runtime, or the version that the agent uses. Null until it is known.
        device: Device of the task.
        state: State of the task.
        phase: Phase of a running task.
        progress: Progress, 0..1.
        attempt: Number of the attempt.
        agent: Id of the agent, or null while the task waits.
        agent_name: Name of the agent's machine.
        reason: Kind of failure.
        error: Error message of a failure.
        hint: What to do about the failure.
        warnings: Warnings of the task.
        updated_ns: Time of the last change.
        points: Number of measured points.
        run: Id of the result in the log directory, or null until there is a result.
        log_bytes: Size of the log.
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
    """A job in the list.

    Attributes:
        id: Id of the job.
        name: Name of the job.
        model: Name of the model.
        model_blob: sha256 of the model file.
        graph: Id of the model on the Graph page, or null if it has no graph.
        data: Names of the uploaded arrays.
        state: Combined state of the tasks.
        progress: Progress, 0..1.
        submitted_ns: Time of the submission.
        updated_ns: Time of the last change.
        sample: Whether the job came with visualprof and did not run here.
        case: Name of the benchmark case, "" for models.
        tasks: The tasks.
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
    """The revision that the client already has."""

    since: Annotated[int, Meta(ge=0, le=2**53, description="revision of an earlier answer")] | None = None


class JobsAnswer(msgspec.Struct, kw_only=True):
    """Jobs, newest first: all of them, or the new and changed jobs since a revision.

    Attributes:
        revision: Number that increases with every change.
        since: Revision to which the changes apply. Null if `jobs` holds all jobs: no revision was given, or a job was
            deleted or shared differently since then.
        jobs: The jobs.
        waits: Why jobs wait of which no task runs, by job id. At most 500 jobs, always complete.
        leaving: Deletion time in ns of the jobs that the retention rules delete within a week. Always complete.
        problem: Why jobs cannot be submitted here, or null if they can.
        hint: What to do about the problem.
    """

    revision: int
    since: int | None
    jobs: list[JobRow]
    waits: dict[str, Wait]
    leaving: dict[str, int]
    problem: str | None
    hint: str | None


class PointRow(PointHead, kw_only=True):
    """A measured point. The running job already returns it, and the result folder has all of its values.

    A margin is half of the 95 % confidence interval of the mean over the repeats, null with a single repeat.
    """

    task: str
    spec: str
    samples_per_s_margin: float | None = None
    p50_margin_ns: int | None = None
    p99_margin_ns: int | None = None


class JobAnswer(msgspec.Struct, kw_only=True):
    """One job with its request and the points measured so far.

    Attributes:
        job: The job.
        request: The submitted request.
        points: Points measured so far.
        unserved: Ids of run configurations that no online machine can run.
        results: Finished results: where and how they ran, and what to know about their numbers.
        verdicts: What to know about the results compared with each other.
        waits: Why tasks wait, by task id.
        kept: Whether the retention rules skip this job.
        removed_ns: Time at which the retention rules delete the job, or null if they do not.
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
