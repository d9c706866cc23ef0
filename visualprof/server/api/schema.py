"""The answers of the API as types; `server.openapi` describes them to others."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# A cell holds what JSON can: Any is "anything" in the exported schema.
Columns = dict[str, list[Any]]
State = Literal["waiting", "parsing", "ready", "growing", "failed"]


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """What went wrong and what to do; `state` and `progress` while a file is being parsed."""

    error: str
    hint: str | None = None
    state: State | None = None
    progress: float | None = None


class Status(msgspec.Struct):
    """The server itself."""

    version: str
    language: str | None
    read_only: bool
    logdirs: list[str]
    watching: Literal["events", "polling"]


class Span(msgspec.Struct):
    """One file. Unknown before it is parsed: null, or an empty list."""

    id: str
    name: str
    file: str
    size_bytes: int
    modified_ns: int
    state: State
    progress: float
    format: str | None
    framework: str | None
    events: int | None
    duration_ns: int | None
    steps: list[str]
    views: list[str]
    warnings: list[str]
    error: str | None
    hint: str | None


class Worker(msgspec.Struct):
    """One process of a run."""

    id: str
    name: str
    rank: int | None
    spans: list[Span]


class Run(msgspec.Struct):
    """What ran together."""

    id: str
    name: str
    frameworks: list[str]
    modified_ns: int
    workers: list[Worker]


class SkippedFile(msgspec.Struct):
    """A file that looks like a profile and is none, or cannot be read."""

    file: str
    error: str
    hint: str | None


class RunsAnswer(msgspec.Struct):
    """Everything in the log directories."""

    revision: int
    runs: list[Run]
    skipped: list[SkippedFile]


class Parameter(msgspec.Struct):
    """A parameter of a view; `choices` when only these values are allowed."""

    name: str
    type: Literal["text", "integer", "number", "boolean", "choice"]
    default: Any
    choices: list[str] | None


class ViewInfo(msgspec.Struct):
    """A view and what it can be asked. charts: has it any?"""

    name: str
    parameters: list[Parameter]
    charts: bool


class ViewsAnswer(msgspec.Struct):
    """Every view, in the order of the tabs."""

    views: list[ViewInfo]


class Table(msgspec.Struct, omit_defaults=True):
    """Columns of equal length.

    total_rows: of the whole table. matching_rows: of those found. offset: of the first one shown.
    """

    columns: Columns
    total_rows: int
    matching_rows: int | None = None
    offset: int | None = None


class ChartsAnswer(msgspec.Struct):
    """ECharts options by the chart's name."""

    charts: dict[str, dict[str, Any]]


class StepTimes(msgspec.Struct):
    """Where the time of an average step went."""

    name: str
    total_ns: float
    kernel_ns: float
    memcpy_ns: float
    memset_ns: float
    communication_ns: float
    runtime_ns: float
    dataloader_ns: float
    cpu_ns: float
    other_ns: float


class StepColumns(msgspec.Struct):
    """The same for every step, one list per key."""

    name: list[str]
    total_ns: list[int]
    kernel_ns: list[int]
    memcpy_ns: list[int]
    memset_ns: list[int]
    communication_ns: list[int]
    runtime_ns: list[int]
    dataloader_ns: list[int]
    cpu_ns: list[int]
    other_ns: list[int]


class StageSteps(msgspec.Struct):
    """Host time of the stages in every step, one list per key."""

    name: list[str]
    dataloader_ns: list[int]
    forward_ns: list[int]
    backward_ns: list[int]
    optimizer_ns: list[int]
    other_ns: list[int]


class Device(msgspec.Struct):
    """A device; ratios are 0..1."""

    id: int
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    utilization: float | None
    sm_efficiency: float | None
    occupancy: float | None
    tensor_core_ratio: float | None
    kernel_ns: int | None


class Finding(msgspec.Struct):
    """Something worth changing; its text is in the page's locales under `finding.ID`."""

    id: str
    severity: Literal["high", "medium", "low"]
    gain_ns_per_step: float | None
    evidence: dict[str, float | str | None]
    link: str | None


