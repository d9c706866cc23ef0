"""Location of a critical path in the recording, and slack of the events off the path."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Rows, Trace
from visualprof.views.measure.columns.groups import distinct, is_in
from visualprof.views.measure.columns.intervals import intersect, positions, subtract, union
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_device_work
from visualprof.views.measure.operators.self_time import NO_SPANS, thread_busy_spans
from visualprof.views.measure.replay.baseline import baseline
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Replay, WaitGraph, latest_times
from visualprof.views.measure.replay.path import CriticalPath, critical_path, end_nodes, full_scope


class BaselineReplay(msgspec.Struct, frozen=True):
    """A recording replayed without changes.

    Attributes:
        graph: The graph.
        dur: (n,) ns of device work.
        replay: The replay.
        latest: (n,) latest time of each node that does not delay the end, inf for any time.
    """

    graph: WaitGraph
    dur: Floats
    replay: Replay
    latest: Floats


class PathPieces(msgspec.Struct, frozen=True):
    """Pieces of a path, (p,) sorted by track and start.

    Attributes:
        track: Track of each.
        start: ns as measured.
        end: ns as measured.
        event: Row of device work, otherwise -1.
    """

    track: Ids
    start: Ints
    end: Ints
    event: Ids


@cached_on_trace
def baseline_replay(trace: Trace) -> BaselineReplay:
    """Return the replay of a recording without changes."""
    unchanged = baseline(trace)
    graph, dur, replay = unchanged.graph, unchanged.dur, unchanged.replay
    ends = end_nodes(graph)
    end = float((replay.time + dur)[ends].max()) if len(ends) else 0.0
    return BaselineReplay(graph, dur, replay, latest_times(graph, replay, dur, graph.edges.delay_ns, ends, end))


@cached_on_trace
def baseline_path(trace: Trace) -> CriticalPath:
    """Return the critical path through the whole recording, replayed without changes."""
    unchanged = baseline(trace)
    graph, replay, dur = unchanged.graph, unchanged.replay, unchanged.dur
    return critical_path(graph, replay, dur, graph.edges.delay_ns, full_scope(graph, replay, dur))


@cached_on_trace
def path_pieces(trace: Trace) -> PathPieces:
    """Return the pieces of the critical path through the whole recording."""
    return split_path(trace, baseline(trace).graph, baseline_path(trace))


def split_path(trace: Trace, graph: WaitGraph, path: CriticalPath) -> PathPieces:
    """Return device work and thread intervals on a path.

    In a thread group with several threads, an interval belongs to the thread that worked, otherwise
    to the main thread.
    """
    events, busy_spans = trace.events, thread_busy_spans(trace)
    rows = distinct(path_device_work(graph, path)[0])
    columns: list[tuple[Rows, Ints, Ints, Ints]] = [(events.track[rows], events.ts[rows], events.end[rows], rows)]
    for thread_group, tracks in enumerate(graph.group_tracks):
        remaining = path_host_spans(trace, graph, path, thread_group)
        main = next((track for track in tracks if len(trace.steps) and track == trace.steps.track[0]), tracks[0])
        for track in tracks:
            if track != main:
                thread_spans = intersect(remaining, busy_spans.get(track, NO_SPANS))
                remaining = subtract(remaining, thread_spans)
                columns.append(_thread_pieces(track, thread_spans))
        columns.append(_thread_pieces(main, remaining))
    track, start, end, event = (
        np.concatenate([piece_columns[column] for piece_columns in columns]).astype(np.int64) for column in range(4)
    )
    order = np.lexsort((start, track))
    return PathPieces(track[order].astype(np.int32), start[order], end[order], event[order].astype(np.int32))


def _thread_pieces(track: int, spans: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the columns of the intervals of a thread."""
    count = len(spans)
    return np.full(count, track), spans[:, 0], spans[:, 1], np.full(count, -1)


def path_device_work(graph: WaitGraph, path: CriticalPath) -> tuple[Ints, Floats]:
    """Return the events of device work on the path, and the time of each there."""
    with_work = np.flatnonzero(path.work_ns > 0)
    return graph.nodes.event[path.node[with_work]].astype(np.int64), path.work_ns[with_work]


def path_host_spans(trace: Trace, graph: WaitGraph, path: CriticalPath, thread_group: int) -> Ints:
    """Return when the path is in a thread group, (m, 2) ns in trace time."""
    src, dst = graph.edges.src[path.edge], graph.edges.dst[path.edge]
    is_in_group = (
        (graph.edges.kind[path.edge] <= DEPENDENCY_KINDS.index("call"))
        & (graph.nodes.thread_group[dst] == thread_group)
        & (path.wait_ns > 0)
    )
    return (
        intersect(union(graph.nodes.time[src[is_in_group]], graph.nodes.time[dst[is_in_group]]), path.spans)
        + trace.span_ns[0]
    )


def event_slacks(trace: Trace, rows: Rows) -> Floats:
    """Return how much longer events may take before the recording does, (n,) ns; inf for any time, NaN if unknown.

    For device work it is how much later it may begin; for an event of a thread, how much later the
    next node may come. Source: docs/views/critical.md.
    """
    unchanged, events = baseline_replay(trace), trace.events
    nodes, edges = unchanged.graph.nodes, unchanged.graph.edges
    node_of_event = np.full(len(events) + 1, -1, np.int32)
    work_nodes = unchanged.graph.work_nodes
    node_of_event[nodes.event[work_nodes]] = work_nodes
    work_node = node_of_event[rows]
    slack = np.where(work_node >= 0, (unchanged.latest - unchanged.replay.time)[work_node], np.nan)
    host_delay = np.full(len(nodes.time), np.nan)
    host_edges = np.flatnonzero(edges.kind <= DEPENDENCY_KINDS.index("call"))
    host_delay[edges.dst[host_edges]] = edges.delay_ns[host_edges]
    for thread_group, tracks in enumerate(unchanged.graph.group_tracks):
        points = np.flatnonzero(nodes.thread_group == thread_group)
        if len(points) < 2:
            continue
        host_rows = np.flatnonzero((work_node < 0) & is_in(events.track[rows], tracks) & (events.dur[rows] >= 0))
        next_point = positions(nodes.time[points], events.end[rows[host_rows]] - trace.span_ns[0])
        is_inside = (next_point > 0) & (next_point < len(points))
        host_rows, next_point = host_rows[is_inside], next_point[is_inside]
        ready = unchanged.replay.time[points[next_point - 1]] + host_delay[points[next_point]]
        slack[host_rows] = unchanged.latest[points[next_point]] - ready
    return np.maximum(slack, 0)


def slack_ns(trace: Trace, row: int) -> int | None:
    """Return the slack of one event if the recording has device work; `None` also if any delay is possible."""
    if not is_device_work(trace).any():
        return None
    slack = float(event_slacks(trace, np.array([row]))[0])
    return round(slack) if np.isfinite(slack) else None
