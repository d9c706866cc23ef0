"""What somebody asks for: a model with its inputs, specs, and how it is measured."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from visualprof.messages import msg

Precision = Literal["", "auto", "f32", "f16", "bf16", "int8"]
Fill = Literal["random", "zeros", "file"]
Priority = Literal["low", "normal", "high"]
PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high")
DTYPES = (
    "float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
)  # fmt: skip

# MLPerf's scenarios, of its inference benchmark.
Mlperf = Literal["", "SingleStream", "MultiStream", "Server", "Offline"]
Scenario = Literal["closed", "poisson", "search", "SingleStream", "MultiStream", "Server", "Offline"]
SCENARIOS: tuple[str, ...] = tuple(filter(None, get_args(Mlperf)))
DEFAULT_PERCENTILE = 99.0
SEARCH_STEPS = 8  # rates that a search tries

SPEC_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}")  # a folder's name
INPUT_NAME_MAX = 200


@dataclass(frozen=True)
class Input:
    """An input of the model.

    dims: sizes; a text names a dimension that `Sweep` or `Request.dims` gives a size.
    fill: where the values come from; blob is the sha256 of an uploaded .npy for "file".
    """

    name: str
    dtype: str
    dims: list[int | str]
    fill: Fill = "random"
    blob: str = ""


@dataclass(frozen=True)
class Sweep:
    """The dimension that is swept, and its sizes in the order of measuring. dim "": none, one point."""

    dim: str = "batch"
    values: list[int] = field(default_factory=lambda: [1])


@dataclass(frozen=True)
class Load:
    """How runs are asked for: each lane's next one when its last has ended, or as they arrive, whatever has ended.

    concurrency: lanes that run at once, a step of the point for each; none: as many as suit the scenario and runtime.
    rates: runs a second that arrive as a Poisson process, a step for each.
    percentile, limit_ms: the latency that is to be kept; 0: the scenario's percentile, no limit. A limit without rates
    has the largest rate searched that keeps it.
    """

    concurrency: list[int] = field(default_factory=list[int])
    rates: list[float] = field(default_factory=list[float])
    percentile: float = 0.0
    limit_ms: float = 0.0
    mlperf: Mlperf = ""

    @property
    def scenario(self) -> Scenario:
        """What is done, in a word."""
        return self.mlperf or ("poisson" if self.rates else "search" if self.limit_ms else "closed")

    @property
    def searches_rate(self) -> bool:
        """Whether the largest rate within the limit is looked for."""
        return self.scenario == "search" or (self.mlperf == "Server" and not self.rates)

    @property
    def tail_percentile(self) -> float:
        """The percentile that counts: MLPerf's SingleStream has p90, everything else p99 unless told."""
        return self.percentile or (90.0 if self.mlperf == "SingleStream" else DEFAULT_PERCENTILE)

    @property
    def step_count(self) -> int:
        """Loops of a point, each at least `Measure.min_s` long; of a search the most that it takes."""
        return max(1, len(self.concurrency)) * (1 + SEARCH_STEPS if self.searches_rate else max(1, len(self.rates)))


@dataclass(frozen=True)
class Measure:
    """How long a point is measured: until min_s and min_n are both reached, at most max_s, after warmup_s or more.

    Each step of a load takes as long.
    """

    warmup_s: float = 0.2
    min_s: float = 3.0
    max_s: float = 60.0
    min_n: int = 662
    load: Load = field(default_factory=Load)


@dataclass(frozen=True)
class Profile:
    """The profile pass: runs in it (0 leaves it out), and at which size of the swept dimension (0: the first)."""

    runs: int = 20
    at: int = 0


@dataclass(frozen=True)
class Spec:
    """One way to run the model: runtime, machine, device and options.

    agent: id of an agent, "" any. platform: "" any. version: of the runtime, "" any.
    precision: "" computes as the model says, its floats in f32: without TF32 and bf16, so that specs can be compared;
    "auto" as the runtime chooses. threads: 0 leaves it to the runtime. options: of the backend, by its own names.
    """

    id: str
    backend: str
    version: str = ""
    agent: str = ""
    platform: str = ""
    device: str = "cpu"
    precision: Precision = ""
    threads: int = 0
    options: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def device_number(self) -> int:
        """`cuda:1` -> 1; 0 for a device without a number."""
        return int(self.device.partition(":")[2] or 0)


@dataclass(frozen=True)
class Part:
    """A further file of a model, with weights. path: where the model looks for it, beside itself."""

    path: str
    blob: str


@dataclass(frozen=True)
class ModelRef:
    """An uploaded model. parts: the files beside it that it names."""

    blob: str
    name: str
    parts: list[Part] = field(default_factory=list[Part])


Objective = Literal["", "latency", "throughput", "size"]


