"""The request of a job: a model with its inputs, specs, and how they are measured."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from visualprof.messages import msg

Precision = Literal["", "auto", "f32", "f16", "bf16", "int8"]
Fill = Literal["random", "zeros", "file"]
Priority = Literal["low", "normal", "high"]
PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high")
DTYPES = tuple(
    """
    float32 float64 float16 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool
    """.split()
)

# Scenarios of MLPerf's inference benchmark.
Mlperf = Literal["", "SingleStream", "MultiStream", "Server", "Offline"]
Scenario = Literal["closed", "poisson", "search", "SingleStream", "MultiStream", "Server", "Offline"]
SCENARIOS: tuple[str, ...] = tuple(filter(None, get_args(Mlperf)))
DEFAULT_PERCENTILE = 99.0
SEARCH_STEPS = 8  # number of rates that a search tries

SPEC_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}")  # also the name of a folder
INPUT_NAME_MAX = 200


@dataclass(frozen=True)
class Input:
    """An input of the model.

    Attributes:
        name: Name of the input.
        dtype: Type of its values.
        dims: Sizes; a text names a dimension whose size is in `Sweep` or `Request.dims`.
        fill: Where the values come from.
        blob: Digest of an uploaded .npy file, for fill "file".
    """

    name: str
    dtype: str
    dims: list[int | str]
    fill: Fill = "random"
    blob: str = ""


@dataclass(frozen=True)
class Sweep:
    """The swept dimension.

    Attributes:
        dim: Name of the dimension; "" for a single point.
        values: Sizes, in the order of measuring.
    """

    dim: str = "batch"
    values: list[int] = field(default_factory=lambda: [1])


@dataclass(frozen=True)
class Load:
    """Schedule of runs: concurrent lanes, each starting its next run when the last one ends, or arrivals at a rate.

    Attributes:
        concurrency: Numbers of concurrent lanes, one step of the point for each. Empty is the default of the scenario
            and
            the runtime.
        rates: Runs per second, arriving as a Poisson process, one step for each.
        percentile: Percentile of the latency limit; 0 is the scenario's percentile.
        limit_ms: Latency limit; 0 is unlimited. With a limit and no rates, the largest rate within the limit is
            searched.
        mlperf: Scenario of MLPerf.
    """

    concurrency: list[int] = field(default_factory=list[int])
    rates: list[float] = field(default_factory=list[float])
    percentile: float = 0.0
    limit_ms: float = 0.0
    mlperf: Mlperf = ""

    @property
    def scenario(self) -> Scenario:
        """Name of the scenario."""
        return self.mlperf or ("poisson" if self.rates else "search" if self.limit_ms else "closed")

    @property
    def searches_rate(self) -> bool:
        """Whether the largest rate within the limit is searched."""
        return self.scenario == "search" or (self.mlperf == "Server" and not self.rates)

    @property
    def tail_percentile(self) -> float:
        """Percentile of the limit: p90 for MLPerf's SingleStream, else p99 by default."""
        return self.percentile or (90.0 if self.mlperf == "SingleStream" else DEFAULT_PERCENTILE)

    @property
    def step_count(self) -> int:
        """Number of steps of a point, each at least `Measure.min_s` long; for a search, the maximum."""
        return max(1, len(self.concurrency)) * (1 + SEARCH_STEPS if self.searches_rate else max(1, len(self.rates)))


@dataclass(frozen=True)
class Measure:
    """How long a point is measured. Each step of a load takes as long.

    Attributes:
        warmup_s: Minimum warm-up time.
        min_s: Minimum measuring time.
        max_s: Maximum measuring time.
        min_n: Minimum number of runs.
        load: How runs are started.
    """

    warmup_s: float = 0.2
    min_s: float = 3.0
    max_s: float = 60.0
    min_n: int = 662
    load: Load = field(default_factory=Load)


@dataclass(frozen=True)
class Profile:
    """The profiling pass.

    Attributes:
        runs: Number of profiled runs; 0 skips the pass.
        at: Size of the swept dimension; 0 is the first.
    """

    runs: int = 20
    at: int = 0


