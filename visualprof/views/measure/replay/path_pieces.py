"""Where a path is in the recording, and by how much what is not on it may be late."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Rows, Trace
from visualprof.views.measure.groups import distinct, is_in
from visualprof.views.measure.intervals import intersect, subtract, union
from visualprof.views.measure.launch import is_device_work
from visualprof.views.measure.replay.baseline import baseline
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Replay, WaitGraph, latest_times
from visualprof.views.measure.replay.path import CriticalPath, critical_path, end_nodes, full_scope
from visualprof.views.measure.self_time import NO_SPANS, thread_busy_spans
from visualprof.views.measure.trace_cache import cached_on_trace


class BaselineReplay(msgspec.Struct, frozen=True):
    """A recording replayed without a change. late: (n,) when each moment may come at the latest, inf for any time."""

    graph: WaitGraph
    dur: Floats
    replay: Replay
    latest: Floats


class PathPieces(msgspec.Struct, frozen=True):
    """Stretches of a path, (p,) by (track, start). start, end: ns as measured; event: row of device work, else -1."""

    track: Ids
    start: Ints
    end: Ints
    event: Ids


@cached_on_trace
def baseline_replay(trace: Trace) -> BaselineReplay:
    """The recording as it is."""
    known = baseline(trace)
    graph, dur, replay = known.graph, known.dur, known.replay
    ends = end_nodes(graph)
    end = float((replay.time + dur)[ends].max()) if len(ends) else 0.0
    return BaselineReplay(graph, dur, replay, latest_times(graph, replay, dur, graph.edges.delay_ns, ends, end))


@cached_on_trace
def path_pieces(trace: Trace) -> PathPieces:
    """The path through all of a recording."""
    known = baseline_replay(trace)
    scope = full_scope(known.graph, known.replay, known.dur)
    path = critical_path(known.graph, known.replay, known.dur, known.graph.edges.delay_ns, scope)
    return split_path(trace, known.graph, path)


def split_path(trace: Trace, graph: WaitGraph, path: CriticalPath) -> PathPieces:
    """Device work, and stretches of threads: of a line of several those of the one that worked, else the main one."""
    events, work = trace.events, thread_busy_spans(trace)
    rows = distinct(path_device_work(graph, path)[0])
    parts: list[tuple[Rows, Ints, Ints, Ints]] = [(events.track[rows], events.ts[rows], events.end[rows], rows)]
    for line, tracks in enumerate(graph.group_tracks):
        left = path_host_spans(trace, graph, path, line)
        main = next((track for track in tracks if len(trace.steps) and track == trace.steps.track[0]), tracks[0])
        for track in tracks:
            if track != main:
                mine = intersect(left, work.get(track, NO_SPANS))
                left = subtract(left, mine)
                parts.append(_stretch(track, mine))
        parts.append(_stretch(main, left))
    track, start, end, event = (np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(4))
    order = np.lexsort((start, track))
    return PathPieces(track[order].astype(np.int32), start[order], end[order], event[order].astype(np.int32))


def _stretch(track: int, spans: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    count = len(spans)
    return np.full(count, track), spans[:, 0], spans[:, 1], np.full(count, -1)


def path_device_work(graph: WaitGraph, path: CriticalPath) -> tuple[Ints, Floats]:
    """Events of device work on the path, and the time of each there."""
    mine = np.flatnonzero(path.work_ns > 0)
    return graph.nodes.event[path.node[mine]].astype(np.int64), path.work_ns[mine]


def path_host_spans(trace: Trace, graph: WaitGraph, path: CriticalPath, line: int) -> Ints:
    """When the path is on a line of control, (m, 2) ns as the trace has it."""
    src, dst = graph.edges.src[path.edge], graph.edges.dst[path.edge]
    on = (
        (graph.edges.kind[path.edge] <= DEPENDENCY_KINDS.index("call"))
        & (graph.nodes.thread_group[dst] == line)
        & (path.wait_ns > 0)
    )
    return intersect(union(graph.nodes.time[src[on]], graph.nodes.time[dst[on]]), path.spans) + trace.span_ns[0]


def event_slacks(trace: Trace, rows: Rows) -> Floats:
    """By how many ns events may take longer before the recording does, (n,); inf for any, nan where it is not known.

    Of device work how much later it may begin; of an event of a thread how much later what follows on that.
    Source: docs/views.md#critical.
    """
    known, events = baseline_replay(trace), trace.events
    moments, waits = known.graph.nodes, known.graph.edges
    node = np.full(len(events) + 1, -1)
    work = np.flatnonzero(moments.thread_group < 0)
    node[moments.event[work]] = work
    place = node[rows]
    slack = np.where(place >= 0, (known.latest - known.replay.time)[place], np.nan)
    spent = np.full(len(moments.time), np.nan)
    host = np.flatnonzero(waits.kind <= DEPENDENCY_KINDS.index("call"))
    spent[waits.dst[host]] = waits.delay_ns[host]
    for line, tracks in enumerate(known.graph.group_tracks):
        points = np.flatnonzero(moments.thread_group == line)
        if len(points) < 2:
            continue
        mine = np.flatnonzero((place < 0) & is_in(events.track[rows], tracks) & (events.dur[rows] >= 0))
        behind = np.searchsorted(moments.time[points], events.end[rows[mine]] - trace.span_ns[0])
        inside = (behind > 0) & (behind < len(points))
        mine, behind = mine[inside], behind[inside]
        at = known.replay.time[points[behind - 1]] + spent[points[behind]]
        slack[mine] = known.latest[points[behind]] - at
    return np.maximum(slack, 0)


def slack_ns(trace: Trace, row: int) -> int | None:
    """The same of one event where a device works; None where any time will do, too."""
    if not is_device_work(trace).any():
        return None
    slack = float(event_slacks(trace, np.array([row]))[0])
    return round(slack) if np.isfinite(slack) else None
