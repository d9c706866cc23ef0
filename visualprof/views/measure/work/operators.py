"""Select the operators of a trace that count, and compute the work of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import parse_serving_step
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_device_work, is_operator
from visualprof.views.measure.launches.operator_call import OperatorCall, Tensor, onnx_call, torch_call
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.serving_steps import step_annotations
from visualprof.views.measure.work.call_work import CallWork
from visualprof.views.measure.work.catalog import call_work, depends_on_request_lengths, find_formula
from visualprof.views.measure.work.serving_formulas import WRAPPERS

SHAPE_ARGUMENTS = ("input_shapes", "input_types", "input_values", "output_shapes")
GRADIENT_PIECES = "aten::cudnn_convolution_backward_", "aten::cudnn_convolution_transpose_backward_"  # torch 1.9


class OperatorWork(msgspec.Struct, frozen=True):
    """Operators that count, and their work.

    Attributes:
        rows: (n,) rows, ascending; none is inside another.
        work_ids: (n,) index of each in `works`.
        works: Distinct works.
        is_counted: Per event of the trace, whether it is one of them.
    """

    rows: Ids
    work_ids: Ints
    works: Sequence[CallWork]
    is_counted: Mask

    def per_call(self, key: str) -> Floats:
        """Return `flops` or `bytes` of each call, (n,), NaN where unknown."""
        return np.array([getattr(work, key) for work in self.works], np.float64)[self.work_ids]


@cached_on_trace
def operator_work(trace: Trace) -> OperatorWork:
    """Return the outermost operators whose work is known: recorded, or computed from the shapes of their inputs.

    Cost: about 20 us per distinct combination of operator, shapes, types and values; equal calls
    share it.
    """
    rows, work_ids, works = _recorded_work(trace) if "flops" in trace.args else _computed_work(trace)
    is_counted = np.zeros(len(trace.events), bool)
    is_counted[rows] = True
    is_outermost = nearest_ancestor(trace.events.parent, is_counted, trace.events.parent[rows]) < 0
    is_counted[rows[~is_outermost]] = False
    return OperatorWork(rows[is_outermost], work_ids[is_outermost], works, is_counted)


def recorded_operators(trace: Trace) -> Ids:
    """Return the operators of a profile that records their operations; those on devices if it records any there."""
    column = trace.args["flops"].events
    on_device = is_device_work(trace)[column].any()
    return np.flatnonzero(is_device_work(trace) if on_device else is_operator(trace)).astype(np.int32)


def _recorded_work(trace: Trace) -> tuple[Ids, Ints, list[CallWork]]:
    """Return the operators whose operations the profile records, with their work."""
    rows = recorded_operators(trace)
    flops, moved_bytes = (trace.arg(key, rows, np.nan).astype(np.float64) for key in ("flops", "bytes"))
    is_known = ~np.isnan(flops)
    works = [
        CallWork("recorded", *pair, "")
        for pair in zip(flops[is_known].tolist(), moved_bytes[is_known].tolist(), strict=True)
    ]
    return rows[is_known], np.arange(len(works)), works


def _computed_work(trace: Trace) -> tuple[Ids, Ints, list[CallWork]]:
    """Return the operators whose work can be computed from recorded shapes, with their work."""
    onnx = trace.meta.format == "onnxruntime"
    rows = np.flatnonzero(is_operator(trace)).astype(np.int32)
    name = trace.arg("type", rows, 0).astype(np.int64) if onnx else trace.events.name[rows]
    has_formula = match_names(trace, name, lambda text: find_formula(text) is not None)
    rows, name = rows[has_formula], name[has_formula]
    is_counted = ~_is_wrapper(trace, rows)
    rows, name = rows[is_counted], name[is_counted]
    # torch 1.9 records no weight shape for a single gradient; the operator around both gradients has all shapes.
    is_piece = match_names(trace, name, lambda text: text.startswith(GRADIENT_PIECES))
    enclosing = nearest_ancestor(trace.events.parent, is_operator(trace), trace.events.parent[rows])
    shape_rows = np.where(is_piece & (enclosing >= 0), enclosing, rows)
    texts = [trace.arg(key, shape_rows, 0).astype(np.int64) for key in SHAPE_ARGUMENTS]
    moved_bytes = trace.arg("bytes", rows, -1).astype(np.int64)
    annotation = _length_annotations(trace, rows)
    groups = group(name, moved_bytes, annotation, *texts)
    calls = [_parse_call(trace, onnx, row, name, texts, int(moved_bytes[row])) for row in groups.first.tolist()]
    steps = [parse_serving_step(trace.strings[int(i)]) for i in annotation[groups.first]]
    calls = [call and call._replace(serving_step=step) for call, step in zip(calls, steps, strict=True)]
    works = [call_work(call) if call else None for call in _with_outputs(calls)]
    is_known = np.array([work is not None and not math.isnan(work.flops) for work in works], bool)
    return _with_known_work(rows, groups, works, is_known)


def _is_wrapper(trace: Trace, rows: Ids) -> Mask:
    """Return, per operator, whether it only dispatches to another of the operators, which has the well-known name."""
    may_wrap = match_names(trace, trace.events.name[rows], WRAPPERS.__contains__)
    is_candidate = np.zeros(len(trace.events), bool)
    is_candidate[rows[may_wrap]] = True
    enclosing = nearest_ancestor(trace.events.parent, is_candidate, trace.events.parent[rows[~may_wrap]])
    is_wrapper = np.zeros(len(trace.events), bool)
    is_wrapper[enclosing[enclosing >= 0]] = True
    return is_wrapper[rows]


def _length_annotations(trace: Trace, rows: Ids) -> Ints:
    """Return the string id of the innermost annotation with request lengths around each operator, 0 for none.

    It is set only for operators whose work depends on lengths, so that others share work for equal
    shapes.
    """
    needs_lengths = match_names(trace, trace.events.name[rows], depends_on_request_lengths)
    has_lengths = np.zeros(len(trace.events) + 1, bool)  # the last entry is that of -1
    annotations = step_annotations(trace)
    has_lengths[annotations] = match_names(trace, trace.events.name[annotations], _has_lengths)
    enclosing = nearest_ancestor(trace.events.parent, has_lengths[:-1], trace.events.parent[rows])
    return np.where(needs_lengths & (enclosing >= 0), trace.events.name[enclosing], 0).astype(np.int64)


def _has_lengths(text: str) -> bool:
    """Return whether an annotation contains the lengths of all requests."""
    step = parse_serving_step(text)
    return step is not None and None not in (*step.prefill, *step.decode)


def _with_known_work(
    rows: Ids, groups: Groups, works: Sequence[CallWork | None], is_known: Mask
) -> tuple[Ids, Ints, list[CallWork]]:
    """Return the operators with known work, and their work."""
    new_id = np.cumsum(is_known) - 1
    is_chosen = is_known[groups.ids]
    return (
        rows[is_chosen],
        new_id[groups.ids[is_chosen]],
        [work for work, keep in zip(works, is_known, strict=True) if work and keep],
    )


def _parse_call(
    trace: Trace, onnx: bool, row: int, name: Rows, texts: Sequence[Ints], moved_bytes: int
) -> OperatorCall | None:
    """Return a call from the texts of its arguments; `None` if they are not in the framework's format."""
    operator_name = trace.strings[int(name[row])]
    inputs, types, values, outputs = (trace.strings[int(column[row])] for column in texts)
    try:
        if onnx:
            return onnx_call(operator_name, inputs, outputs, moved_bytes if moved_bytes >= 0 else math.nan)
        return torch_call(operator_name, inputs, types, values) if inputs else None
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        return None


def _with_outputs(calls: Sequence[OperatorCall | None]) -> list[OperatorCall | None]:
    """Return the calls, with outputs added to convolutions whose stride is not recorded.

    The output has the shape of the gradient of the same input and weight.
    """
    output_shapes: dict[tuple[tuple[int, ...], tuple[int, ...]], set[tuple[int, ...]]] = {}
    for call in calls:
        if call and call.name.startswith(GRADIENT_PIECES) and len(call.tensors()) == 3:
            data, grad, weight = call.tensors()
            output_shapes.setdefault((data.shape, weight.shape), set()).add(grad.shape)
    completed: list[OperatorCall | None] = []
    for call in calls:
        if call and call.name == "aten::cudnn_convolution" and not call.values and len(call.tensors()) == 2:
            data, weight = call.tensors()
            shapes = output_shapes.get((data.shape, weight.shape), set())
            call = call._replace(outputs=tuple(map(Tensor, shapes))) if len(shapes) == 1 else call
        completed.append(call)
    return completed
