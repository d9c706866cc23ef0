"""Stages of a step (data loading, forward, backward, optimizer), annotated or derived from operators."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.intervals import contains_times, merge, subtract, union
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_operator, issue_times, launches
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.extents import DISTANT_PAST
from visualprof.views.measure.steps.windows import StepWindows, step_windows

STAGES = {
    "dataloader": Category.DATALOADER,
    "forward": Category.FORWARD,
    "backward": Category.BACKWARD,
    "optimizer": Category.OPTIMIZER,
}
STAGE_NAMES = {
    "dataloader": pattern(r"^\W*(data ?load(er|ing)?|get data|fetch data)\W*$", re.IGNORECASE),
    "forward": pattern(r"^\W*(forward( pass)?|fwd)\W*$", re.IGNORECASE),
    "backward": pattern(r"^\W*(backward( pass)?|bwd)\W*$", re.IGNORECASE),
    "optimizer": pattern(r"^\W*(optimi[sz]er( step)?|optim)\W*$", re.IGNORECASE),
}
# Ranges of one piece of work that say its pass: `attn(F)`, `mlp(B)`, `mlp(W)` (gradients of weights), `F0`, `B0`, `W0`
PASS_MARKS = {
    "forward": pattern(r"\(F\d*\)\W*$|^F[ _-]?\d+$"),
    "backward": pattern(r"\((?:B|W|BW)\d*\)\W*$|^(?:B|W|BW)[ _-]?\d+$"),
}
PASS_WORDS = {
    "forward": pattern(r"(?<![A-Za-z])(?:[Ff]orward|FORWARD|[Ff]wd|FWD)(?![a-z])"),
    "backward": pattern(r"(?<![A-Za-z])(?:[Bb]ackward|BACKWARD|[Bb]wd|BWD|[WwDd]grad|WGRAD|DGRAD)(?![a-z])"),
}
MIN_DIFFERENTIATED_SHARE = 0.8  # of a forward pass in operators that a backward goes back to
STAGE_PRIORITY = ("dataloader", "optimizer", "backward", "forward")  # time in two stages counts for the first one here
AUTOGRAD_NAMES = pattern(
    r"^autograd::engine::evaluate_function|^torch::autograd::AccumulateGrad$|^(?!aten::)\w*Backward\d*$"
)
NO_SPANS = np.zeros((0, 2), np.int64)


class Stage(msgspec.Struct, frozen=True):
    """The calls of a stage.

    Attributes:
        start: (n,) ns of its calls, ascending.
        end: (n,) ns.
        spans: (m, 2) ns, disjoint: time of the calls that belongs to no other stage.
        derived: Whether the stage was derived from operators instead of being annotated in the
            trace.
    """

    start: Ints
    end: Ints
    spans: Ints
    derived: bool = False


def find_stages(trace: Trace) -> dict[str, Stage]:
    """Return the stages of the trace, which do not overlap.

    A stage consists of the outermost ranges that the framework or the user annotated as such. If
    forward or backward is not annotated, it is derived from the autograd functions. Source:
    docs/views/overview.md#stages.
    """
    return _analyze_stages(trace)[0]


def unknown_stages(trace: Trace) -> tuple[str, ...]:
    """Return the passes that the trace has, but that cannot be told apart."""
    return _analyze_stages(trace)[1]


@cached_on_trace
def _analyze_stages(trace: Trace) -> tuple[dict[str, Stage], tuple[str, ...]]:
    """Return the stages, and the names of the passes that cannot be told apart."""
    annotated = {
        name: rows for name, category in STAGES.items() if len(rows := _annotated_ranges(trace, name, category))
    }
    unknown: tuple[str, ...] = ()
    if not annotated.keys() & PASS_MARKS.keys():
        annotated |= _named_passes(trace, PASS_MARKS)
    ranges = _times_of(trace, annotated)
    if not PASS_MARKS.keys() <= ranges.keys():
        windows = step_windows(trace)
        _derive_passes(trace, windows, ranges, annotated.get("optimizer", np.zeros(0, np.int64)))
        is_unclear = "backward" not in annotated and _may_interleave(trace, windows, ranges)
        if is_unclear or "backward" not in ranges:
            annotated |= _named_passes(trace, PASS_WORDS)
        if is_unclear:
            unknown = tuple(name for name in PASS_WORDS if name not in annotated)
        if is_unclear or PASS_WORDS.keys() <= annotated.keys():
            ranges = _times_of(trace, annotated)
    stages: dict[str, Stage] = {}
    assigned = NO_SPANS
    closure_spans = _closure_spans(ranges)
    for name in (n for n in STAGE_PRIORITY if n in ranges):
        start, end = ranges[name][:, 0], ranges[name][:, 1]
        spans = subtract(union(start, end), merge(assigned, closure_spans) if name == "optimizer" else assigned)
        stages[name] = Stage(start, end, spans, name not in annotated)
        assigned = merge(assigned, spans)
    return {name: stages[name] for name in STAGES if name in stages}, unknown


def _times_of(trace: Trace, annotated: Mapping[str, Rows]) -> dict[str, Ints]:
    """Return the start and end (n, 2) of the ranges of each stage, in ns."""
    events = trace.events
    return {name: np.stack((events.ts[rows], events.end[rows]), axis=1) for name, rows in annotated.items()}


def _named_passes(trace: Trace, names: Mapping[str, re.Pattern[str]]) -> dict[str, Rows]:
    """Return the rows of the outermost user ranges whose names say their pass; none unless both passes have some."""
    events = trace.events
    is_range = (events.category == Category.ANNOTATION) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    rows = np.flatnonzero(is_range)
    passes: dict[str, Rows] = {}
    for name, name_pattern in names.items():
        mask = np.zeros(len(events), bool)
        mask[rows[match_names(trace, events.name[rows], lambda text, p=name_pattern: bool(p.search(text)))]] = True
        chosen = np.flatnonzero(mask)
        chosen = chosen[nearest_ancestor(events.parent, mask, events.parent[chosen]) < 0]
        if len(chosen):
            passes[name] = chosen[np.argsort(events.ts[chosen], kind="stable")]
    return passes if len(passes) == len(names) else {}


def _may_interleave(trace: Trace, windows: StepWindows, ranges_by_stage: Mapping[str, Ints]) -> bool:
    """Return whether forward and backward may alternate in a way that the derived passes do not show.

    This is so if an iteration has several backward passes, and if a notable part of the work
    between them is of operators that no backward goes back to: parts of a backward that is written
    by hand look like this. It is not known, and assumed not, if the trace does not say what a
    backward goes back to.
    """
    backward, forward = (ranges_by_stage.get(name, NO_SPANS) for name in ("backward", "forward"))
    boundaries = [ranges_by_stage.get(name, NO_SPANS)[:, 0] for name in ("optimizer", "dataloader")]
    iteration = np.searchsorted(np.sort(np.concatenate((windows.host_spans[:, 0], *boundaries))), backward[:, 0])
    if not len(forward) or not len(backward) or np.bincount(iteration).max() < 2:
        return False
    events, is_autograd = trace.events, _is_autograd(trace)
    rows = np.flatnonzero(is_operator(trace) & (events.category == Category.OP) & ~is_autograd).astype(np.int32)
    rows = rows[nearest_ancestor(events.parent, is_autograd, rows) < 0]
    sequence = trace.arg("sequence", np.flatnonzero(is_autograd))
    is_differentiated = np.zeros(len(events), bool)
    is_differentiated[rows[np.isin(trace.arg("sequence", rows), sequence[sequence >= 0])]] = True
    is_differentiated[trace.links.src[trace.links.kind == LinkKind.FWDBWD]] = True
    if not is_differentiated.any():
        return False
    launched = launches(trace)
    forward = forward[np.argsort(forward[:, 0], kind="stable")]
    is_issued = np.flatnonzero(launched.issuer >= 0)
    is_issued = is_issued[contains_times(forward, events.ts[launched.issuer[is_issued]])]
    if len(is_issued):
        spent, owner = events.dur[launched.work[is_issued]], launched.op[is_issued]
        is_known = nearest_ancestor(events.parent, is_differentiated, owner) >= 0
    else:
        is_row = np.zeros(len(events), bool)
        is_row[rows] = True
        top = rows[nearest_ancestor(events.parent, is_row, events.parent[rows]) < 0]
        top = top[contains_times(forward, events.ts[top])]
        has_part = np.zeros(len(events) + 1, bool)
        is_top = np.zeros(len(events), bool)
        is_top[top] = True
        has_part[nearest_ancestor(events.parent, is_top, np.flatnonzero(is_differentiated).astype(np.int32))] = True
        spent, is_known = events.dur[top], has_part[top]
    return bool(spent[is_known].sum() < MIN_DIFFERENTIATED_SHARE * spent.sum())


def _closure_spans(ranges_by_stage: Mapping[str, Ints]) -> Ints:
    """Return the disjoint intervals of forward and backward passes inside optimizer steps.

    A step calls them if it gets a closure, as with `step(closure)`.
    """
    steps = merge(ranges_by_stage.get("optimizer", NO_SPANS))
    passes = (ranges_by_stage[name] for name in ("forward", "backward") if name in ranges_by_stage)
    return merge(*(ranges[contains_times(steps, ranges[:, 0])] for ranges in passes))


def _annotated_ranges(trace: Trace, name: str, category: Category) -> Rows:
    """Return the rows of the outermost ranges of a stage, in the order of time."""
    events = trace.events
    host = trace.track_mask(TrackKind.THREAD)
    mask = (events.category == category) & host
    if not mask.any():
        rows = np.flatnonzero((events.category == Category.ANNOTATION) & host)
        mask[rows[match_names(trace, events.name[rows], lambda text: bool(STAGE_NAMES[name].match(text)))]] = True
    rows = np.flatnonzero(mask & (events.dur > 0))
    rows = rows[nearest_ancestor(events.parent, mask, events.parent[rows]) < 0]
    return rows[np.argsort(events.ts[rows], kind="stable")]


def _derive_passes(trace: Trace, windows: StepWindows, by_stage: dict[str, Ints], optimizer: Rows) -> None:
    """Add backward and forward of every iteration, (n, 2) ns each, if they are not annotated but can be derived.

    Backward lasts from the first to the last autograd function. Between two of them no forward
    operator may run (one with a sequence number, if the trace has those), and no step or other
    stage may begin.

    Forward lasts from the first operator of the iteration to the backward. An iteration begins
    after all of these:

    - the annotation of its step
    - the previous backward
    - the previous optimizer step and data loading
    - the previous `zero_grad`, if nothing that the backward goes back to ran between the others and
      it

    If an optimizer step itself calls the passes (a closure, as with LBFGS and Lightning), their
    operators have sequence numbers and the optimizer's own do not.

    Args:
        trace: The trace.
        windows: Its steps.
        by_stage: Ranges of the annotated stages; is extended.
        optimizer: Rows of the optimizer ranges.
    """
    is_autograd = _is_autograd(trace)
    is_thread_event = trace.track_mask(TrackKind.THREAD) & (trace.events.dur > 0)
    ops = np.flatnonzero((trace.events.category == Category.OP) & is_operator(trace) & is_thread_event).astype(np.int32)
    ops = ops[nearest_ancestor(trace.events.parent, is_autograd, ops) < 0]
    if "backward" not in by_stage:
        by_stage["backward"] = _derive_backward(trace, windows, by_stage, np.flatnonzero(is_autograd), ops)
    if "forward" not in by_stage:
        by_stage["forward"] = _derive_forward(trace, windows, by_stage, ops, optimizer)
    for name in [name for name, ranges in by_stage.items() if not len(ranges)]:
        del by_stage[name]


def _derive_backward(
    trace: Trace, windows: StepWindows, by_stage: Mapping[str, Ints], autograd_rows: Rows, ops: Ids
) -> Ints:
    """Return the ranges of autograd functions that are not separated by forward operators.

    Args:
        trace: The trace.
        windows: Its steps.
        by_stage: Ranges of the annotated stages.
        autograd_rows: Rows of the autograd functions.
        ops: Operators outside of them.
    """
    events = trace.events
    autograd_rows = autograd_rows[np.argsort(events.ts[autograd_rows], kind="stable")]
    autograd_rows = autograd_rows[windows.positions_at(events.ts[autograd_rows]) >= 0]
    with_sequence = ops[trace.arg("sequence", ops) >= 0]
    starts = [ranges[:, 0] for ranges in (windows.host_spans, *by_stage.values())]
    separators = np.sort(
        np.concatenate((events.ts[with_sequence if len(with_sequence) else ops], *starts)), kind="stable"
    )
    return _merge_between(events.ts[autograd_rows], events.end[autograd_rows], separators)


def _derive_forward(
    trace: Trace, windows: StepWindows, by_stage: Mapping[str, Ints], ops: Ids, optimizer: Rows
) -> Ints:
    """Return the ranges from the first operator of each iteration to its backward.

    A range begins when the host issued that operator.
    """
    events, backward = trace.events, by_stage["backward"]
    is_zero_grad = match_names(trace, events.name[optimizer], lambda text: "zero_grad" in text)
    step_ends = events.end[optimizer[~is_zero_grad]]
    loading_ends = by_stage.get("dataloader", NO_SPANS)[:, 1]
    closure_steps = _ranges_containing(backward[:, 0], by_stage.get("optimizer", NO_SPANS))
    if len(closure_steps):
        ops = ops[(trace.arg("sequence", ops) >= 0) | ~contains_times(closure_steps, events.ts[ops])]
    boundaries = np.concatenate(
        (windows.host_spans[:, 0], backward[:, 1], step_ends, loading_ends, closure_steps[:, 0])
    )
    forward_starts = events.ts[trace.links.src[trace.links.kind == LinkKind.FWDBWD]]
    if len(forward_starts):  # operators that a backward goes back to
        zero_grad_starts = events.ts[optimizer[is_zero_grad]]
        is_boundary = _last_before(np.sort(forward_starts), zero_grad_starts) < _last_before(
            np.sort(boundaries), zero_grad_starts
        )
        boundaries = np.append(boundaries, events.end[optimizer[is_zero_grad][is_boundary]])
    iteration_start = _last_before(np.sort(boundaries), backward[:, 0])
    issued = issue_times(trace, ops, events.ts[ops])
    candidate_spans = union(issued, np.where(issued == events.ts[ops], events.end[ops], issued + 1))
    candidate_spans = subtract(
        candidate_spans, subtract(merge(*by_stage.values()), subtract(closure_steps, merge(backward)))
    )
    first_start = np.append(candidate_spans[:, 0], np.iinfo(np.int64).max)[
        np.searchsorted(candidate_spans[:, 1], iteration_start, side="right")
    ]
    forward = np.stack((np.maximum(first_start, iteration_start), backward[:, 0]), axis=1)
    return forward[forward[:, 0] < forward[:, 1]]


def _is_autograd(trace: Trace) -> Mask:
    """Return, per event, whether it is an autograd function.

    It has such a name, or is the end of a link from a forward operator.
    """
    events = trace.events
    is_autograd = is_operator(trace) & trace.track_mask(TrackKind.THREAD)
    rows = np.flatnonzero(is_autograd)
    is_autograd[rows] = match_names(trace, events.name[rows], lambda text: bool(AUTOGRAD_NAMES.search(text)))
    if not is_autograd.any():
        is_autograd[trace.links.dst[trace.links.kind == LinkKind.FWDBWD]] = True
    return is_autograd


def _ranges_containing(times: Ints, ranges: Ints) -> Ints:
    """Return the ranges (n, 2) that contain one of some ascending times, merged."""
    position = np.searchsorted(times, ranges)
    return merge(ranges[position[:, 1] > position[:, 0]])


def _merge_between(start: Ints, end: Ints, separators: Ints) -> Ints:
    """Return ranges (m, 2) from the first to the last of the events (n,) that no separator (k,) divides.

    All ascending.
    """
    if not len(start):
        return NO_SPANS
    reach = np.maximum.accumulate(end)
    is_separated = np.searchsorted(separators, start[1:], side="right") > np.searchsorted(
        separators, reach[:-1], side="left"
    )
    first = np.flatnonzero(np.concatenate(([True], is_separated)))
    return np.stack((start[first], reach[np.append(first[1:], len(start)) - 1]), axis=1)


def _last_before(times: Ints, queries: Ints) -> Ints:
    """Return the last of some ascending times up to each query time, `DISTANT_PAST` without one."""
    return np.concatenate(([DISTANT_PAST], times))[np.searchsorted(times, queries, side="right")]
