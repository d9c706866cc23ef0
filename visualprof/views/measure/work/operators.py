"""Which operators of a trace count, what each does, and the device work that is theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import parse_serving_step
from visualprof.views.measure.groups import Groups, group
from visualprof.views.measure.launch import is_device_work, is_operator
from visualprof.views.measure.operator_call import OperatorCall, Tensor, onnx_call, torch_call
from visualprof.views.measure.serving_steps import step_annotations
from visualprof.views.measure.tensor_core import match_names
from visualprof.views.measure.trace_cache import cached_on_trace
from visualprof.views.measure.work.catalog import call_work, depends_on_request_lengths, find_formula
from visualprof.views.measure.work.formulas import CallWork
from visualprof.views.measure.work.serving_formulas import WRAPPERS

SHAPE_ARGUMENTS = ("input_shapes", "input_types", "input_values", "output_shapes")
GRADIENT_PIECES = "aten::cudnn_convolution_backward_", "aten::cudnn_convolution_transpose_backward_"  # of torch 1.9


class OperatorWork(msgspec.Struct, frozen=True):
    """rows: (n,) operators that count, ascending; none is inside another. of: (n,) place of each in `works`.

    counts: of each event, is it one of them?
    """

    rows: Ids
    work_ids: Ints
    works: Sequence[CallWork]
    is_counted: Mask

    def per_call(self, key: str) -> Floats:
        """`flops` or `bytes` of each call, (n,), NaN where unknown."""
        return np.array([getattr(work, key) for work in self.works], np.float64)[self.work_ids]


@cached_on_trace
def operator_work(trace: Trace) -> OperatorWork:
    """The outermost operators of which it is known what they do: recorded, or from the shapes of what they take.

    Cost: some 20 us for each distinct operator, shapes, types and values; calls share them.
    """
    rows, of, works = _recorded(trace) if "flops" in trace.args else _calculated(trace)
    counts = np.zeros(len(trace.events), bool)
    counts[rows] = True
    outer = nearest_ancestor(trace.events.parent, counts, trace.events.parent[rows]) < 0
    counts[rows[~outer]] = False
    return OperatorWork(rows[outer], of[outer], works, counts)


def recorded_operators(trace: Trace) -> Ids:
    """Operators of a profile that has their computation: those on devices where it has them there, too."""
    column = trace.args["flops"].events
    on_device = is_device_work(trace)[column].any()
    return np.flatnonzero(is_device_work(trace) if on_device else is_operator(trace)).astype(np.int32)


def _recorded(trace: Trace) -> tuple[Ids, Ints, list[CallWork]]:
    """Operators whose computation the profile has."""
    rows = recorded_operators(trace)
    flops, moved = (trace.arg(key, rows, np.nan).astype(np.float64) for key in ("flops", "bytes"))
    known = ~np.isnan(flops)
    works = [CallWork("recorded", *pair, "") for pair in zip(flops[known].tolist(), moved[known].tolist(), strict=True)]
    return rows[known], np.arange(len(works)), works


def _calculated(trace: Trace) -> tuple[Ids, Ints, list[CallWork]]:
    onnx = trace.meta.format == "onnxruntime"
    rows = np.flatnonzero(is_operator(trace)).astype(np.int32)
    name = trace.arg("type", rows, 0).astype(np.int64) if onnx else trace.events.name[rows]
    has = match_names(trace, name, lambda text: find_formula(text) is not None)
    rows, name = rows[has], name[has]
    counts = ~_are_wrappers(trace, rows)
    rows, name = rows[counts], name[counts]
    # Torch 1.9 gives a piece of a backward no shape of its weight; the operator around both has all three.
    pieces = match_names(trace, name, lambda text: text.startswith(GRADIENT_PIECES))
    around = nearest_ancestor(trace.events.parent, is_operator(trace), trace.events.parent[rows])
    told = np.where(pieces & (around >= 0), around, rows)
    texts = [trace.arg(key, told, 0).astype(np.int64) for key in SHAPE_ARGUMENTS]
    moved = trace.arg("bytes", rows, -1).astype(np.int64)
    load = _annotated(trace, rows)
    groups = group(name, moved, load, *texts)
    calls = [_call(trace, onnx, place, name, texts, int(moved[place])) for place in groups.first.tolist()]
    steps = [parse_serving_step(trace.strings[int(i)]) for i in load[groups.first]]
    calls = [call and call._replace(serving_step=step) for call, step in zip(calls, steps, strict=True)]
    works = [call_work(call) if call else None for call in _with_outputs(calls)]
    known = np.array([work is not None and not math.isnan(work.flops) for work in works], bool)
    return _those(rows, groups, works, known)


def _are_wrappers(trace: Trace, rows: Ids) -> Mask:
    """Of some operators: those that only choose another one of them, which has the name that people know it by."""
    wraps = match_names(trace, trace.events.name[rows], WRAPPERS.__contains__)
    chooser = np.zeros(len(trace.events), bool)
    chooser[rows[wraps]] = True
    around = nearest_ancestor(trace.events.parent, chooser, trace.events.parent[rows[~wraps]])
    chosen = np.zeros(len(trace.events), bool)
    chosen[around[around >= 0]] = True
    return chosen[rows]


def _annotated(trace: Trace, rows: Ids) -> Ints:
    """String id of the innermost annotation around each operator that says how long its requests are, 0 for none.

    Of those alone whose work depends on it: the others share what is worked out for equal shapes.
    """
    of_requests = match_names(trace, trace.events.name[rows], depends_on_request_lengths)
    says = np.zeros(len(trace.events) + 1, bool)  # the last one is that of -1
    marks = step_annotations(trace)
    says[marks] = match_names(trace, trace.events.name[marks], _says_lengths)
    around = nearest_ancestor(trace.events.parent, says[:-1], trace.events.parent[rows])
    return np.where(of_requests & (around >= 0), trace.events.name[around], 0).astype(np.int64)


def _says_lengths(text: str) -> bool:
    step = parse_serving_step(text)
    return step is not None and None not in (*step.prefill, *step.decode)


def _those(
    rows: Ids, groups: Groups, works: Sequence[CallWork | None], known: Mask
) -> tuple[Ids, Ints, list[CallWork]]:
    place = np.cumsum(known) - 1
    chosen = known[groups.ids]
    return rows[chosen], place[groups.ids[chosen]], [w for w, k in zip(works, known, strict=True) if w and k]


def _call(trace: Trace, onnx: bool, place: int, name: Rows, texts: Sequence[Ints], moved: int) -> OperatorCall | None:
    """A call by the texts of its arguments; None where they are not what the framework writes."""
    called = trace.strings[int(name[place])]
    inputs, types, values, outputs = (trace.strings[int(column[place])] for column in texts)
    try:
        if onnx:
            return onnx_call(called, inputs, outputs, moved if moved >= 0 else math.nan)
        return torch_call(called, inputs, types, values) if inputs else None
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        return None


def _with_outputs(calls: Sequence[OperatorCall | None]) -> list[OperatorCall | None]:
    """Convolutions whose stride no file has, with the output that the gradient of the same input and weight shows."""
    shown: dict[tuple[tuple[int, ...], tuple[int, ...]], set[tuple[int, ...]]] = {}
    for call in calls:
        if call and call.name.startswith(GRADIENT_PIECES) and len(call.tensors()) == 3:
            x, grad, weight = call.tensors()
            shown.setdefault((x.shape, weight.shape), set()).add(grad.shape)
    out: list[OperatorCall | None] = []
    for call in calls:
        if call and call.name == "aten::cudnn_convolution" and not call.values and len(call.tensors()) == 2:
            x, weight = call.tensors()
            shapes = shown.get((x.shape, weight.shape), set())
            call = call._replace(outputs=tuple(map(Tensor, shapes))) if len(shapes) == 1 else call
        out.append(call)
    return out
