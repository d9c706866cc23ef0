"""Results of benchmark cases side by side, and what stands behind one of them. Source: docs/cases.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from visualprof.reader.results.case import CasePass, CaseResult
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Kind
from visualprof.views.answers.table import Columns, from_rows

# What may be drawn, in the order in which it is offered.
METRICS: dict[str, Kind] = {
    "core_per_s": "count", "whole_per_s": "count", "p50_ns": "ns", "p99_ns": "ns", "accuracy": "count",
    "accuracy_difference": "count", "mfu": "ratio", "memory_used_bytes": "bytes", "energy_j_per_sample": "joule",
}  # fmt: skip
# What tells one setup of a case from another: the newest result of each counts.
SETUP = ("machine", "framework", "vendor", "compiler", "precision", "batch_size")
_FAR = 50  # times: beyond that small bars would vanish on an even axis
GIB = 1 << 30
# The head of the table in the README of FlagPerf's cases.
_HEAD = ("推理工具", "precision", "bs", "e2e_time", "p_val_whole", "p_val_core", "p_infer_whole", r"\*p_infer_core",
         r"\*MFU", "acc(infer/val)", "mem")  # fmt: skip


class LeaderColumns(Columns):
    """A row a result, the newest first. Figures are of inference, of validation where the case has no compiler.

    machine: name of the agent, else of the host. validation_core_per_s: in the framework, to compare. Rates in
    samples a second. run: its folder.
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


NAMES = LeaderColumns.__struct_fields__


class CaseFacts(msgspec.Struct):
    """What a result is of, and its figures beside those of its passes."""

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
    """Validation in the framework and inference with the engine; p50_ns ...: of n batches."""

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
    """The seven steps in order."""

    name: kinds.WordColumn
    state: kinds.WordColumn
    took_ns: kinds.DurationColumn
    why: kinds.TextColumn


class CaseSettingColumns(Columns):
    """The configuration: each value, where it comes from, and what the layer below said."""

    key: kinds.NameColumn
    value: kinds.TextColumn
    origin: kinds.WordColumn
    before: kinds.TextColumn


def leader_columns(results: Mapping[str, CaseResult]) -> LeaderColumns:
    """A row for each result, by its folder; the newest first."""
    rows = [_row(run, result) for run, result in results.items()]
    rows.sort(key=lambda row: (-row["finished_ns"], row["case"], row["run"]))
    return from_rows(LeaderColumns, [tuple(row.values()) for row in rows])


def _row(run: str, result: CaseResult) -> dict[str, Any]:
    shown = result.inference if result.compiler else result.validation
    own: dict[str, Any] = {
        "machine": result.agent or result.host or result.device_name,
        "validation_core_per_s": getattr(result.validation, "core_per_s", None),
        "finished_ns": result.finished_ns or result.started_ns,
        "run": run,
        "batch_size": result.batch_size or None,
    }
    return {name: own[name] if name in own else getattr(result, name, getattr(shown, name, None)) for name in NAMES}


def newest_results(results: Mapping[str, CaseResult]) -> dict[str, CaseResult]:
    """Of each setup of each case the last result; one that was cancelled only where there is no other."""
    last = dict[tuple[object, ...], tuple[str, CaseResult]]()
    for run, result in sorted(results.items(), key=lambda one: _order(one[1])):
        row = _row(run, result)
        last[(row["case"], *(row[name] for name in SETUP))] = run, result
    return dict(last.values())


def _order(result: CaseResult) -> tuple[bool, int]:
    return result.state != "cancelled", result.finished_ns or result.started_ns


def metric_chart(results: Mapping[str, CaseResult], metric: str) -> charts.Option:
    """Bars of a figure: a group a case, a bar a setup, which is named by what differs within a case; {} of nothing."""
    rows = [row for run, result in newest_results(results).items() if (row := _row(run, result))[metric] is not None]
    cases = sorted({row["case"] for row in rows})
    values = [abs(row[metric]) for row in rows]
    if not values:
        return {}
    differing = [
        name for name in SETUP if any(_several(row[name] for row in rows if row["case"] == one) for one in cases)
    ]
    series = dict[str, dict[str, charts.Option]]()
    for row in rows:
        name = " · ".join(_said(part, row[part]) for part in differing or ("compiler",))
        series.setdefault(name, {})[row["case"]] = {"value": row[metric], "id": row["run"]}
    option = charts.bars(cases, [(name, []) for name in sorted(series)], METRICS[metric], stack=False)
    for one in option["series"]:
        one["data"] = [series[one["name"]].get(case) for case in cases]
    if min(row[metric] for row in rows) > 0 and max(values) > _FAR * min(values):
        option["yAxis"]["type"] = "log"
    return option


def _several(values: Iterable[object]) -> bool:
    return len(set(values)) > 1


def _said(part: str, value: object) -> str:
    return f"batch {value}" if part == "batch_size" else str(value or "–")


def pass_columns(result: CaseResult) -> PassColumns:
    """Of validation and inference what was run."""
    both = (("validation", result.validation), ("inference", result.inference))
    return from_rows(PassColumns, [(name, *_of_pass(one)) for name, one in both if one])


def _of_pass(one: CasePass) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in PassColumns.__struct_fields__[1:])


def step_columns(result: CaseResult) -> CaseStepColumns:
    """The steps of a result."""
    return from_rows(CaseStepColumns, [(one.name, one.state, one.took_ns, one.why) for one in result.steps])


def setting_columns(result: CaseResult) -> CaseSettingColumns:
    """The configuration of a result."""
    return from_rows(CaseSettingColumns, [(one.key, one.value, one.origin, one.before) for one in result.settings])


def flagperf_line(result: CaseResult) -> dict[str, object]:
    """FlagPerf's last line."""
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
    """The table in FlagPerf's READMEs, a row a result. named: with columns of the case and its machine before it."""
    head = ("case", "machine", *_HEAD) if with_case else _HEAD
    rows = [head, ("---",) * len(head), *(_flagperf_row(result, with_case) for result in results)]
    return "".join(f"| {' | '.join(_cell(one) for one in row)} |\n" for row in rows)


def _flagperf_row(result: CaseResult, named: bool) -> tuple[object, ...]:
    line = flagperf_line(result)
    return (
        *((result.case, result.agent or result.host) if named else ()),
        result.compiler, result.precision, result.batch_size, *list(line.values())[5:10], line["*MFU"],
        f"{_cell(line['infer_average_acc'])}/{_cell(line['val_average_acc'])}",
        f"{_cell(line['vendor_usage(GiB)'])}/{_cell(line['vendor_max_mem(GiB)'])}",
    )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _gib(size: int | None) -> float | None:
    return None if size is None else round(size / GIB, 2)


def _cell(value: object) -> str:
    """A cell of FlagPerf's table; what is not known is `/`, as there."""
    return "/" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
