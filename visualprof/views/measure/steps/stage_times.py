"""Measure the time of stages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from visualprof.reader.trace import Ids, Ints, LinkKind, Rows, Trace
from visualprof.views.measure.columns.intervals import containing_set, covered_ns, merge, subtract, union
from visualprof.views.measure.launches.launch import Launches
from visualprof.views.measure.steps.extents import DISTANT_PAST
from visualprof.views.measure.steps.stages import NO_SPANS, STAGES, Stage
from visualprof.views.measure.steps.windows import StepWindows


def device_time_in_ranges(trace: Trace, work: Ids, issuer: Ids, start: Ints, end: Ints) -> Ints:
    """Return the duration of device work that was issued inside each range, on any thread.

    Args:
        trace: The trace.
        work: (m,) device work of `Launches`.
        issuer: (m,) issuer of each.
        start: (n,) ns.
        end: (n,) ns.

    Returns:
        (n,) ns.
    """
    is_issued = issuer >= 0
    issued = trace.events.ts[issuer[is_issued]]
    order = np.argsort(issued, kind="stable")
    cumulative = np.concatenate(([0], np.cumsum(np.maximum(trace.events.dur[work[is_issued]], 0)[order])))
    issued = issued[order]
    return cumulative[np.searchsorted(issued, end)] - cumulative[np.searchsorted(issued, start)]


def stage_times(trace: Trace, windows: StepWindows, stages: Mapping[str, Stage], launched: Launches) -> dict[str, Ints]:
    """Return the time of each step by the stage that issued what ran, in ns.

    All time counts once, `other` for no stage.

    Device work has priority over work dequeued by threads, and that over the time in which the host
    was in a stage. Within each, the priority is forward, backward, optimizer, data loading. Source:
    docs/views/overview.md#stages.
    """
    events, links = trace.events, trace.links
    is_async = links.kind == LinkKind.ASYNC
    order = [name for name in ("forward", "backward", "optimizer", "dataloader") if name in stages]
    layers: list[tuple[str, Ints]] = []
    for work, issuer in ((launched.work, launched.issuer), (links.dst[is_async], links.src[is_async])):
        issued = np.where(issuer >= 0, events.ts[issuer], DISTANT_PAST)
        stage_index = containing_set([stages[name].spans for name in order], issued)
        layers += [(name, _event_union(trace, work[stage_index == index])) for index, name in enumerate(order)]
        layers.append(("other", _event_union(trace, work)))
    layers += [(name, _clip_to_steps(windows, stages[name].spans)) for name in order]
    layers.append(("other", union(windows.start, windows.end)))
    times = {name: np.zeros(len(windows), np.int64) for name in (*STAGES, "other")}
    counted = NO_SPANS
    for name, spans in layers:
        times[name] += covered_ns(subtract(spans, counted), windows.start, windows.end)
        counted = merge(counted, spans)
    return times


def _clip_to_steps(windows: StepWindows, spans: Ints) -> Ints:
    """Return the part of each span that is inside the step that issued it."""
    spans, step_index = windows.split_spans(spans)
    start = np.maximum(spans[:, 0], windows.start[step_index])
    return union(start, np.maximum(start, np.minimum(spans[:, 1], windows.end[step_index])))


def _event_union(trace: Trace, rows: Rows) -> Ints:
    """Return the union of some events."""
    return union(trace.events.ts[rows], trace.events.end[rows])
