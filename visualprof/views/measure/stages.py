"""Stages of a step: data loading, forward, backward, optimizer; marked by the framework or worked out."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.intervals import containing_set, contains_times, covered_ns, merge, subtract, union
from visualprof.views.measure.launch import Launches, is_operator, issue_times
from visualprof.views.measure.steps import DISTANT_PAST, StepWindows, step_windows
from visualprof.views.measure.tensor_core import match_names
from visualprof.views.measure.trace_cache import cached_on_trace

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
STAGE_PRIORITY = ("dataloader", "optimizer", "backward", "forward")  # an instant of two stages is the first one's
AUTOGRAD_NAMES = pattern(
    r"^autograd::engine::evaluate_function|^torch::autograd::AccumulateGrad$|^(?!aten::)\w*Backward\d*$"
)
NO_SPANS = np.zeros((0, 2), np.int64)


class Stage(msgspec.Struct, frozen=True):
    """start, end: (n,) ns of its calls, ascending. spans: (m, 2) ns, disjoint: of those what no other stage has.

    derived: worked out from the operators, not marked in the trace.
    """

    start: Ints
    end: Ints
    spans: Ints
    derived: bool = False


@cached_on_trace
def find_stages(trace: Trace) -> dict[str, Stage]:
    """The stages that the trace has, none of which covers an instant of another.

    A stage is the outermost ranges that the framework or the user marked as such. Where no forward or backward
    is marked it is worked out from the autograd functions. Source: docs/views.md#stages.
    """
    events = trace.events
    marked = {name: rows for name, category in STAGES.items() if len(rows := _marked(trace, name, category))}
    by_stage = {name: np.stack((events.ts[rows], events.end[rows]), axis=1) for name, rows in marked.items()}
    if not {"forward", "backward"} <= by_stage.keys():
        _derive(trace, step_windows(trace), by_stage, marked.get("optimizer", np.zeros(0, np.int64)))
    stages: dict[str, Stage] = {}
    done = NO_SPANS
    closures = _closures(by_stage)
    for name in (n for n in STAGE_PRIORITY if n in by_stage):
        start, end = by_stage[name][:, 0], by_stage[name][:, 1]
        spans = subtract(union(start, end), merge(done, closures) if name == "optimizer" else done)
        stages[name] = Stage(start, end, spans, name not in marked)
        done = merge(done, spans)
    return {name: stages[name] for name in STAGES if name in stages}


def _closures(by_stage: Mapping[str, Ints]) -> Ints:
    """Disjoint intervals of the forward and backward that an optimizer's step calls, as with `step(closure)`."""
    steps = merge(by_stage.get("optimizer", NO_SPANS))
    passes = (by_stage[name] for name in ("forward", "backward") if name in by_stage)
    return merge(*(ranges[contains_times(steps, ranges[:, 0])] for ranges in passes))


def _marked(trace: Trace, name: str, category: Category) -> Rows:
    """Rows of the outermost ranges of a stage in order of time."""
    events = trace.events
    host = trace.track_mask(TrackKind.THREAD)
    mask = (events.category == category) & host
    if not mask.any():
        rows = np.flatnonzero((events.category == Category.ANNOTATION) & host)
        mask[rows[match_names(trace, events.name[rows], lambda text: bool(STAGE_NAMES[name].match(text)))]] = True
    rows = np.flatnonzero(mask & (events.dur > 0))
    rows = rows[nearest_ancestor(events.parent, mask, events.parent[rows]) < 0]
    return rows[np.argsort(events.ts[rows], kind="stable")]