@dataclass(frozen=True)
class Spec:
    """One way to run the model: runtime, machine, device and options.

    Attributes:
        id: Id of the spec.
        backend: Name of the backend.
        version: Version of the runtime; "" is any.
        agent: Id of an agent; "" is any.
        platform: Platform; "" is any.
        device: Name of the device.
        precision: "" follows the model with floats in f32, without TF32 and bf16, so that specs are comparable; "auto"
            is
            the runtime's choice.
        threads: Number of threads; 0 is the runtime's default.
        options: Options of the backend.
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
        """Number of the device, as 1 for `cuda:1`; 0 for a device without a number."""
        return int(self.device.partition(":")[2] or 0)


@dataclass(frozen=True)
class Part:
    """A weight file of a model.

    Attributes:
        path: Path relative to the model.
        blob: Digest of the file.
    """

    path: str
    blob: str


@dataclass(frozen=True)
class ModelRef:
    """An uploaded model.

    Attributes:
        blob: Digest of the model's file.
        name: Name of the file.
        parts: Weight files that the model names.
    """

    blob: str
    name: str
    parts: list[Part] = field(default_factory=list[Part])


Objective = Literal["", "latency", "throughput", "size"]


@dataclass(frozen=True)
class Advise:
    """Candidates to try in addition to the model: conversions of the model, other runtimes and their options.

    Attributes:
        objective: What candidates are judged by; "" tries none.
        max_error: Maximum error of an output, as a share of the original's largest number.
        only: Names of candidates, or prefixes of names; empty is all.
        data: Digests of uploaded .npy files with the user's own rows, by input.
        metric: Python source with `metric(original, candidate)`, which takes lists of outputs and returns a number.
        budget_s: No candidate starts after this time.
        candidate_s: Time limit of a conversion, a load, a set of outputs or a size.
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
    """Settings of a spec that are tried to find the best, together with the sizes of the sweep.

    Attributes:
        objective: What is optimized; "" searches nothing.
        over: Values by setting: threads, precision, streams (concurrent runs), conversion (a converter or "none"), or
            an
            option of the backend.
        where: Constraints, as `p99<5ms`.
        trials: Maximum number of trials; 0 is all settings if they are few, else a fifth.
        trial_s: Minimum measuring time of a trial; percentiles may need more.
        budget_s: No trial starts after this time.
        step_s: Time limit of a conversion, a load or a set of outputs.
        seed: Seed for the choice and order of trials.
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
    """A benchmark case with a bundle that replaces the model.

    Attributes:
        name: Name of the case; "" without one.
        vendor: Vendor in `remote.cases`.
        framework: Framework in `remote.cases`.
        settings: Settings as on the command line, each value as JSON.
        step_timeouts: Time limits in seconds by step; "" applies to all other steps.
    """

    name: str = ""
    vendor: str = ""
    framework: str = ""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    step_timeouts: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Request:
    """A job as submitted, which never changes.

    Attributes:
        key: Chosen by the client; a repeated key returns the same job.
        model: The model.
        specs: Ways to run the model.
        name: Name of the job.
        inputs: Inputs of the model.
        dims: Sizes of named dimensions that are not swept.
        sweep: The swept dimension.
        measure: How long points are measured.
        profile: The profiling pass.
        monitor_interval_s: Sampling interval of the monitor.
        timeout_s: Time limit of a task.
        retries: Retries after a lost agent.
        spread: Whether specs for any agent may run on several agents at once. Otherwise the agent that started the
            first
            one gets all that it can run.
        repeat: How often each point is measured, each time in a new process; specs on a device take turns.
        pin: CPUs of the child, as `0-3,8` or `auto`; "" is all.
        quiet_s: How long a spec waits for a quiet host.
        price_per_hour: Price of a machine in any currency; None is the price that the agent reports.
        sample: Whether the job is a sample that ships with visualprof; pages and commands say that it was not measured
            here.
        priority: Priority over the tasks of other jobs.
        advise: Candidates that every spec tries in addition.
        case: Benchmark case that replaces the model.
        search: Settings to search.
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
        """The field that names each uploaded file, by digest."""
        named = {row.blob: f"inputs[{i}].blob" for i, row in enumerate(self.inputs) if row.fill == "file"}
        parts = {part.blob: f"model.parts[{i}].blob" for i, part in enumerate(self.model.parts)}
        named |= {blob: f"advise.data.{name}" for name, blob in self.advise.data.items()}
        return {**named, **parts, self.model.blob: "model.blob"}


def cpu_numbers(text: str) -> list[int]:
    """Parse a list of CPUs: `0-3,8` is [0, 1, 2, 3, 8].

    Raises:
        ValueError: The text is not a list of at most 4,096 CPUs.
    """
    numbers = set[int]()
    for part in text.split(","):
        if not (match := re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)):
            raise ValueError(msg("remote.no_cpu_no_range", f"{part[:40]!r} is no CPU and no range of them"))
        numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not numbers or max(numbers) > 4095:
        raise ValueError(msg("remote.no_cpus", f"{text[:40]!r} are no CPUs"))
    return sorted(numbers)
