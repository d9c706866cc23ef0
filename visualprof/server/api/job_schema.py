"""Answers of the Run page's API as types: uploads, jobs, agents, evaluation."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from visualprof.remote.protocol import Capabilities, Phase, Reason, Request, State
from visualprof.remote.queue.check.form import FieldError
from visualprof.server.api.schema import Columns


class TensorEntry(msgspec.Struct):
    """An input or output of a model, as its file declares it.

    dtype: "" and dims: null where the file does not say. A text among dims names a dimension; a null is unknown.
    """

    name: str
    dtype: str
    dims: list[int | str | None] | None


class UploadedModel(msgspec.Struct):
    """What the file of a model says. dims: named dimensions with a size to start from. backends: that load it.

    fixed_inputs: whether it says names, types and dimensions of its inputs for good; else a job may change them.
    """

    format: str
    inputs: list[TensorEntry]
    outputs: list[TensorEntry]
    dims: dict[str, int]
    backends: list[str]
    warnings: list[str]
    fixed_inputs: bool = False


class UploadedArray(msgspec.Struct):
    """What the head of an .npy file says."""

    dtype: str
    shape: list[int]


class UploadAnswer(msgspec.Struct):
    """A file that was kept; its blob is named by jobs. graph: id of the model for the Graph page, null for arrays."""

    blob: str
    name: str
    size_bytes: int
    kind: Literal["model", "array"]
    model: UploadedModel | None
    array: UploadedArray | None
    graph: str | None


class FilesAnswer(msgspec.Struct):
    """What a job was submitted with, the model first; files that are gone are left out."""

    files: list[UploadAnswer]


class CheckAnswer(msgspec.Struct):
    """Everything that is wrong with a job, empty when it would be accepted. points: how many it would measure."""

    errors: list[FieldError]
    warnings: list[FieldError]
    points: int


class JobRefused(msgspec.Struct):
    """400 of a submission: `error` is the first of `errors`."""

    error: str
    hint: str | None
    errors: list[FieldError]


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
    """A job of the list. data: names of its uploaded arrays. state: of its tasks together."""

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
    tasks: list[TaskRow]


class JobsAnswer(msgspec.Struct):
    """Newest first. revision: grows with every change. problem: why no job can be submitted here, null when one can."""

    revision: int
    jobs: list[JobRow]
    problem: str | None
    hint: str | None


class PointRow(msgspec.Struct):
    """A point that was measured, while the job still runs; the result's folder has the whole of it."""

    task: str
    spec: str
    batch: int
    qps: float
    p50_ns: int | None
    stable: bool


class JobAnswer(msgspec.Struct):
    """One job with what was submitted and the points so far. unserved: specs that no online machine can run."""

    job: JobRow
    request: Request
    points: list[PointRow]
    unserved: list[str] = []


class LogAnswer(msgspec.Struct):
    """A piece of a task's log. offset, next_offset: bytes. ended: nothing more will come. cut: bytes beyond the cap."""

    text: str
    offset: int
    next_offset: int
    size_bytes: int
    ended: bool
    cut: int


class AgentTask(msgspec.Struct):
    """What an agent is doing."""

    task: str
    job: str
    name: str
    spec: str
    phase: Phase | None
    progress: float


class AgentRow(msgspec.Struct):
    """A machine that measures. online: its last heartbeat is not older than a lease."""

    id: str
    name: str
    address: str
    public: bool
    local: bool
    online: bool
    last_seen_ns: int
    registered_ns: int
    capabilities: Capabilities
    tasks: list[AgentTask]


class AgentsAnswer(msgspec.Struct):
    """Agents by name. command: what to type on another machine, with the token in it."""

    revision: int
    agents: list[AgentRow]
    command: str
    install: str
    local_agent: bool


class AgentChange(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a browser may change of an agent; what is absent stays."""

    name: str | None = None
    public: bool | None = None


class BackendEntry(msgspec.Struct):
    """A backend that the server knows, for the Run page's choices."""

    name: str
    package: str
    formats: list[str]
    suffixes: list[str]
    precisions: list[str]
    options: dict[str, list[str]]


class MeasureEntry(msgspec.Struct):
    """A number that a draft may have about measuring: its name there, its field in a request, and what is usual."""

    name: str
    field: str
    usual: str


class BackendsAnswer(msgspec.Struct):
    """Every backend, whether an agent has it or not; types of inputs; what can be said about measuring."""

    backends: list[BackendEntry]
    dtypes: list[str] = []
    measures: list[MeasureEntry] = []


class ReportRow(msgspec.Struct):
    """A result folder below the log directories."""

    id: str
    job: str
    name: str
    model: str
    model_sha256: str
    spec: str
    backend: str
    version: str
    device: str
    agent: str
    precision: str
    state: State
    finished_ns: int
    points: int
    best_batch: int | None
    best_samples_per_s: float | None
    run: str | None


class ReportsAnswer(msgspec.Struct):
    """Every report, newest first."""

    revision: int
    reports: list[ReportRow]


class EvaluationAnswer(msgspec.Struct):
    """Reports laid over each other.

    table: one row a point: report, spec, batch, qps, samples_per_s, whole_samples_per_s, mean_ns, min_ns, max_ns,
    p50_ns, p90_ns, p95_ns, p99_ns (null where n is too small), n, first_ns, load_ns, rss_bytes, gpu_memory_bytes,
    energy_j_per_sample, stable, host_busy, pressure, involuntary_switches.
    best: per report the batch of most samples a second, of least latency, and the verdicts.
    charts: ECharts options: throughput, latency, tradeoff.
    """

    reports: list[ReportRow]
    table: Columns
    best: Columns
    verdicts: list[dict[str, Any]]
    charts: dict[str, dict[str, Any]]


class PointAnswer(msgspec.Struct):
    """One point of one report: distribution, latency over time, the device meanwhile.

    kernels, runtime: name, calls, total_ns of the profile pass, null without one.
    charts: histogram, samples, monitor, kernels, runtime. facts: of the point. profile: place of the trace.
    """

    report: ReportRow
    facts: dict[str, Any]
    kernels: Columns | None
    runtime: Columns | None
    profile: dict[str, str] | None
    monitor: dict[str, str] | None
    charts: dict[str, dict[str, Any]]