@dataclass(frozen=True)
class Advise:
    """Candidates that are tried beside the model: conversions of it, other runtimes and their options.

    objective: what they are judged by; "" tries nothing. max_error: of an output, as a share of the original's largest
    number, beyond which a candidate is wrong. only: names of candidates, or how these begin; none: all.
    data: sha256 of uploaded .npy with rows of the user's own, by the input's name. metric: source of Python with
    `metric(original, candidate)`, lists of outputs, which returns a number.
    budget_s: no candidate begins after so long. candidate_s: for a conversion, a load, a set of outputs, a size.
    """

    objective: Objective = ""
    max_error: float = 1e-2
    only: list[str] = field(default_factory=list[str])
    data: dict[str, str] = field(default_factory=dict[str, str])
    metric: str = ""
    budget_s: float = 600.0
    candidate_s: float = 120.0


SearchObjective = Literal["", "latency", "throughput", "size", "energy"]


@dataclass(frozen=True)
class Search:
    """Settings of a spec that are tried for the best of them, together with the sizes of the sweep.

    objective: what is to be best; "" searches nothing. over: values by the setting: threads, precision, streams (runs
    at once), conversion (a converter, "none"), or an option of the backend. where: constraints, `p99<5ms`.
    trials: settings that are tried at most; 0: all of them where they are few, else a fifth.
    trial_s: each of them is measured so long, or longer for its percentiles. budget_s: no trial begins after so long.
    step_s: for a conversion, a load, a set of outputs. seed: of what is tried, and in which order.
    """

    objective: SearchObjective = ""
    over: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    where: list[str] = field(default_factory=list[str])
    trials: int = 0
    trial_s: float = 0.5
    budget_s: float = 1800.0
    step_s: float = 120.0
    seed: int = 0


@dataclass(frozen=True)
class CaseRef:
    """A benchmark case, whose bundle stands in the place of the model. name "": none.

    vendor, framework: of `remote.cases`. settings: those of the command line, each value as JSON.
    step_timeouts: seconds that a step may take, by its name; "" any that has none of its own.
    """

    name: str = ""
    vendor: str = ""
    framework: str = ""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    step_timeouts: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Request:
    """A job as it was submitted; never changed afterwards.

    key: chosen by whoever submits; the same key again gives the same job, not another one.
    dims: sizes of named dimensions that are not swept. retries: after a lost agent.
    spread: specs of any machine may go to several at once; else the machine that began gets all that it can run.
    repeat: how often every point is measured, each time in a new process; the specs on a device take turns.
    pin: CPUs that the child may use, `0-3,8` or `auto`, "" all. quiet_s: how long a spec waits for a quiet host.
    price_per_hour: of a machine, in whatever currency; None: what the machine itself says.
    sample: it comes with visualprof for a first look: pages and commands say that nobody here measured it.
    priority: of its tasks before those of other jobs. advise: candidates that every spec tries beside itself.
    case: what is run in place of a model. search: its best settings are looked for.
    """

    key: str
    model: ModelRef
    specs: list[Spec]
    name: str = ""
    inputs: list[Input] = field(default_factory=list[Input])
    dims: dict[str, int] = field(default_factory=dict[str, int])
    sweep: Sweep = field(default_factory=Sweep)
    measure: Measure = field(default_factory=Measure)
    profile: Profile = field(default_factory=Profile)
    monitor_interval_s: float = 0.1
    timeout_s: float = 900.0
    retries: int = 2
    spread: bool = False
    repeat: int = 1
    pin: str = ""
    quiet_s: float = 0.0
    price_per_hour: float | None = None
    sample: bool = False
    priority: Priority = "normal"
    advise: Advise = field(default_factory=Advise)
    case: CaseRef = field(default_factory=CaseRef)
    search: Search = field(default_factory=Search)

    @property
    def blobs(self) -> dict[str, str]:
        """Every uploaded file that it names, with the field that names it."""
        named = {row.blob: f"inputs[{i}].blob" for i, row in enumerate(self.inputs) if row.fill == "file"}
        parts = {part.blob: f"model.parts[{i}].blob" for i, part in enumerate(self.model.parts)}
        named |= {blob: f"advise.data.{name}" for name, blob in self.advise.data.items()}
        return {**named, **parts, self.model.blob: "model.blob"}


def cpu_numbers(text: str) -> list[int]:
    """`0-3,8` as [0, 1, 2, 3, 8].

    Raises: ValueError: it is no list of at most 4,096 CPUs.
    """
    numbers = set[int]()
    for part in text.split(","):
        if not (match := re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)):
            raise ValueError(msg("remote.no_cpu_no_range", f"{part[:40]!r} is no CPU and no range of them"))
        numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not numbers or max(numbers) > 4095:
        raise ValueError(msg("remote.no_cpus", f"{text[:40]!r} are no CPUs"))
    return sorted(numbers)