class Environment(msgspec.Struct):
    """What the file says about where it was taken."""

    framework: str
    format: str
    producer: str | None
    host: str | None
    rank: int | None
    world_size: int | None
    device_type: str
    device_work: Literal["kernel", "operator"]
    events: int
    duration_ns: int
    steps: int
    stages_derived: list[str]
    process_cpu_ratio: float | None
    system_cpu_ratio: float | None


class OverviewAnswer(msgspec.Struct):
    """The whole file at a glance."""

    steps: StepColumns
    average_step: StepTimes
    devices: list[Device]
    stages: Table
    stage_steps: StageSteps
    events: Table
    annotations: Table
    findings: list[Finding]
    environment: Environment


class Unlinked(msgspec.Struct):
    """Kernels that no operator owns."""

    kernels: int
    total_ns: int


class OperatorAnswer(Table, kw_only=True):
    """Operators."""

    unlinked: Unlinked | None = None


class TensorCore(msgspec.Struct):
    """Kernel time with and without tensor cores."""

    used_ns: int
    unused_ns: int


class KernelAnswer(Table, kw_only=True):
    """Kernels. kind: `operator` for frameworks that record only the device time of an operator."""

    kind: Literal["kernel", "operator"] = "kernel"
    memory_operations: Table | None = None
    tensor_core: TensorCore | None = None


class MemoryDevice(msgspec.Struct):
    """Memory of one device; id -1 is the host. relative: counted from the profile's start, the file has no totals."""

    id: int
    name: str
    memory_bytes: int | None
    events: int
    relative: bool
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    fragmentation_bytes: int | None


class MemoryPeak(msgspec.Struct, omit_defaults=True):
    """What is alive when most is allocated. known_bytes: allocated during the profile."""

    ts_ns: int | None
    allocated_bytes: int | None
    known_bytes: int | None = None
    operators: Table | None = None
    modules: Table | None = None
    categories: Table | None = None


class MemoryAnswer(msgspec.Struct, omit_defaults=True):
    """Memory of one device over time. categories: what it held over time, where the file says so."""

    device: int
    devices: list[MemoryDevice]
    curve: Table
    operators: Table
    events: Table
    peak: MemoryPeak
    categories: Table | None = None


class RankDevice(Device):
    """A device of a rank."""

    rank: int
    worker: str
    host: str | None


class Straggler(msgspec.Struct):
    """A rank that the others wait for. computation_ratio: its computation over the mean of all ranks."""

    rank: int
    late_ns_per_step: int
    steps_last: int
    steps: int
    computation_ratio: float | None


class DistributedAnswer(Table, kw_only=True):
    """All ranks of a run: time per rank and step."""

    collectives: Table
    waits: Table
    devices: list[RankDevice]
    stragglers: list[Straggler]
    missing_ranks: list[int]
    notes: list[str]


class ProfileTotals(msgspec.Struct):
    """Time of all operators, whatever the filters."""

    device_ns: int
    host_ns: int


class ProfileAnswer(Table, kw_only=True):
    """Operators of a static graph. types, dtypes: what the filters can be set to."""

    totals: ProfileTotals
    types: list[str]
    dtypes: list[str]


class TimelineTrack(msgspec.Struct):
    """A track and where its lanes lie in the tiles of its group."""

    id: int
    kind: Literal["thread", "stream", "gpu_annotation"]
    name: str
    process: str
    pid: str
    tid: str
    device: int | None
    stream: int | None
    lanes: int
    events: int
    group: int
    group_lane: int


class TimelineCounter(msgspec.Struct):
    """A counter track."""

    id: int
    name: str
    process: str
    samples: int
    min: float
    max: float


class TimelineStep(msgspec.Struct):
    """A step on the timeline."""

    name: str
    start_ns: int
    duration_ns: int


