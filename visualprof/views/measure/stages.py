"""Stages of a step: data loading, forward, backward, optimizer; marked by the framework or worked out."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.intervals import subtract, union
from visualprof.views.measure.launch import is_operator
from visualprof.views.measure.steps import Windows

STAGES = {
    "dataloader": Category.DATALOADER,
    "forward": Category.FORWARD,
    "backward": Category.BACKWARD,
    "optimizer": Category.OPTIMIZER,
}
NAMED = {
    "dataloader": re.compile(r"^\W*(data ?load(er|ing)?|get data|fetch data)\W*$", re.IGNORECASE),
    "forward": re.compile(r"^\W*(forward( pass)?|fwd)\W*$", re.IGNORECASE),
    "backward": re.compile(r"^\W*(backward( pass)?|bwd)\W*$", re.IGNORECASE),
    "optimizer": re.compile(r"^\W*(optimi[sz]er( step)?|optim)\W*$", re.IGNORECASE),
}
AUTOGRAD = re.compile(r"^autograd::engine::evaluate_function|^(?!aten::)\w*Backward\d*$")


@dataclass(frozen=True)
class Stage:
    """start, end: (n,) ns of its ranges, ascending; derived: worked out from the operators, not marked in the trace."""

    start: Ints
    end: Ints
    derived: bool = False

    def spans(self) -> Ints:
        """Disjoint intervals (m, 2) ns."""
        return union(self.start, self.end)


def find_stages(trace: Trace, windows: Windows) -> dict[str, Stage]:
    """The stages that the trace has.

    A stage is the outermost ranges that the framework or the user marked as such. Where no forward or backward
    is marked, backward is the time from the first to the last autograd function of a step, forward the time from the
    first operator of the step, data loading aside, to that. Source: docs/views.md#stages.
    """
    stages = {name: stage for name, category in STAGES.items() if (stage := _marked(trace, name, category)) is not None}
    if "backward" not in stages and (stage := _autograd(trace, windows)) is not None:
        stages["backward"] = stage
    if "forward" not in stages and "backward" in stages and (stage := _before(trace, windows, stages)) is not None:
        stages["forward"] = stage
    return {name: stages[name] for name in STAGES if name in stages}


def _marked(trace: Trace, name: str, category: Category) -> Stage | None:
    events = trace.events
    host = trace.track_mask(TrackKind.THREAD)
    mask = (events.category == category) & host
    if not mask.any():
        ids = [i for i, text in enumerate(trace.strings) if NAMED[name].match(text)]
        mask = np.isin(events.name, ids) & (events.category == Category.ANNOTATION) & host if ids else mask
    rows = np.flatnonzero(mask & (events.dur > 0))
    rows = rows[nearest_ancestor(events.parent, mask, events.parent[rows]) < 0]
    if not len(rows):
        return None
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    return Stage(events.ts[rows], events.end[rows])


def _autograd(trace: Trace, windows: Windows) -> Stage | None:
    """Backward: from the first to the last autograd function of each step."""
    events = trace.events
    ids = [i for i, text in enumerate(trace.strings) if AUTOGRAD.search(text)]
    rows = np.flatnonzero(np.isin(events.name, ids) & is_operator(trace)) if ids else np.zeros(0, np.int64)
    if not len(rows):
        rows = np.unique(trace.links.dst[trace.links.kind == LinkKind.FWDBWD])
    return _hull(windows, events.ts[rows], events.end[rows]) if len(rows) else None


def _before(trace: Trace, windows: Windows, stages: dict[str, Stage]) -> Stage | None:
    """Forward: from the first operator of each step that is not data loading to its backward."""
    events, backward = trace.events, stages["backward"]
    rows = np.flatnonzero(is_operator(trace) & (events.dur > 0))
    loading = stages["dataloader"].spans() if "dataloader" in stages else np.zeros((0, 2), np.int64)
    starts: list[int] = []
    ends: list[int] = []
    for start, end in zip(windows.start, windows.end, strict=True):
        until = backward.start[(backward.start >= start) & (backward.start < end)]
        if not len(until):
            continue
        here = rows[(events.ts[rows] >= start) & (events.end[rows] <= until[0])]
        outside = subtract(union(events.ts[here], events.end[here]), loading)
        if len(outside):
            starts.append(int(outside[0, 0]))
            ends.append(int(until[0]))
    return Stage(np.array(starts), np.array(ends), derived=True) if starts else None


def _hull(windows: Windows, start: Ints, end: Ints) -> Stage | None:
    place = np.searchsorted(windows.start, start, side="right") - 1
    inside = (place >= 0) & (start < windows.end[place])
    if not inside.any():
        return None
    steps = np.unique(place[inside])
    first = np.array([start[inside & (place == s)].min() for s in steps])
    last = np.array([min(int(end[inside & (place == s)].max()), int(windows.end[s])) for s in steps])
    return Stage(first, last, derived=True)


def device_time_within(trace: Trace, work: Ids, issue: Ids, start: Ints, end: Ints) -> Ints:
    """Duration of the device work that was asked for inside each range, on any thread.

    Args: work, issue: (m,) rows of Launches. start, end: (n,) ns. Returns: (n,) ns.
    """
    known = issue >= 0
    at = trace.events.ts[issue[known]]
    order = np.argsort(at, kind="stable")
    total = np.concatenate(([0], np.cumsum(np.maximum(trace.events.dur[work[known]], 0)[order])))
    at = at[order]
    return total[np.searchsorted(at, end)] - total[np.searchsorted(at, start)]
