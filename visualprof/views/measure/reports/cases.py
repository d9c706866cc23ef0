"""Results of benchmark cases as tables and charts. Source: docs/cases.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from visualprof.reader.results.case import CasePass, CaseResult
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Kind
from visualprof.views.answers.table import Columns, from_rows

# Metrics that a chart can show, in the order of the menu.
METRICS: dict[str, Kind] = {
    "core_per_s": "count",
    "whole_per_s": "count",
    "p50_ns": "ns",
    "p99_ns": "ns",
    "accuracy": "count",
    "accuracy_difference": "count",
    "mfu": "ratio",
    "memory_used_bytes": "bytes",
    "energy_j_per_sample": "joule",
}
# Fields that identify a setup of a case; only the newest result of each setup is compared.
SETUP_FIELDS = ("machine", "framework", "vendor", "compiler", "precision", "batch_size")
_MAX_LINEAR_RATIO = 50  # with a larger ratio of the values, small bars would vanish on a linear axis
BYTES_PER_GIB = 1 << 30
# Header of the table in the READMEs of FlagPerf's cases.
_FLAGPERF_HEADER = (
    "推理工具",
    "precision",
    "bs",
    "e2e_time",
    "p_val_whole",
    "p_val_core",
    "p_infer_whole",
    r"\*p_infer_core",
    r"\*MFU",
    "acc(infer/val)",
    "mem",
)


class LeaderColumns(Columns):
    """One row per result, the newest first.

    Values are those of inference, or of validation if the case has no compiler. Rates are in
    samples per second.

    Attributes:
        machine: Name of the agent, or of the host without an agent.
        validation_core_per_s: Rate of the validation in the framework, for comparison.
        run: Folder of the result.
    """

    case: kinds.WordColumn
    machine: kinds.WordColumn
    vendor: kinds.WordColumn
    framework: kinds.WordColumn
    compiler: kinds.WordColumn
    precision: kinds.WordColumn
    batch_size: kinds.CountColumn
    state: kinds.WordColumn
    core_per_s: kinds.CountColumn
    core_ci: kinds.CountColumn
    whole_per_s: kinds.CountColumn
    validation_core_per_s: kinds.CountColumn
    p50_ns: kinds.DurationColumn
    p99_ns: kinds.DurationColumn
    stable: kinds.FlagColumn
    accuracy: kinds.CountColumn
    accuracy_difference: kinds.CountColumn
    verdict: kinds.WordColumn
    mfu: kinds.RatioColumn
    memory_used_bytes: kinds.SizeColumn
    energy_j_per_sample: kinds.EnergyColumn
    host_busy: kinds.FlagColumn
    device_name: kinds.TextColumn
    finished_ns: kinds.MomentColumn
    run: kinds.TextColumn


COLUMN_NAMES = LeaderColumns.__struct_fields__


class CaseFacts(msgspec.Struct):
    """Configuration of a result, and its values that are not per pass."""

    case: kinds.Word
    framework: kinds.Word
    vendor: kinds.Word
    compiler: kinds.Word | None
    precision: kinds.Word
    batch_size: kinds.Count | None
    device_name: str
    host: str
    agent: str
    e2e_ns: kinds.Duration | None
    compile_ns: kinds.Duration | None
    accuracy_difference: kinds.Number | None
    tolerance: kinds.Number | None
    verdict: kinds.Word
    flops_per_sample: kinds.Operation | None
    flops_per_s: kinds.OperationRate | None
    peak_flops: kinds.OperationRate | None
    peak_source: str
    mfu: kinds.Ratio | None
    memory_used_bytes: kinds.Size | None
    memory_total_bytes: kinds.Size | None
    utilization: kinds.Ratio | None
    power_w: kinds.Number | None
    energy_j_per_sample: kinds.Energy | None
    temperature_c: kinds.Number | None
    clock_mhz: kinds.Number | None
    throttled: bool | None
    finished_ns: kinds.Moment


class PassColumns(Columns):
    """One row for validation in the framework and one for inference with the engine.

    Attributes:
        n: Number of measured batches; `p50_ns` etc. are percentiles over these batches.
    """

    of: kinds.WordColumn
    core_per_s: kinds.CountColumn
    core_ci: kinds.CountColumn
    whole_per_s: kinds.CountColumn
    whole_ci: kinds.CountColumn
    accuracy: kinds.CountColumn
    samples: kinds.CountColumn
    n: kinds.CountColumn
    mean_ns: kinds.DurationColumn
    p50_ns: kinds.DurationColumn
    p90_ns: kinds.DurationColumn
    p95_ns: kinds.DurationColumn
    p99_ns: kinds.DurationColumn
    warmup_n: kinds.CountColumn
    first_ns: kinds.DurationColumn
    foo_ns: kinds.DurationColumn
    stable: kinds.FlagColumn
    host_busy: kinds.FlagColumn
    own: kinds.FlagColumn


class CaseStepColumns(Columns):
    """The seven steps of a case, in order."""

    name: kinds.WordColumn
    state: kinds.WordColumn
    took_ns: kinds.DurationColumn
    why: kinds.TextColumn


class CaseSettingColumns(Columns):
    """The configuration of a case.

    Attributes:
        value: The value in use.
        origin: Layer that set the value.
        before: Value of the layer below.
    """

    key: kinds.NameColumn
    value: kinds.TextColumn
    origin: kinds.WordColumn
    before: kinds.TextColumn


def leader_columns(results: Mapping[str, CaseResult]) -> LeaderColumns:
    """Return one row per result, the newest first.

    Args:
        results: Results by folder.
    """
    rows = [_row(run, result) for run, result in results.items()]
    rows.sort(key=lambda row: (-row["finished_ns"], row["case"], row["run"]))
    return from_rows(LeaderColumns, [tuple(row.values()) for row in rows])


def _row(run: str, result: CaseResult) -> dict[str, Any]:
    """Return the row of a result by column name."""
    main_pass = result.inference if result.compiler else result.validation
    computed: dict[str, Any] = {
        "machine": result.agent or result.host or result.device_name,
        "validation_core_per_s": getattr(result.validation, "core_per_s", None),
        "finished_ns": result.finished_ns or result.started_ns,
        "run": run,
        "batch_size": result.batch_size or None,
    }
    return {
        name: computed[name] if name in computed else getattr(result, name, getattr(main_pass, name, None))
        for name in COLUMN_NAMES
    }


def newest_results(results: Mapping[str, CaseResult]) -> dict[str, CaseResult]:
    """Return the last result of each setup of each case; a canceled result only without others."""
    newest = dict[tuple[object, ...], tuple[str, CaseResult]]()
    for run, result in sorted(results.items(), key=lambda item: _age_key(item[1])):
        row = _row(run, result)
        newest[(row["case"], *(row[name] for name in SETUP_FIELDS))] = run, result
    return dict(newest.values())


def _age_key(result: CaseResult) -> tuple[bool, int]:
    """Return the sort key of a result: canceled ones first, then by time."""
    return result.state != "cancelled", result.finished_ns or result.started_ns


def metric_chart(results: Mapping[str, CaseResult], metric: str) -> charts.Option:
    """Return bars of a metric: one group per case, one bar per setup; {} without data.

    A setup is named by the fields that differ within a case.
    """
    rows = [row for run, result in newest_results(results).items() if (row := _row(run, result))[metric] is not None]
    cases = sorted({row["case"] for row in rows})
    values = [abs(row[metric]) for row in rows]
    if not values:
        return {}
    differing_fields = [
        name
        for name in SETUP_FIELDS
        if any(_differ(row[name] for row in rows if row["case"] == bars) for bars in cases)
    ]
    series = dict[str, dict[str, charts.Option]]()
    for row in rows:
        name = " · ".join(_setup_text(field, row[field]) for field in differing_fields or ("compiler",))
        series.setdefault(name, {})[row["case"]] = {"value": row[metric], "id": row["run"]}
    option = charts.bars(cases, [(name, []) for name in sorted(series)], METRICS[metric], stack=False)
    for bars in option["series"]:
        bars["data"] = [series[bars["name"]].get(case) for case in cases]
    if min(row[metric] for row in rows) > 0 and max(values) > _MAX_LINEAR_RATIO * min(values):
        option["yAxis"]["type"] = "log"
    return option


def _differ(values: Iterable[object]) -> bool:
    """Return whether the values are not all equal."""
    return len(set(values)) > 1


def _setup_text(field: str, value: object) -> str:
    """Return a field of a setup in words."""
    return f"batch {value}" if field == "batch_size" else str(value or "–")


def pass_columns(result: CaseResult) -> PassColumns:
    """Return the passes that were run: validation and inference."""
    passes = (("validation", result.validation), ("inference", result.inference))
    return from_rows(PassColumns, [(name, *_pass_values(result_pass)) for name, result_pass in passes if result_pass])


def _pass_values(case_pass: CasePass) -> tuple[Any, ...]:
    """Return the values of a pass in the order of the columns."""
    return tuple(getattr(case_pass, name) for name in PassColumns.__struct_fields__[1:])


def step_columns(result: CaseResult) -> CaseStepColumns:
    """Return the steps of a result."""
    return from_rows(CaseStepColumns, [(step.name, step.state, step.took_ns, step.why) for step in result.steps])


def setting_columns(result: CaseResult) -> CaseSettingColumns:
    """Return the configuration of a result."""
    return from_rows(
        CaseSettingColumns,
        [(setting.key, setting.value, setting.origin, setting.before) for setting in result.settings],
    )


def flagperf_line(result: CaseResult) -> dict[str, object]:
    """Return FlagPerf's last output line as a mapping."""
    validation, inference = result.validation, result.inference
    whole, core, accuracy = ("whole_per_s", "core_per_s", "accuracy")
    return {
        "vendor": result.vendor,
        "compiler": result.compiler,
        "precision": result.precision,
        "batchsize": result.batch_size,
        "flops": result.flops_per_s,
        "e2e_time(second)": _rounded(result.e2e_ns and result.e2e_ns / 1e9),
        "p_validation_whole(qps)": _rounded(getattr(validation, whole, None)),
        "p_validation_core(qps)": _rounded(getattr(validation, core, None)),
        "p_inference_whole(qps)": _rounded(getattr(inference, whole, None)),
        "*p_inference_core(qps)": _rounded(getattr(inference, core, None)),
        "val_average_acc": _rounded(getattr(validation, accuracy, None)),
        "infer_average_acc": _rounded(getattr(inference, accuracy, None)),
        "vendor_usage(GiB)": _gib(result.memory_used_bytes),
        "vendor_max_mem(GiB)": _gib(result.memory_total_bytes),
        "*MFU": None if result.mfu is None else f"{round(result.mfu * 100, 1)}%",
    }


