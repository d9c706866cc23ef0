"""Operators: host and device time, tensor-core use, by name, input shape or call stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Mask, Rows, Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.timing import name_texts, share_columns, sort_columns
from visualprof.views.measure.launches.launch import (
    Launches,
    OperatorTimes,
    is_kernel,
    is_operator,
    launches,
    operator_times,
)
from visualprof.views.measure.launches.phases import PHASE_PATTERNS, PartColumns, operator_parts
from visualprof.views.measure.names.operand_shapes import input_shape_ids
from visualprof.views.measure.names.tensor_core import (
    can_use_tensor_core,
    knows_tensor_cores,
    match_names,
    tensor_core_eligibility,
)
from visualprof.views.measure.operators.graph_dedup import DedupTrace, dedup_graphs
from visualprof.views.measure.operators.path_owners import is_inside_module
from visualprof.views.measure.operators.stacks import CallStacks
from visualprof.views.measure.steps.windows import is_in_step

TIMES = ("device_self_ns", "device_total_ns", "host_self_ns", "host_total_ns")


@dataclass(frozen=True)
class OperatorParams(Params):
    """Parameters of the view.

    Attributes:
        group: One row per name; per type, for runtimes that name operators after nodes of the model (ONNX Runtime,
            OpenVINO); per name and input shapes; or per name, input shapes and call stack.
        operator: Only operators with this name.
        module: Only operators that ran in the module with this path or its children, with their backward operators.
    """

    group: Literal["name", "type", "shape", "stack"] = "name"
    operator: str = ""
    module: str = ""


class OperatorColumns(Columns, kw_only=True):
    """Operators.

    Attributes:
        stacks: Number of call stacks.
        share_ratio: Share of the device self time of all rows; of the host self time if nothing ran on a device.
        cumulative_ratio: Share of this row and all rows with more time.
        tensor_core_self_ratio: Share of the device self time on tensor cores, among kernels whose name says whether.
        tensor_core_total_ratio: The same of the device total time.
        tensor_core_unknown_ratio: Share of the device total time in kernels whose name does not say.
    """

    name: kinds.NameColumn
    input_shapes: kinds.TextColumn | None = None
    call_stack: kinds.TextColumn | None = None
    stacks: kinds.CountColumn
    calls: kinds.CountColumn
    device_self_ns: kinds.DurationColumn
    device_total_ns: kinds.DurationColumn
    host_self_ns: kinds.DurationColumn
    host_total_ns: kinds.DurationColumn
    share_ratio: kinds.RatioColumn
    cumulative_ratio: kinds.RatioColumn
    tensor_core_eligible: kinds.FlagColumn
    tensor_core_self_ratio: kinds.RatioColumn
    tensor_core_total_ratio: kinds.RatioColumn
    tensor_core_unknown_ratio: kinds.RatioColumn
    flops: kinds.OperationColumn
    bytes: kinds.SizeColumn


class RangeColumns(Columns):
    """Kernels without an operator, by the user range in which they were launched."""

    name: kinds.NameColumn
    kernels: kinds.CountColumn
    total_ns: kinds.DurationColumn


class Unlinked(msgspec.Struct):
    """Kernels without an operator."""

    kernels: kinds.Count
    total_ns: kinds.Duration


class OperatorAnswer(Table[OperatorColumns]):
    """Operators."""

    unlinked: Unlinked
    ranges: Table[RangeColumns]
    parts: Table[PartColumns]


def needs(trace: Trace) -> bool:
    """Whether the host has an operator."""
    return bool(is_operator(dedup_graphs(trace).trace).any())


def compute(trace: Trace, params: OperatorParams) -> OperatorAnswer:
    """Return operators, those with the most device self time first (host self time if nothing ran on a device).

    Source: torch-tb-profiler's operator view; docs/views/operator.md
    """
    dedup = (
        DedupTrace(trace) if params.module else dedup_graphs(trace, params.step)
    )  # the forward of a module may be in another step
    trace = dedup.trace
    joined = launches(trace)
    times = operator_times(trace, joined)
    keep = is_in_step(trace, params.step)[times.rows]
    if params.operator:
        keep &= match_names(trace, trace.events.name[times.rows], lambda name: name == params.operator)
    if params.module:
        keep &= is_inside_module(trace, params.module, times.rows)
    at = np.flatnonzero(keep)
    columns = _columns(dedup, times, at, params)
    by = "device_self_ns" if times.device_self.any() else "host_self_ns"
    columns |= share_columns(columns[by], float(np.asarray(columns[by]).sum()))
    lost = (joined.op < 0) & (is_kernel(trace) & is_in_step(trace, params.step))[joined.work]
    return OperatorAnswer(
        columns=OperatorColumns(**sort_columns(columns, by)),
        unlinked=Unlinked(int(dedup.weights(joined.work[lost]).sum()), int(trace.events.dur[joined.work[lost]].sum())),
        ranges=Table(columns=_ranges(dedup, joined, lost & (joined.range >= 0))),
        parts=Table(columns=operator_parts(trace, joined, is_in_step(trace, params.step))),
    )


def make_charts(result: OperatorAnswer, params: OperatorParams, top: int) -> dict[str, charts.Option]:
    """Return the charts of the share of each operator, and `phases`.

    `device_self`, `device_total`, `host_self` and `host_total` are present if there is such time. `phases` is the host
    time of the longest operators by phase, if the framework records phases.
    """
    out: dict[str, charts.Option] = {}
    for column in TIMES:
        total: dict[str, int] = {}
        for name, ns in zip(result.columns.name, getattr(result.columns, column), strict=True):
            total[str(name)] = total.get(str(name), 0) + int(ns)
        if any(total.values()):
            out[column.removesuffix("_ns")] = charts.pie(total.items(), top=top)
        if column == "host_total_ns" and len(result.parts):
            out["phases"] = _phase_chart(result.parts.columns, total, top)
    return out


def _phase_chart(parts: PartColumns, total: dict[str, int], top: int) -> charts.Option:
    """Return the chart of the host time of the longest operators by phase; `other` is time outside of all phases."""
    shown = sorted(total, key=lambda name: -total[name])[:top]
    spent = {phase: dict.fromkeys(shown, 0) for phase in PHASE_PATTERNS}
    for operator, phase, ns in zip(parts.operator, parts.phase, parts.host_total_ns, strict=True):
        if phase is not None and operator in spent[phase]:
            spent[phase][operator] += int(ns)
    series = [(f"@t:category.{phase}", list(times.values())) for phase, times in spent.items()]
    rest = [total[name] - sum(times[name] for times in spent.values()) for name in shown]
    return charts.bars(shown, [*series, ("@t:category.other", rest)])


def _columns(dedup: DedupTrace, times: OperatorTimes, at: Rows, params: OperatorParams) -> dict[str, Column]:
    trace = dedup.trace
    rows = times.rows[at]
    name = trace.events.name[rows]
    shapes = input_shape_ids(trace, rows)
    stacks = CallStacks(trace)
    stack = stacks.source_ids(rows) if params.group == "stack" else stacks.stack_ids(rows)
    if params.group == "type":
        types = trace.arg("type", rows, 0).astype(name.dtype)
        name = np.where(types > 0, types, name)
    keys = {"name": (name,), "type": (name,), "shape": (name, shapes), "stack": (name, shapes, stack)}[params.group]
    groups = group(*keys)
    first = groups.first
    columns: dict[str, Column] = {"name": name_texts(trace, name[first])}
    if params.group in ("shape", "stack"):
        columns["input_shapes"] = name_texts(trace, shapes[first])
    if params.group == "stack":
        columns["call_stack"] = [stacks.stack_text(s) for s in stack[first].tolist()]
    columns |= {"stacks": groups.distinct(stack), "calls": dedup.count(groups, rows)}
    knows, nvidia = knows_tensor_cores(trace), trace.meta.device_type in ("cpu", "cuda")
    device_self, device_total = groups.sum(times.device_self[at]), groups.sum(times.device_total[at])
    unknown_self, unknown_total = groups.sum(times.unknown_core_self[at]), groups.sum(times.unknown_core_total[at])
    columns |= {
        "device_self_ns": device_self,
        "device_total_ns": device_total,
        "host_self_ns": groups.sum(times.host_self[at]),
        "host_total_ns": groups.sum(times.host_total[at]),
        "tensor_core_eligible": eligible(trace, rows[first]) if nvidia else [None] * len(first),
        "tensor_core_self_ratio": _ratio(groups.sum(times.tensor_core_self[at]), (device_self - unknown_self) * knows),
        "tensor_core_total_ratio": _ratio(
            groups.sum(times.tensor_core_total[at]), (device_total - unknown_total) * knows
        ),
        "tensor_core_unknown_ratio": _ratio(unknown_total, device_total * knows),
        "flops": _known_sum(dedup, groups, rows, "flops"),
        "bytes": _known_sum(dedup, groups, rows, "bytes"),
    }
    return columns


def _ranges(dedup: DedupTrace, joined: Launches, chosen: Mask) -> RangeColumns:
    """Return the chosen device work by the range in which it was launched, the longest first."""
    trace, work = dedup.trace, joined.work[chosen]
    name = trace.events.name[joined.range[chosen]]
    groups = group(name)
    columns: dict[str, Column] = {
        "name": name_texts(trace, name[groups.first]),
        "kernels": dedup.count(groups, work),
        "total_ns": groups.sum(trace.events.dur[work]),
    }
    return RangeColumns(**sort_columns(columns, "total_ns"))


def eligible(trace: Trace, rows: Rows) -> list[bool | None]:
    """Return for each operator whether it has a tensor-core implementation, by its name or its type.

    `None` if neither says so and the name or the type leaves it open.
    """
    name_ids: list[Rows] = [trace.events.name[rows].astype(np.int64)]
    if "type" in trace.args:
        name_ids.append(trace.arg("type", rows, 0).astype(np.int64))
    can_use, is_open = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for ids in name_ids:
        can_use |= match_names(trace, ids, can_use_tensor_core)
        is_open |= match_names(trace, ids, lambda name: tensor_core_eligibility(name) is None)
    return [True if can else None if unknown else False for can, unknown in zip(can_use, is_open, strict=True)]


def _ratio(part: Ints, whole: Ints) -> Floats:
    """Return part / whole; NaN if the whole is 0."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def _known_sum(dedup: DedupTrace, groups: Groups, rows: Ids, name: str) -> Floats:
    """Return the sum of an argument over the rows that have it; NaN for groups without any."""
    trace = dedup.trace
    values = trace.arg(name, rows, np.nan).astype(np.float64) if name in trace.args else np.full(len(rows), np.nan)
    is_known = ~np.isnan(values)
    total = np.bincount(groups.ids[is_known], values[is_known] * dedup.weights(rows[is_known]), len(groups.first))
    return np.where(np.bincount(groups.ids[is_known], minlength=len(groups.first)) > 0, total, np.nan)


VIEW = View("operator", 20, needs, OperatorParams, compute, make_charts)
