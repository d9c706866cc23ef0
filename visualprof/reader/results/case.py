"""The result of a benchmark case.

It is `case.json` of a run, written by its child process and completed by the supervisor.
"""

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

    Attributes:
        name: The step.
        state: `done`, `kept` (reused from an earlier run), `skipped` (by a switch), `failed`, `cancelled`, `pending`.
        took_ns: Duration.
        why: Why it was skipped, or how it ended.
        files: Files that it left below the run's folder, with the sha256 of each.
    """

    name: str
    state: str
    took_ns: int | None = None
    why: str = ""
    files: dict[str, str] = {}


class CaseSetting(msgspec.Struct, frozen=True):
    """A key of the configuration.

    Attributes:
        key: The key.
        value: The value as JSON.
        origin: `host`, `case`, `parameters`, `vendor`, `command line`.
        before: The value of the layer below as JSON, `None` if it has none.
    """

    key: str
    value: str
    origin: str
    before: str | None = None


class CaseRepeat(msgspec.Struct, frozen=True):
    """One pass over the data. Rates are samples per second."""

    whole_per_s: float
    core_per_s: float | None = None
    accuracy: float | None = None


class CasePass(msgspec.Struct, frozen=True):
    """Validation in the framework, or inference with the engine, over all repeats. Rates are samples per second.

    Attributes:
        whole_per_s: Rate including loading and evaluation.
        core_per_s: Rate of the model alone.
        accuracy: Accuracy.
        samples: Number of samples.
        own: The case has its own function, which returned both rates and the accuracy.
        repeats: The repeats.
        whole_ci: Half the width of the 95 % confidence interval of the mean over the repeats, `None` with fewer than
            two.
        core_ci: Like `whole_ci`.
        warmup_n: Warm-up batches.
        warmup_ns: Duration of the warm-up.
        first_ns: Latency of the first batch.
        foo_ns: Time that the engine declared not to be inference; it is subtracted.
        n: Measured batches.
        mean_ns: Mean latency of a batch.
        p50_ns: Percentile of the latency of a batch, `None` if n is too small; likewise `p90_ns`, `p95_ns`, `p99_ns`.
        stable: Whether the latency was stable, as in evaluations, `None` if unknown.
        host_busy: Whether other programs kept the host busy.
        start_ns: Unix time of the start.
        end_ns: Unix time of the end.
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
    """The complete result of a case's run. Times are in ns, sizes in bytes; `None` means unknown.

    Attributes:
        schema: `SCHEMA`.
        case: Name of the case.
        framework: The framework.
        vendor: The accelerator platform.
        compiler: The compiler, `None` without a compile step.
        precision: `fp32`, `fp16`.
        batch_size: The batch size.
        state: `succeeded`, `failed`, `cancelled`, `running`.
        device: The device.
        device_name: Its name.
        host: The host.
        agent: The agent.
        title: Title of the case.
        reason: Reason of a failure, in the terms of jobs (`timeout`, `crashed`, `out_of_memory`, ...).
        error: What went wrong.
        hint: What to do about it.
        step: The current or last step.
        steps: The steps.
        settings: The configuration.
        warnings: Warnings.
        versions: Versions of packages.
        effective: Settings in effect.
        validation: Validation in the framework.
        inference: Inference with the engine.
        compile_ns: Compile time.
        e2e_ns: Duration of all steps.
        flops_per_sample: Stated by the case.
        flops_per_s: `flops_per_sample` times the core rate of inference.
        peak_flops: Peak rate of the device.
        peak_source: Source of the peak rate.
        mfu: Model FLOPs utilization.
        accuracy_difference: Accuracy of inference minus that of validation.
        tolerance: Accepted accuracy difference.
        verdict: `same`, `worse` or `better`, by `tolerance`.
        memory_used_bytes: Device memory; for a CPU, memory of the processes.
        memory_total_bytes: Device memory; for a CPU, memory of the machine.
        utilization: Mean over inference, 0 to 1.
        power_w: Mean over inference.
        temperature_c: Mean over inference.
        clock_mhz: Mean over inference.
        energy_j_per_sample: Energy per sample.
        throttled: The GPU's clocks were throttled during inference.
        metrics: Other metrics of the case, by name.
        started_ns: Unix time of the start.
        finished_ns: Unix time of the end.
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
    """Return the results among the files of a log directory, by their folder as users see it."""
    results = {file.file.rpartition("/")[0]: read_case(Path(file.path)) for file in files if file.name == CASE_FILE}
    return {folder: result for folder, result in results.items() if result is not None}


_RESULT_DECODER = msgspec.json.Decoder(CaseResult)


def read_case(path: Path) -> CaseResult | None:
    """Return the result in a file, or `None` if it is damaged or not a result."""
    try:
        result = _RESULT_DECODER.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return result if result.schema == SCHEMA else None