class TimelineMeta(msgspec.Struct):
    """What is on the timeline. epoch_ns: Unix ns of time 0 as text, beyond the whole numbers of JavaScript."""

    version: str
    duration_ns: int
    epoch_ns: str | None
    tile_buckets: int
    categories: list[str]
    strings: int
    tracks: list[TimelineTrack]
    counters: list[TimelineCounter]
    steps: list[TimelineStep]
    minimap: dict[str, list[float]]
    warnings: list[str]


class TimelineStrings(msgspec.Struct):
    """A part of the dictionary."""

    strings: list[str]
    total: int


class Place(msgspec.Struct):
    """Where an event stands on the timeline."""

    event: int
    name: str
    category: str
    track: int
    lane: int
    start_ns: int
    duration_ns: int


class LinkedPlace(Place):
    """An event linked with another."""

    kind: Literal["launch", "fwdbwd", "async", "flow"]
    direction: Literal["to", "from"]


class TimelineEvent(Place):
    """Everything about one event. arguments: raw, from the file; null when it is gone."""

    self_ns: int
    step: str | None
    correlation: int | None
    columns: dict[str, Any]
    bandwidth_bytes_per_s: float | None
    call_stack: str | None
    arguments: Any
    parent: Place | None
    links: list[LinkedPlace]


class TimelineHits(msgspec.Struct):
    """Events of a search. ticks: 512 counts over the trace."""

    total: int
    events: list[Place]
    ticks: list[int]


class DeviceUse(msgspec.Struct):
    """Share of a window in which a device ran a kernel."""

    device: int
    utilization: float


class TimelineWindow(Table, kw_only=True):
    """What ran in a window."""

    utilization: list[DeviceUse]
    start_ns: int
    end_ns: int


class Alignment(msgspec.Struct):
    """Offset of a worker to the first one."""

    worker: str
    clock_offset_ns: int | None
    collective_residual_ns: int | None
    collectives: int


class AlignmentAnswer(msgspec.Struct):
    """Offsets of the workers of a run."""

    workers: list[Alignment]


class ModelEntry(msgspec.Struct):
    """A model file. run: id of the run in the same folder."""

    id: str
    name: str
    file: str
    format: str
    run: str | None
    size_bytes: int
    modified_ns: int
    uploaded: bool


class ModelsAnswer(msgspec.Struct):
    """Models of the log directories and uploaded ones."""

    models: list[ModelEntry]
    skipped: list[SkippedFile]


class GraphTensor(msgspec.Struct):
    """A tensor of a node. shape: `8x64x56x56`, "" unknown."""

    name: str
    dtype: str
    shape: str
    constant: bool
    bytes: int | None


class GraphModel(msgspec.Struct):
    """What a model says about itself."""

    id: str
    name: str
    format: str
    producer: str
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    parameters: int
    parameter_bytes: int
    operators: int
    properties: dict[str, str]
    warnings: list[str]


class GraphAnswer(msgspec.Struct):
    """A model as columns; docs/http-api.md has them."""

    model: GraphModel
    nodes: Columns
    edges: Columns
    groups: Columns
    values: Columns


class GraphNode(msgspec.Struct):
    """One node."""

    name: str
    type: str
    scope: str
    attributes: dict[str, str]
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    documentation: str | None


class GraphProfile(msgspec.Struct):
    """Measured columns, one entry a node."""

    total_ns: int
    matched_ns: int
    matched_ratio: float
    matched_nodes: int
    calls_total: int
    rule: str
    columns: Columns


class GraphChange(msgspec.Struct):
    """A pair of nodes that differ."""

    node: int
    other: int
    what: list[str]


class GraphComparison(msgspec.Struct):
    """Nodes of two models that correspond."""

    pairs: list[list[int]]
    status: list[str]
    other_status: list[str]
    changes: list[GraphChange]


# A view that is not here answers a plain table.
ANSWERS: dict[str, type[msgspec.Struct]] = {
    "overview": OverviewAnswer,
    "operator": OperatorAnswer,
    "kernel": KernelAnswer,
    "memory": MemoryAnswer,
    "distributed": DistributedAnswer,
    "profile": ProfileAnswer,
}
