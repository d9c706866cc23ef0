"""Kernels by name, or by name, launching operator and launch attributes; copies and fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Floats, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.timing import (
    CallColumns,
    duration_columns,
    name_texts,
    share_columns,
    sort_columns,
)
from visualprof.views.measure.launches.launch import (
    is_first_of_launch,
    is_kernel,
    is_operator,
    launch_delays,
    launches,
)
from visualprof.views.measure.names.compiled import parse_fusion
from visualprof.views.measure.names.operand_shapes import input_shape_ids
from visualprof.views.measure.names.tensor_core import (
    knows_tensor_cores,
    match_names,
    tensor_core_masks,
    tensor_core_use,
)
from visualprof.views.measure.operators.stacks import CallStacks
from visualprof.views.measure.steps.windows import is_in_step

PIPELINE_COLUMNS = {"cube_utilization": "cube_utilization_ratio"} | {
    name: name
    for name in ("mac_ratio", "vec_ratio", "scalar_ratio", "mte1_ratio", "mte2_ratio", "mte3_ratio", "fixpipe_ratio")
}


@dataclass(frozen=True)
class KernelParams(Params):
    """Parameters of the view.

    Attributes:
        group: One row per kernel name; per name, operator and launch attributes; per name and operator; or per name,
            operator and call stack. Operators of the backward pass have the call stack of their forward operators.
        operator: Only kernels that operators with this name launched, themselves or in operators that they called.
        shapes: Only kernels of operators with these input shapes. Needs `operator`.
    """

    group: Literal["name", "launch", "operator", "stack"] = "name"
    operator: str = ""
    shapes: str = ""


class KernelColumns(Columns, kw_only=True):
    """Kernels. Columns from `grid` to `shared_memory_bytes`, and `launch_delay_ns`, need grouping by launch.

    Attributes:
        user_range: Whether `operator` is the user range around the launch, because no operator launched the kernel.
        fuses: Operators that a compiler fused, from the name of the kernel; absent if no name has any.
        share_ratio: Share of the time of all kernels.
        cumulative_ratio: Share of this row and all rows with more time.
        tensor_core: Whether the kernel runs on tensor cores; None if its name does not say.
        core: Core of an NPU on which the kernel ran; absent, like the next columns, if no kernel has one.
        cube_utilization_ratio: Share of the cycles of all cube cores that the kernel used.
        mac_ratio: Share of the core's time during which its matrix pipeline was busy; the following columns are the
            same for its other pipelines, which overlap.
    """

    name: kinds.NameColumn
    fuses: kinds.TextColumn | None = None
    operator: kinds.NameColumn | None = None
    user_range: kinds.FlagColumn | None = None
    call_stack: kinds.TextColumn | None = None
    grid: kinds.DimsColumn | None = None
    block: kinds.DimsColumn | None = None
    registers_per_thread: kinds.CountColumn | None = None
    shared_memory_bytes: kinds.SizeColumn | None = None
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    share_ratio: kinds.RatioColumn
    cumulative_ratio: kinds.RatioColumn
    mean_ns: kinds.DurationColumn
    stddev_ns: kinds.DurationColumn
    max_ns: kinds.DurationColumn
    min_ns: kinds.DurationColumn
    blocks_per_sm: kinds.CountColumn
    occupancy: kinds.RatioColumn
    launch_delay_ns: kinds.DurationColumn | None = None
    tensor_core: kinds.FlagColumn
    core: kinds.WordColumn | None = None
    cube_utilization_ratio: kinds.RatioColumn | None = None
    mac_ratio: kinds.RatioColumn | None = None
    vec_ratio: kinds.RatioColumn | None = None
    scalar_ratio: kinds.RatioColumn | None = None
    mte1_ratio: kinds.RatioColumn | None = None
    mte2_ratio: kinds.RatioColumn | None = None
    mte3_ratio: kinds.RatioColumn | None = None
    fixpipe_ratio: kinds.RatioColumn | None = None


class MemoryOperationColumns(CallColumns):
    """Copies and fills."""

    stddev_ns: kinds.DurationColumn
    bytes: kinds.SizeColumn
    bandwidth_bytes_per_s: kinds.BandwidthColumn


class TensorCore(msgspec.Struct):
    """Kernel time with and without tensor cores, and of kernels whose name does not say."""

    used_ns: kinds.Duration
    unused_ns: kinds.Duration
    unknown_ns: kinds.Duration


class KernelAnswer(Table[KernelColumns]):
    """Kernels.

    Attributes:
        kind: `operator` for frameworks that record only the device time of operators.
        tensor_core: Known for NVIDIA kernels only.
    """

    kind: Literal["kernel", "operator"]
    tensor_core: TensorCore | None
    memory_operations: Table[MemoryOperationColumns]


def needs(trace: Trace) -> bool:
    """Whether a device has a kernel, a copy or a fill."""
    return bool((is_kernel(trace) | _is_copy(trace)).any())


def compute(trace: Trace, params: KernelParams) -> KernelAnswer:
    """Return kernels by total time; blocks per SM and occupancy are means weighted by duration.

    Source: torch-tb-profiler's kernel view, docs/views/kernel.md
    """
    inside = is_in_step(trace, params.step)
    rows = np.flatnonzero(is_kernel(trace) & inside).astype(np.int32)
    if params.operator:
        rows = rows[_is_launched_by(trace, rows, params)]
    core, unknown = tensor_core_masks(trace, trace.events.name[rows])
    dur = np.maximum(trace.events.dur[rows], 0)
    columns = _grouped(trace, rows, params.group)
    knows = knows_tensor_cores(trace)
    fused = [parse_fusion(str(name)) for name in columns["name"]]
    if any(fused):
        columns["fuses"] = [
            ", ".join(fusion_of_kernel.operators) if fusion_of_kernel else None for fusion_of_kernel in fused
        ]
    columns |= share_columns(columns["total_ns"], float(dur.sum()))
    columns["tensor_core"] = [tensor_core_use(str(n)) if knows else None for n in columns["name"]]
    return KernelAnswer(
        columns=KernelColumns(**sort_columns(columns, "total_ns")),
        kind="operator" if trace.meta.device_work == "operator" else "kernel",
        tensor_core=TensorCore(
            used_ns=int(dur[core].sum()),
            unused_ns=int(dur[~core & ~unknown].sum()),
            unknown_ns=int(dur[unknown].sum()),
        )
        if knows
        else None,
        memory_operations=Table(columns=_memory_operations(trace, np.flatnonzero(_is_copy(trace) & inside))),
    )


def make_charts(result: KernelAnswer, params: KernelParams, top: int) -> dict[str, charts.Option]:
    """Return the charts `kernels` (share of each) and `tensor_core` (time with and without tensor cores)."""
    total: dict[str, float] = {}
    for name, ns in zip(result.columns.name, result.columns.total_ns, strict=True):
        total[str(name)] = total.get(str(name), 0) + int(ns)
    core = result.tensor_core
    out = {"kernels": charts.pie(total.items(), top=top)}
    if core is not None:
        parts = [("@t:chart.tensor_core_used", core.used_ns), ("@t:chart.tensor_core_unused", core.unused_ns)]
        if core.unknown_ns:
            parts.append(("@t:chart.tensor_core_unknown", core.unknown_ns))
        out["tensor_core"] = charts.pie(parts)
    return out


def _is_copy(trace: Trace) -> Mask:
    copy = trace.events.category_mask(Category.MEMCPY, Category.MEMSET) & (trace.events.dur >= 0)
    return copy & trace.track_mask(TrackKind.STREAM)


def _is_launched_by(trace: Trace, rows: Ids, params: KernelParams) -> Mask:
    """Return (n,) which kernels the operators of the parameters launched."""
    joined = launches(trace)
    is_selected = is_operator(trace) & match_names(trace, trace.events.name, lambda name: name == params.operator)
    if params.shapes:
        operators = np.flatnonzero(is_selected).astype(np.int32)
        shapes = input_shape_ids(trace, operators)
        is_selected[operators] = match_names(trace, shapes, lambda text: text == params.shapes)
    owner = joined.op[np.searchsorted(joined.work, rows)]
    return nearest_ancestor(trace.events.parent, is_selected, owner) >= 0


def _grouped(trace: Trace, rows: Ids, grouping: str) -> dict[str, Column]:
    if grouping == "launch":
        return _by_launch(trace, rows)
    return _by_name(trace, rows) if grouping == "name" else _by_operator(trace, rows, with_stack=grouping == "stack")


def _by_operator(trace: Trace, rows: Ids, *, with_stack: bool) -> dict[str, Column]:
    """Return kernels by name, launching operator and its call stack."""
    joined = launches(trace)
    operator = joined.op[np.searchsorted(joined.work, rows)]
    op_name = np.where(operator >= 0, trace.events.name[operator], 0)
    stacks = CallStacks(trace)
    stack = np.where(operator >= 0, stacks.source_ids(operator), -1) if with_stack else np.zeros(len(rows), np.int32)
    groups = group(trace.events.name[rows], op_name, stack)
    texts = [stacks.stack_text(number) for number in stack[groups.first].tolist()] if with_stack else None
    return {
        "name": name_texts(trace, trace.events.name[rows][groups.first]),
        "operator": name_texts(trace, op_name[groups.first]),
        **({} if texts is None else {"call_stack": texts}),
        **_durations(trace, rows, groups),
        **_load(trace, rows, groups),
    }


def _by_name(trace: Trace, rows: Ids) -> dict[str, Column]:
    groups = group(trace.events.name[rows])
    return {
        "name": name_texts(trace, trace.events.name[rows][groups.first]),
        **_durations(trace, rows, groups),
        **_load(trace, rows, groups),
    }


def _by_launch(trace: Trace, rows: Ids) -> dict[str, Column]:
    joined = launches(trace)
    place = np.searchsorted(joined.work, rows)
    call, ranged = joined.call[place], joined.range[place] >= 0
    owner = np.where(ranged, joined.range[place], joined.op[place])
    op_name = np.where(owner >= 0, trace.events.name[owner], 0)
    keys = [trace.arg(k, rows, -1).astype(np.int64) for k in ("grid", "block", "registers", "shared_memory")]
    groups = group(trace.events.name[rows], op_name, ranged, *keys)
    first = groups.first
    begins = (call >= 0) & is_first_of_launch(trace)[place]
    delay = np.where(begins, launch_delays(trace, call, rows), np.nan)
    return {
        "name": name_texts(trace, trace.events.name[rows][first]),
        "operator": name_texts(trace, op_name[first]),
        "user_range": [bool(ranged[i]) if owner[i] >= 0 else None for i in first.tolist()],
        "grid": _texts(trace, keys[0][first]),
        "block": _texts(trace, keys[1][first]),
        "registers_per_thread": _nonnegative(keys[2][first]),
        "shared_memory_bytes": _nonnegative(keys[3][first]),
        **_durations(trace, rows, groups),
        **_load(trace, rows, groups),
        "launch_delay_ns": groups.mean(delay, np.ones(len(rows))),
    }


def _durations(trace: Trace, rows: Rows, groups: Groups) -> dict[str, Column]:
    spread = groups.deviation(np.maximum(trace.events.dur[rows], 0))
    return {**duration_columns(trace, rows, groups), "stddev_ns": spread}


def _load(trace: Trace, rows: Ids, groups: Groups) -> dict[str, Column]:
    """Return how well kernels fill the device: means weighted by duration."""
    weight = np.maximum(trace.events.dur[rows], 0)
    return {
        **_pipelines(trace, rows, groups, weight),
        "blocks_per_sm": groups.mean(trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64), weight),
        "occupancy": groups.mean(trace.arg("occupancy", rows, np.nan).astype(np.float64), weight),
    }


def _pipelines(trace: Trace, rows: Ids, groups: Groups, weight: Ints) -> dict[str, Column]:
    """Return the core of each group, and how busy its pipelines were; empty if no kernel has a core."""
    cores = trace.arg("core", rows, 0).astype(np.int64)
    if not (cores > 0).any():
        return {}
    columns: dict[str, Column] = {"core": [trace.strings[i] or None for i in cores[groups.first].tolist()]}
    for argument, column in PIPELINE_COLUMNS.items():
        columns[column] = groups.mean(trace.arg(argument, rows, np.nan).astype(np.float64), weight)
    return columns


def _memory_operations(trace: Trace, rows: Rows) -> MemoryOperationColumns:
    """Return copies and fills by name. Bandwidth is all bytes over all time, of those with a known size."""
    groups = group(trace.events.name[rows])
    moved = trace.arg("bytes", rows, np.nan).astype(np.float64)
    sized = ~np.isnan(moved)
    total = groups.sum(np.nan_to_num(moved)).astype(np.float64)
    has_bytes = groups.sum(sized) > 0
    columns = {"name": name_texts(trace, trace.events.name[rows][groups.first]), **_durations(trace, rows, groups)}
    spent = groups.sum(trace.events.dur[rows] * sized).astype(np.float64)
    columns["bytes"] = np.where(has_bytes, total, np.nan)
    columns["bandwidth_bytes_per_s"] = np.where(
        has_bytes & (spent > 0), total / np.where(spent > 0, spent, 1) * 1e9, np.nan
    )
    return MemoryOperationColumns(**sort_columns(columns, "total_ns"))


def _texts(trace: Trace, ids: Rows) -> list[str | None]:
    return [trace.strings[i] if i >= 0 else None for i in ids]


def _nonnegative(values: Ints) -> Floats:
    return np.where(values >= 0, values, np.nan)


VIEW = View("kernel", 30, needs, KernelParams, compute, make_charts)