def _derive(trace: Trace, windows: StepWindows, by_stage: dict[str, Ints], optimizer: Rows) -> None:
    """Adds backward and forward of every iteration, (n, 2) ns each, where they are not marked but can be told.

    Backward: from the first to the last of autograd functions between which no operator of a forward ran (one with
    a sequence number, where the trace has those) and no step or other stage began. Forward: from the first operator of
    the iteration to that. An iteration begins after all of these: its step's mark, the backward before it, the
    optimizer's step and the data loading before it, and its `zero_grad` where nothing that a backward goes back to ran
    between those and that. A step that itself calls them (a closure, as
    those of LBFGS and Lightning) does so with operators that have sequence numbers; its own have none.

    Args: by_stage: ranges of the stages that the trace marks. optimizer: rows of those of the optimizer.
    """
    grad = _autograd(trace)
    called = trace.track_mask(TrackKind.THREAD) & (trace.events.dur > 0)
    ops = np.flatnonzero((trace.events.category == Category.OP) & is_operator(trace) & called).astype(np.int32)
    ops = ops[nearest_ancestor(trace.events.parent, grad, ops) < 0]
    if "backward" not in by_stage:
        by_stage["backward"] = _backward(trace, windows, by_stage, np.flatnonzero(grad), ops)
    if "forward" not in by_stage:
        by_stage["forward"] = _forward(trace, windows, by_stage, ops, optimizer)
    for name in [name for name, ranges in by_stage.items() if not len(ranges)]:
        del by_stage[name]


def _backward(trace: Trace, windows: StepWindows, by_stage: Mapping[str, Ints], grad: Rows, ops: Ids) -> Ints:
    """Ranges of autograd functions `grad` that no operator of a forward parts; `ops`: the operators outside of them."""
    events = trace.events
    grad = grad[np.argsort(events.ts[grad], kind="stable")]
    grad = grad[windows.positions_at(events.ts[grad]) >= 0]
    recorded = ops[trace.arg("sequence", ops) >= 0]
    starts = [ranges[:, 0] for ranges in (windows.host_spans, *by_stage.values())]
    borders = np.sort(np.concatenate((events.ts[recorded if len(recorded) else ops], *starts)), kind="stable")
    return _runs(events.ts[grad], events.end[grad], borders)


def _forward(trace: Trace, windows: StepWindows, by_stage: Mapping[str, Ints], ops: Ids, optimizer: Rows) -> Ints:
    """From the first operator of each iteration, when the host asked for it, to its backward."""
    events, backward = trace.events, by_stage["backward"]
    clearing = match_names(trace, events.name[optimizer], lambda text: "zero_grad" in text)
    stepped = events.end[optimizer[~clearing]]
    loaded = by_stage.get("dataloader", NO_SPANS)[:, 1]
    calling = _holding(backward[:, 0], by_stage.get("optimizer", NO_SPANS))
    if len(calling):
        ops = ops[(trace.arg("sequence", ops) >= 0) | ~contains_times(calling, events.ts[ops])]
    before = np.concatenate((windows.host_spans[:, 0], backward[:, 1], stepped, loaded, calling[:, 0]))
    recorded = events.ts[trace.links.src[trace.links.kind == LinkKind.FWDBWD]]
    if len(recorded):  # what a backward goes back to
        zeroed = events.ts[optimizer[clearing]]
        unused = _last(np.sort(recorded), zeroed) < _last(np.sort(before), zeroed)
        before = np.append(before, events.end[optimizer[clearing][unused]])
    begin = _last(np.sort(before), backward[:, 0])
    asked = issue_times(trace, ops, events.ts[ops])
    free = union(asked, np.where(asked == events.ts[ops], events.end[ops], asked + 1))
    free = subtract(free, subtract(merge(*by_stage.values()), subtract(calling, merge(backward))))
    first = np.append(free[:, 0], np.iinfo(np.int64).max)[np.searchsorted(free[:, 1], begin, side="right")]
    forward = np.stack((np.maximum(first, begin), backward[:, 0]), axis=1)
    return forward[forward[:, 0] < forward[:, 1]]