def flagperf_table(results: Sequence[CaseResult], with_case: bool = False) -> str:
    """Return the table of FlagPerf's READMEs, one row per result.

    Args:
        results: The results.
        with_case: Add the columns case and machine.
    """
    header = ("case", "machine", *_FLAGPERF_HEADER) if with_case else _FLAGPERF_HEADER
    rows = [header, ("---",) * len(header), *(_flagperf_row(result, with_case) for result in results)]
    return "".join(f"| {' | '.join(_cell(value) for value in row)} |\n" for row in rows)


def _flagperf_row(result: CaseResult, with_case: bool) -> tuple[object, ...]:
    """Return the cells of a result."""
    line = flagperf_line(result)
    return (
        *((result.case, result.agent or result.host) if with_case else ()),
        result.compiler,
        result.precision,
        result.batch_size,
        *list(line.values())[5:10],
        line["*MFU"],
        f"{_cell(line['infer_average_acc'])}/{_cell(line['val_average_acc'])}",
        f"{_cell(line['vendor_usage(GiB)'])}/{_cell(line['vendor_max_mem(GiB)'])}",
    )


def _rounded(value: float | None) -> float | None:
    """Return a value with three decimals."""
    return None if value is None else round(value, 3)


def _gib(size: int | None) -> float | None:
    """Return a size in GiB with two decimals."""
    return None if size is None else round(size / BYTES_PER_GIB, 2)


def _cell(value: object) -> str:
    """Return a cell of FlagPerf's table; unknown values are `/`, as in FlagPerf."""
    return "/" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
