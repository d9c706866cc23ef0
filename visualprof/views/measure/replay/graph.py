"""Moments of a recording, what each waits for, and when it comes when something takes another time."""

from __future__ import annotations

from ctypes import c_int64
from itertools import pairwise

import msgspec
import numpy as np

from visualprof.reader.native import FLOAT64, INT32, INT64, function
from visualprof.reader.trace import Floats, Ids, Ints

DEPENDENCY_KINDS = ("host", "call", "launch", "queue", "wait", "return", "handed", "rank")


class GraphNodes(msgspec.Struct, frozen=True):
    """Moments of the host and starts of device work, each behind all that it waits for.

    at: (n,) ns as measured, since the recording's first event. event: (n,) its row, -1 for an edge of a thread's work.
    line: (n,) line of control, -1 for device work. dur: (n,) ns of device work, 0 of the host.
    """

    time: Ints
    event: Ids
    thread_group: Ids
    dur: Ints


class Dependencies(msgspec.Struct, frozen=True):
    """(e,) edges by dst. ns: from src, of work from its end, to dst at the earliest. kind: places in KINDS."""

    src: Ids
    dst: Ids
    delay_ns: Floats
    kind: Ids

    def first_edges(self, count: int) -> Ints:
        """Where those of each of so many moments begin, and the last ones end, (count + 1,)."""
        return np.append(0, np.cumsum(np.bincount(self.dst, minlength=count)))


class WaitGraph(msgspec.Struct, frozen=True):
    """A recording as moments that wait for one another.

    marks: moments of the steps' starts and of the last one's end. tracks: of each line of control. launch_ns, gap_ns,
    return_ns: medians that stand for every launch, for the pace of a queue, and for the way from work back to the call
    that awaits it. unexplained_ns: by how much work began later than all that it is known to wait for, summed.
    """

    nodes: GraphNodes
    edges: Dependencies
    step_nodes: Ints
    group_tracks: tuple[tuple[int, ...], ...]
    launch_ns: float
    gap_ns: float
    return_ns: float
    unexplained_ns: int


class Replay(msgspec.Struct, frozen=True):
    """When each moment comes, (n,) ns; via: (n,) the edge that it came by, -1 for none."""

    time: Floats
    critical_edge: Ints


def solve(graph: WaitGraph, dur: Floats, ns: Floats) -> Replay:
    """Every moment as early as all that it waits for lets it be; one that waits for nothing as it was measured.

    Args: dur: (n,) ns of the moments' work. ns: (e,) ns of the waits, -inf for one that is no more.
    """
    moments, waits = graph.nodes, graph.edges
    count = len(moments.time)
    first = waits.first_edges(count)
    at, via = moments.time.astype(np.float64), np.full(count, -1, np.int64)
    native = function("vp_replay", None, INT64, INT32, FLOAT64, FLOAT64, c_int64, FLOAT64, INT64)
    if native:
        native(first, waits.src, np.ascontiguousarray(ns), np.ascontiguousarray(dur), count, at, via)
        return Replay(at, via)
    return _solve(first, waits.src, ns, dur, at, via)


def latest_times(graph: WaitGraph, replay: Replay, dur: Floats, ns: Floats, ends: Ints, end: float) -> Floats:
    """When each moment may come at the latest without moving an end, (n,) ns; inf where nothing waits for it.

    Args: ends: moments whose work must have ended by then. The others as in `solve`.
    """
    moments, waits = graph.nodes, graph.edges
    count = len(moments.time)
    first = waits.first_edges(count)
    late = np.full(count, np.inf)
    late[ends] = end - dur[ends]
    native = function("vp_latest", None, INT64, INT32, FLOAT64, FLOAT64, c_int64, FLOAT64)
    if native:
        native(first, waits.src, np.ascontiguousarray(ns), np.ascontiguousarray(dur), count, late)
    else:
        late = _latest(first, waits.src, ns, dur, late)
    return np.maximum(late, replay.time)  # what rounding takes from it


def _latest(first: Ints, src: Ids, ns: Floats, dur: Floats, late: Floats) -> Floats:
    starts, sources, times, lengths, known = first.tolist(), src.tolist(), ns.tolist(), dur.tolist(), late.tolist()
    for node in range(len(known) - 1, -1, -1):
        for edge in range(starts[node], starts[node + 1]):
            source = sources[edge]
            ready = known[node] - times[edge] - lengths[source]
            known[source] = min(known[source], ready)
    return np.array(known)


def _solve(first: Ints, src: Ids, ns: Floats, dur: Floats, at: Floats, via: Ints) -> Replay:
    starts, sources, times, lengths, come = first.tolist(), src.tolist(), ns.tolist(), dur.tolist(), at.tolist()
    for node, (low, high) in enumerate(pairwise(starts)):
        latest = -np.inf
        for edge in range(low, high):
            source = sources[edge]
            ready = come[source] + lengths[source] + times[edge]
            if ready > latest:
                latest, via[node] = ready, edge
        if via[node] >= 0:
            come[node] = latest
    return Replay(np.array(come), via)