def _autograd(trace: Trace) -> Mask:
    """Of each event: an autograd function, by its name or else as the end of a link from a forward operator."""
    events = trace.events
    named = is_operator(trace) & trace.track_mask(TrackKind.THREAD)
    rows = np.flatnonzero(named)
    named[rows] = match_names(trace, events.name[rows], lambda text: bool(AUTOGRAD_NAMES.search(text)))
    if not named.any():
        named[trace.links.dst[trace.links.kind == LinkKind.FWDBWD]] = True
    return named


def _holding(times: Ints, ranges: Ints) -> Ints:
    """Those of some ranges (n, 2) in which one of ascending times lies, disjoint."""
    place = np.searchsorted(times, ranges)
    return merge(ranges[place[:, 1] > place[:, 0]])


def _runs(start: Ints, end: Ints, borders: Ints) -> Ints:
    """Ranges (m, 2) from the first to the last of events (n,), by start, that no border (k,) parts; all ascending."""
    if not len(start):
        return NO_SPANS
    reach = np.maximum.accumulate(end)
    parted = np.searchsorted(borders, start[1:], side="right") > np.searchsorted(borders, reach[:-1], side="left")
    first = np.flatnonzero(np.concatenate(([True], parted)))
    return np.stack((start[first], reach[np.append(first[1:], len(start)) - 1]), axis=1)


def _last(times: Ints, at: Ints) -> Ints:
    """The last of ascending times up to each, long ago where there is none."""
    return np.concatenate(([DISTANT_PAST], times))[np.searchsorted(times, at, side="right")]


def device_time_in_ranges(trace: Trace, work: Ids, issue: Ids, start: Ints, end: Ints) -> Ints:
    """Duration of the device work that was asked for inside each range, on any thread.

    Args: work, issue: (m,) rows of Launches. start, end: (n,) ns. Returns: (n,) ns.
    """
    known = issue >= 0
    at = trace.events.ts[issue[known]]
    order = np.argsort(at, kind="stable")
    total = np.concatenate(([0], np.cumsum(np.maximum(trace.events.dur[work[known]], 0)[order])))
    at = at[order]
    return total[np.searchsorted(at, end)] - total[np.searchsorted(at, start)]


def stage_times(trace: Trace, windows: StepWindows, stages: Mapping[str, Stage], joined: Launches) -> dict[str, Ints]:
    """Nanoseconds of each step by the stage that asked for what ran; every instant counts once, `other` for no stage.

    Work on devices counts before work on threads that work off a queue, and that before the time in which the host was
    in a stage; of each, forward counts before backward, the optimizer and data loading. Source: docs/views.md#stages.
    """
    events, links = trace.events, trace.links
    later = links.kind == LinkKind.ASYNC
    order = [name for name in ("forward", "backward", "optimizer", "dataloader") if name in stages]
    layers: list[tuple[str, Ints]] = []
    for work, issue in ((joined.work, joined.issuer), (links.dst[later], links.src[later])):
        asked = np.where(issue >= 0, events.ts[issue], DISTANT_PAST)
        by = containing_set([stages[name].spans for name in order], asked)
        layers += [(name, _union_of(trace, work[by == number])) for number, name in enumerate(order)]
        layers.append(("other", _union_of(trace, work)))
    layers += [(name, _own(windows, stages[name].spans)) for name in order]
    layers.append(("other", np.stack((windows.start, windows.end), axis=1)))
    out = {name: np.zeros(len(windows), np.int64) for name in (*STAGES, "other")}
    done = NO_SPANS
    for name, spans in layers:
        out[name] += covered_ns(subtract(spans, done), windows.start, windows.end)
        done = merge(done, spans)
    return out


def _own(windows: StepWindows, spans: Ints) -> Ints:
    """What of each span lies in the step that asked in it."""
    spans, place = windows.split_spans(spans)
    start = np.maximum(spans[:, 0], windows.start[place])
    return union(start, np.maximum(start, np.minimum(spans[:, 1], windows.end[place])))


def _union_of(trace: Trace, rows: Rows) -> Ints:
    return union(trace.events.ts[rows], trace.events.end[rows])
