"""Where a path is in the recording, and by how much what is not on it may be late."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Rows, Trace
from visualprof.views.measure.groups import distinct, one_of
from visualprof.views.measure.intervals import intersect, subtract, union
from visualprof.views.measure.launch import is_device_work
from visualprof.views.measure.replay.baseline import baseline
from visualprof.views.measure.replay.graph import KINDS, Graph, Replay, latest
from visualprof.views.measure.replay.path import Path, critical_path, ends_of, whole
from visualprof.views.measure.self_time import NONE, thread_work
from visualprof.views.measure.trace_cache import cached_on_trace


class Known(msgspec.Struct, frozen=True):
    """A recording replayed without a change. late: (n,) when each moment may come at the latest, inf for any time."""

    graph: Graph
    dur: Floats
    replay: Replay
    late: Floats


class Pieces(msgspec.Struct, frozen=True):
    """Stretches of a path, (p,) by (track, start). start, end: ns as measured; event: row of device work, else -1."""

    track: Ids
    start: Ints
    end: Ints
    event: Ids


@cached_on_trace
def replayed(trace: Trace) -> Known:
    """The recording as it is."""
    known = baseline(trace)
    graph, dur, replay = known.graph, known.dur, known.replay
    ends = ends_of(graph)
    end = float((replay.at + dur)[ends].max()) if len(ends) else 0.0
    return Known(graph, dur, replay, latest(graph, replay, dur, graph.waits.ns, ends, end))


@cached_on_trace
def path_pieces(trace: Trace) -> Pieces:
    """The path through all of a recording."""
    known = replayed(trace)
    scope = whole(known.graph, known.replay, known.dur)
    path = critical_path(known.graph, known.replay, known.dur, known.graph.waits.ns, scope)
    return pieces_of(trace, known.graph, path)


def pieces_of(trace: Trace, graph: Graph, path: Path) -> Pieces:
    """Device work, and stretches of threads: of a line of several those of the one that worked, else the main one."""
    events, work = trace.events, thread_work(trace)
    rows = distinct(device_work(graph, path)[0])
    parts: list[tuple[Rows, Ints, Ints, Ints]] = [(events.track[rows], events.ts[rows], events.end[rows], rows)]
    for line, tracks in enumerate(graph.tracks):
        left = host_spans(trace, graph, path, line)
        main = next((track for track in tracks if len(trace.steps) and track == trace.steps.track[0]), tracks[0])
        for track in tracks:
            if track != main:
                mine = intersect(left, work.get(track, NONE))
                left = subtract(left, mine)
                parts.append(_stretch(track, mine))
        parts.append(_stretch(main, left))
    track, start, end, event = (np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(4))
    order = np.lexsort((start, track))
    return Pieces(track[order].astype(np.int32), start[order], end[order], event[order].astype(np.int32))


def _stretch(track: int, spans: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    count = len(spans)
    return np.full(count, track), spans[:, 0], spans[:, 1], np.full(count, -1)


def device_work(graph: Graph, path: Path) -> tuple[Ints, Floats]:
    """Events of device work on the path, and the time of each there."""
    mine = np.flatnonzero(path.work_ns > 0)
    return graph.moments.event[path.node[mine]].astype(np.int64), path.work_ns[mine]


def host_spans(trace: Trace, graph: Graph, path: Path, line: int) -> Ints:
    """When the path is on a line of control, (m, 2) ns as the trace has it."""
    src, dst = graph.waits.src[path.edge], graph.waits.dst[path.edge]
    on = (graph.waits.kind[path.edge] <= KINDS.index("call")) & (graph.moments.line[dst] == line) & (path.wait_ns > 0)
    return intersect(union(graph.moments.at[src[on]], graph.moments.at[dst[on]]), path.spans) + trace.span_ns[0]


def slack_of(trace: Trace, rows: Rows) -> Floats:
    """By how many ns events may take longer before the recording does, (n,); inf for any, nan where it is not known.

    Of device work how much later it may begin; of an event of a thread how much later what follows on that.
    Source: docs/views.md#critical.
    """
    known, events = replayed(trace), trace.events
    moments, waits = known.graph.moments, known.graph.waits
    node = np.full(len(events) + 1, -1)
    work = np.flatnonzero(moments.line < 0)
    node[moments.event[work]] = work
    place = node[rows]
    slack = np.where(place >= 0, (known.late - known.replay.at)[place], np.nan)
    spent = np.full(len(moments.at), np.nan)
    host = np.flatnonzero(waits.kind <= KINDS.index("call"))
    spent[waits.dst[host]] = waits.ns[host]
    for line, tracks in enumerate(known.graph.tracks):
        points = np.flatnonzero(moments.line == line)
        if len(points) < 2:
            continue
        mine = np.flatnonzero((place < 0) & one_of(events.track[rows], tracks) & (events.dur[rows] >= 0))
        behind = np.searchsorted(moments.at[points], events.end[rows[mine]] - trace.span_ns[0])
        inside = (behind > 0) & (behind < len(points))
        mine, behind = mine[inside], behind[inside]
        at = known.replay.at[points[behind - 1]] + spent[points[behind]]
        slack[mine] = known.late[points[behind]] - at
    return np.maximum(slack, 0)


def slack_ns(trace: Trace, row: int) -> int | None:
    """The same of one event where a device works; None where any time will do, too."""
    if not is_device_work(trace).any():
        return None
    slack = float(slack_of(trace, np.array([row]))[0])
    return round(slack) if np.isfinite(slack) else None
