"""Distinct calls of operators: their shapes, strides, types and numeric arguments, and the time per call."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask, Trace
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.launches.launch import is_device_work, is_operator, launches, operator_times
from visualprof.views.measure.launches.operator_call import onnx_call, torch_call
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.windows import is_in_step
from visualprof.views.measure.work.call_work import UNKNOWN_WORK, CallWork
from visualprof.views.measure.work.catalog import call_work
from visualprof.views.measure.work.roofline import ideal_durations, main_device

TEXTS = ("input_shapes", "input_strides", "input_types", "input_values", "output_shapes")
# By format: the trace argument of a column, if it has another name; None if the format lacks it.
MEGENGINE = {"input_strides": None, "input_types": "input_dtypes", "input_values": "parameters"}
FORMATS: dict[str, dict[str, str | None]] = {
    "kineto": {"output_shapes": None},
    "onnxruntime": {"input_strides": None, "input_types": None, "input_values": None},
    "megengine-static": {**MEGENGINE},
    "megengine": {**MEGENGINE, "input_shapes": "operand_shapes", "output_shapes": "result_shapes"},
    "paddle": {"input_strides": None, "input_values": None, "output_shapes": None},
}


@dataclass(frozen=True)
class CallsParams(Params):
    """Parameters of the view.

    Attributes:
        operator: Only operators with this name; for nodes, which have names of their own, also this type.
    """

    operator: str = ""


class OperatorCallColumns(Columns):
    """Calls with the same arguments.

    Attributes:
        name: Operator; its type for ONNX Runtime and static MegEngine graphs.
        number: Index among the calls of its operator, the longest first.
        node: Node of the longest call.
        host_ns: Median of one call, nested work included.
        device_ns: Median of one call, nested work included.
        peak_ns: Time of one call at the roof of the device.
    """

    name: kinds.NameColumn
    number: kinds.IdentifierColumn
    input_shapes: kinds.TextColumn
    input_strides: kinds.TextColumn
    input_types: kinds.TextColumn
    input_values: kinds.TextColumn
    output_shapes: kinds.TextColumn
    node: kinds.TextColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    host_ns: kinds.DurationColumn
    device_ns: kinds.DurationColumn
    peak_ns: kinds.DurationColumn


class CallsAnswer(Table[OperatorCallColumns]):
    """Distinct calls.

    Attributes:
        device: Device with the most work; None if that is the host, or unknown.
        framework: Framework of the profile.
    """

    device: str | None
    framework: str


def needs(trace: Trace) -> bool:
    """Whether the profile records arguments of an operator."""
    return _shapes(trace) in trace.args and bool(is_operator(trace).any())


def compute(trace: Trace, params: CallsParams) -> CallsAnswer:
    """Return distinct calls, the longest first: by device time if there is any.

    Cost: about 30 us per row.
    """
    times = operator_times(trace, launches(trace))
    of_type = trace.meta.operator_names == "node" and "type" in trace.args
    name_ids = trace.events.name[times.rows].astype(np.int64)
    called = trace.arg("type", times.rows, 0).astype(np.int64) if of_type else name_ids
    keep = is_in_step(trace, params.step)[times.rows] & (trace.arg(_shapes(trace), times.rows, 0) > 0)
    if params.operator:
        keep &= _is(trace, name_ids, params.operator) | _is(trace, called, params.operator)
    at = np.flatnonzero(keep)
    rows, called = times.rows[at], called[at]
    args = (FORMATS[trace.meta.format].get(key, key) or "" for key in TEXTS)
    texts = [trace.arg(arg, rows, 0).astype(np.int64) for arg in args]
    groups = group(called, *texts)
    host, device = times.host_total[at], times.device_total[at]
    core = 2 * groups.sum(times.tensor_core_total[at]) > groups.sum(device - times.unknown_core_total[at])
    shown = [name_texts(trace, text[groups.first]) for text in texts]
    operators = name_texts(trace, called[groups.first])
    longest = rows[groups.largest_rows(np.where(device > 0, device, host))]
    columns: dict[str, Column] = {
        "name": operators,
        **{key: [text or None for text in values] for key, values in zip(TEXTS, shown, strict=True)},
        "node": name_texts(trace, trace.events.name[longest]) if of_type else [None] * len(operators),
        "calls": groups.count,
        "total_ns": groups.sum(device if is_device_work(trace).any() else host),
        "host_ns": groups.median(host),
        "device_ns": np.where(groups.sum(device) > 0, groups.median(device), np.nan),
        "peak_ns": ideal_durations(trace, _works(trace, rows[groups.first], operators, shown), core.tolist()),
    }
    columns = sort_columns(columns, "total_ns")
    columns["number"] = _numbers(columns["name"])
    used = main_device(trace)
    device_name = used.name or None if used else None
    return CallsAnswer(columns=OperatorCallColumns(**columns), device=device_name, framework=trace.meta.framework)


def _shapes(trace: Trace) -> str:
    """Return the name of the argument with the input shapes; "" for formats without one."""
    names = FORMATS.get(trace.meta.format)
    return "" if names is None else names.get("input_shapes", "input_shapes") or ""


def _is(trace: Trace, ids: Ints, operator: str) -> Mask:
    return match_names(trace, ids, lambda name: name == operator)


def _numbers(called: Column) -> list[int]:
    """Return the number of calls of the same operator above each row."""
    above = Counter[str]()
    numbers: list[int] = []
    for name in called:
        numbers.append(above[name])
        above[name] += 1
    return numbers


def _works(trace: Trace, rows: Ids, operators: list[str], texts: list[list[str]]) -> list[CallWork]:
    """Return the work of each call: as recorded, else derived from its columns."""
    moved = trace.arg("bytes", rows, np.nan).astype(np.float64).tolist()
    if "flops" in trace.args:
        flops = trace.arg("flops", rows, np.nan).astype(np.float64).tolist()
        return [CallWork("recorded", *pair, "") for pair in zip(flops, moved, strict=True)]
    onnx = trace.meta.format == "onnxruntime"
    calls = zip(operators, moved, *texts, strict=True)
    return [
        _work(name, size, shapes, types, values, out, onnx=onnx) for name, size, shapes, _, types, values, out in calls
    ]


def _work(name: str, moved: float, shapes: str, types: str, values: str, outputs: str, *, onnx: bool) -> CallWork:
    try:
        call = onnx_call(name, shapes, outputs, moved) if onnx else torch_call(name, shapes, types, values)
        return call_work(call) or UNKNOWN_WORK
    except (ValueError, TypeError, RecursionError, AttributeError, msgspec.MsgspecError):
        return UNKNOWN_WORK  # the framework does not record these texts


VIEW = View("calls", 23, needs, CallsParams, compute)
