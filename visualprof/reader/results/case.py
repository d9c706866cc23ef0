"""The result of a benchmark case: `case.json` of a run, as its child wrote it and whoever watched it completed it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from visualprof.reader.logdir.scan import LogFile

SCHEMA = "visualprof.case/1"
CASE_FILE = "case.json"


class CaseStep(msgspec.Struct, frozen=True):
    """One of the seven steps.

    state: `done`, `kept` (of an earlier run), `skipped` (a switch says so), `failed`, `cancelled`, `pending`.
    why: of what was skipped, or of its end. files: what it left below the run's folder, with the sha256 of each.
    """

    name: str
    state: str
    took_ns: int | None = None
    why: str = ""
    files: dict[str, str] = {}


class CaseSetting(msgspec.Struct, frozen=True):
    """A key of the configuration. origin: `host`, `case`, `parameters`, `vendor`, `command line`.

    value, before: as JSON; before: what the layer below said, None where none did.
    """

    key: str
    value: str
    origin: str
    before: str | None = None


class CaseRepeat(msgspec.Struct, frozen=True):
    """One pass over the data. Rates in samples a second."""

    whole_per_s: float
    core_per_s: float | None = None
    accuracy: float | None = None


class CasePass(msgspec.Struct, frozen=True):
    """Validation in the framework, or inference with the engine, over all repeats.

    whole: with loading and evaluating; core: the model alone. Rates in samples a second. whole_ci, core_ci: half the
    width of the 95 % confidence interval of the mean over the repeats, None with fewer than two. p50_ns ...: of a
    batch, None where n does not suffice. foo_ns: what the engine said is no inference; it is subtracted. own: the case
    has its own function for it, which gave both rates and the accuracy. stable: as in evaluations, None unknown.
    """

    whole_per_s: float | None
    core_per_s: float | None
    accuracy: float | None
    samples: int
    own: bool = False
    repeats: list[CaseRepeat] = []
    whole_ci: float | None = None
    core_ci: float | None = None
    warmup_n: int = 0
    warmup_ns: int = 0
    first_ns: int | None = None
    foo_ns: int = 0
    n: int = 0
    mean_ns: int | None = None
    p50_ns: int | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None
    stable: bool | None = None
    host_busy: bool | None = None
    start_ns: int = 0
    end_ns: int = 0


class CaseResult(msgspec.Struct, frozen=True):
    """All of a case's run. Times in ns, sizes in bytes; None is unknown.

    state: `succeeded`, `failed`, `cancelled`, `running`. reason: of a failure, in the words of jobs (`timeout`,
    `crashed`, `out_of_memory`, ...). step: where it stands or ended. precision: `fp32`, `fp16`. e2e_ns: of all steps.
    flops_per_sample: that the case says; flops_per_s: times core samples a second of inference. accuracy_difference:
    inference minus validation; verdict: `same`, `worse`, `better`, by `tolerance`. memory: of the device; of the
    processes and the machine for a CPU. utilization (0 to 1), power, temperature and clock: means over inference.
    throttled: the clocks of the GPU were held down meanwhile.
    metrics: what the case measures beyond that, by its own names.
    """

    schema: str
    case: str
    framework: str
    vendor: str
    compiler: str | None
    precision: str
    batch_size: int
    state: str
    device: str = ""
    device_name: str = ""
    host: str = ""
    agent: str = ""
    title: str = ""
    reason: str = ""
    error: str = ""
    hint: str = ""
    step: str = ""
    steps: list[CaseStep] = []
    settings: list[CaseSetting] = []
    warnings: list[str] = []
    versions: dict[str, str] = {}
    effective: dict[str, str] = {}
    validation: CasePass | None = None
    inference: CasePass | None = None
    compile_ns: int | None = None
    e2e_ns: int | None = None
    flops_per_sample: float | None = None
    flops_per_s: float | None = None
    peak_flops: float | None = None
    peak_source: str = ""
    mfu: float | None = None
    accuracy_difference: float | None = None
    tolerance: float | None = None
    verdict: str = ""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: float | None = None
    energy_j_per_sample: float | None = None
    throttled: bool | None = None
    metrics: dict[str, float] = {}
    started_ns: int = 0
    finished_ns: int = 0


def read_cases(files: Iterable[LogFile]) -> dict[str, CaseResult]:
    """The results among the files of a log directory, by their folder as users see it."""
    results = {file.file.rpartition("/")[0]: read_case(Path(file.path)) for file in files if file.name == CASE_FILE}
    return {folder: result for folder, result in results.items() if result is not None}


_RESULT_DECODER = msgspec.json.Decoder(CaseResult)


def read_case(path: Path) -> CaseResult | None:
    """The result in a file; None for one that is none, or is damaged."""
    try:
        result = _RESULT_DECODER.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return result if result.schema == SCHEMA else None
