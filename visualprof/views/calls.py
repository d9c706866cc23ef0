"""The calls of operators that differ: shapes, strides, types and numbers that they take, and what one takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np

from visualprof.reader.trace import Trace
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.groups import group
from visualprof.views.measure.launch import is_device_work, is_operator, launches, operator_times
from visualprof.views.measure.operator_call import torch_call
from visualprof.views.measure.steps import in_step
from visualprof.views.measure.tensor_core import names_with
from visualprof.views.measure.timing import names, ordered
from visualprof.views.measure.work.catalog import work_of
from visualprof.views.measure.work.formulas import UNKNOWN, Work
from visualprof.views.measure.work.roof import at_roof, device_of

TEXTS = ("input_shapes", "input_strides", "input_types", "input_values")


@dataclass(frozen=True)
class CallsParams(Params):
    """operator: only that name."""

    operator: str = ""


class OperatorCallColumns(Columns):
    """Calls that take the same. number: place among those of its operator, the longest first.

    host_ns, device_ns: median of one, with what is inside it. peak_ns: of one at the roof of the device.
    """

    name: kinds.Names
    number: kinds.Identifiers
    input_shapes: kinds.Texts
    input_strides: kinds.Texts
    input_types: kinds.Texts
    input_values: kinds.Texts
    calls: kinds.Counts
    total_ns: kinds.Durations
    host_ns: kinds.Durations
    device_ns: kinds.Durations
    peak_ns: kinds.Durations


class CallsAnswer(Table[OperatorCallColumns]):
    """Calls that differ. device: that most of the work ran on; None where that is the host, or unknown."""

    device: str | None


def needs(trace: Trace) -> bool:
    """PyTorch recorded what some operator takes."""
    return trace.meta.format == "kineto" and "input_shapes" in trace.args and bool(is_operator(trace).any())


def compute(trace: Trace, params: CallsParams) -> CallsAnswer:
    """The longest first: by device time where there is any.

    Cost: some 30 us for each row.
    """
    times = operator_times(trace, launches(trace))
    keep = in_step(trace, params.step)[times.rows] & (trace.arg("input_shapes", times.rows, 0) > 0)
    if params.operator:
        keep &= names_with(trace, trace.events.name[times.rows], lambda name: name == params.operator)
    at = np.flatnonzero(keep)
    rows = times.rows[at]
    texts = [trace.arg(key, rows, 0).astype(np.int64) for key in TEXTS]
    groups = group(trace.events.name[rows], *texts)
    host, device = times.host_total[at], times.device_total[at]
    core = 2 * groups.sum(times.tensor_core_total[at]) > groups.sum(device)
    shown = [names(trace, text[groups.first]) for text in texts]
    called = names(trace, trace.events.name[rows][groups.first])
    works = [_work(*call) for call in zip(called, shown[0], shown[2], shown[3], strict=True)]
    columns: dict[str, Column] = {
        "name": called,
        **{key: [text or None for text in values] for key, values in zip(TEXTS, shown, strict=True)},
        "calls": groups.count,
        "total_ns": groups.sum(device if is_device_work(trace).any() else host),
        "host_ns": groups.median(host),
        "device_ns": np.where(groups.sum(device) > 0, groups.median(device), np.nan),
        "peak_ns": at_roof(trace, works, core.tolist()),
    }
    columns = ordered(columns, "total_ns")
    columns["number"] = _numbers(columns["name"])
    used = device_of(trace)
    return CallsAnswer(columns=OperatorCallColumns(**columns), device=used.name or None if used else None)


def _numbers(called: Column) -> list[int]:
    """How many calls of the same operator are above each."""
    above = Counter[str]()
    numbers: list[int] = []
    for name in called:
        numbers.append(above[name])
        above[name] += 1
    return numbers


def _work(name: str, shapes: str, types: str, values: str) -> Work:
    try:
        return work_of(torch_call(name, shapes, types, values)) or UNKNOWN
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        return UNKNOWN  # texts that torch does not write


VIEW = View("calls", 23, needs, CallsParams, compute)
