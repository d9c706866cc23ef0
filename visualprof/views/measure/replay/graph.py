"""The wait graph of a recording, and the time of each node when durations change."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np

from visualprof.reader.native import FLOAT64, INT32, INT64, function
from visualprof.reader.trace import Floats, Ids, Ints

DEPENDENCY_KINDS = ("host", "call", "launch", "queue", "wait", "return", "handed", "rank")


class GraphNodes(msgspec.Struct, frozen=True):
    """Nodes of a wait graph: event endpoints on the host, and starts of device work.

    A node comes after all nodes that it waits for.

    Attributes:
        time: (n,) measured ns since the recording's first event.
        event: (n,) row of the event, -1 for the edge of a thread's busy interval.
        thread_group: (n,) group of threads, -1 for device work.
        dur: (n,) ns of device work, 0 for host nodes.
    """

    time: Ints
    event: Ids
    thread_group: Ids
    dur: Ints


class Dependencies(msgspec.Struct, frozen=True, dict=True):
    """Edges of a wait graph, (e,) sorted by `dst`.

    Attributes:
        src: (e,) node that is waited for.
        dst: (e,) node that waits.
        delay_ns: (e,) minimum time from `src` (for device work, from its end) to `dst`.
        kind: (e,) index into `DEPENDENCY_KINDS`.
    """

    src: Ids
    dst: Ids
    delay_ns: Floats
    kind: Ids

    def first_edges(self, count: int) -> Ints:
        """Return where the edges of each node begin and the last ones end, (count + 1,)."""
        starts = self._first_edges
        missing = count + 1 - len(starts)
        return np.append(starts, np.full(missing, len(self.dst))) if missing > 0 else starts

    @cached_property
    def _first_edges(self) -> Ints:
        """Starts of the edges of each node up to the last one with an edge, and the number of edges."""
        return np.append(0, np.cumsum(np.bincount(self.dst)))


class HostEdges(msgspec.Struct, frozen=True):
    """Edges along the threads of one thread group.

    Attributes:
        rows: (h,) edges, ascending.
        start: (h,) measured time of the earlier node in ns.
        end: (h,) measured time of the later node in ns.
    """

    rows: Ints
    start: Ints
    end: Ints


class WaitGraph(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A recording as nodes that wait for each other.

    Attributes:
        nodes: The nodes.
        edges: The dependencies.
        step_nodes: Nodes of the starts of the steps and of the end of the last one.
        group_tracks: Tracks of each thread group.
        launch_ns: Median time from a launch to its work on a free device, used for every launch.
        gap_ns: Median time between queued pieces of work.
        return_ns: Median time from the end of work to the end of the call that waits for it.
        unexplained_ns: Total time by which work began later than everything it is known to wait
            for.
    """

    nodes: GraphNodes
    edges: Dependencies
    step_nodes: Ints
    group_tracks: tuple[tuple[int, ...], ...]
    launch_ns: float
    gap_ns: float
    return_ns: float
    unexplained_ns: int

    @cached_property
    def work_nodes(self) -> Ints:
        """Nodes of device work, ascending."""
        return np.flatnonzero(self.nodes.thread_group < 0)

    @cached_property
    def host_edges(self) -> list[HostEdges]:
        """Edges along the threads of each thread group."""
        time, src, dst = self.nodes.time, self.edges.src, self.edges.dst
        edges = np.flatnonzero(self.edges.kind <= DEPENDENCY_KINDS.index("call"))
        thread_group = self.nodes.thread_group[dst[edges]]
        groups = [edges[thread_group == number] for number in range(len(self.group_tracks))]
        return [HostEdges(rows, time[src[rows]], time[dst[rows]]) for rows in groups]


class Replay(msgspec.Struct, frozen=True):
    """Result of a replay.

    Attributes:
        time: (n,) ns of each node.
        critical_edge: (n,) edge that determined the time, -1 for none; empty if only the times were requested.
    """

    time: Floats
    critical_edge: Ints


def solve(graph: WaitGraph, dur: Floats, delay_ns: Floats, *, only_times: bool = False) -> Replay:
    """Return each node as early as its dependencies allow; nodes without dependencies keep their measured time.

    Args:
        graph: The graph.
        dur: (n,) ns of device work.
        delay_ns: (e,) ns of the edges, -inf for a removed one.
        only_times: The critical edges are not needed.
    """
    nodes, edges = graph.nodes, graph.edges
    count = len(nodes.time)
    first = edges.first_edges(count)
    time = nodes.time.astype(np.float64)
    native = function("vp_replay", None, INT64, INT32, FLOAT64, FLOAT64, c_int64, FLOAT64, c_void_p)
    if native:
        critical_edge = np.empty(0 if only_times else count, np.int64)
        address = None if only_times else critical_edge.ctypes.data
        native(first, edges.src, np.ascontiguousarray(delay_ns), np.ascontiguousarray(dur), count, time, address)
        return Replay(time, critical_edge)
    critical_edge = np.full(count, -1, np.int64)
    return _solve_fallback(first, edges.src, delay_ns, dur, time, critical_edge)


def latest_times(graph: WaitGraph, replay: Replay, dur: Floats, delay_ns: Floats, ends: Ints, end: float) -> Floats:
    """Return the latest time of each node that does not delay the end, (n,) ns; inf if no end depends on the node.

    Args:
        graph: The graph.
        replay: Its replay.
        dur: (n,) ns of device work, as in `solve`.
        delay_ns: (e,) ns of the edges, as in `solve`.
        ends: Nodes whose work must be finished at `end`.
        end: ns.
    """
    nodes, edges = graph.nodes, graph.edges
    count = len(nodes.time)
    first = edges.first_edges(count)
    latest = np.full(count, np.inf)
    latest[ends] = end - dur[ends]
    native = function("vp_latest", None, INT64, INT32, FLOAT64, FLOAT64, c_int64, FLOAT64)
    if native:
        native(first, edges.src, np.ascontiguousarray(delay_ns), np.ascontiguousarray(dur), count, latest)
    else:
        latest = _latest_fallback(first, edges.src, delay_ns, dur, latest)
    return np.maximum(latest, replay.time)  # correct rounding errors


def _latest_fallback(first: Ints, src: Ids, delay_ns: Floats, dur: Floats, latest: Floats) -> Floats:
    """Return the latest times without native code."""
    starts, sources, delays, lengths, times_left = (
        first.tolist(),
        src.tolist(),
        delay_ns.tolist(),
        dur.tolist(),
        latest.tolist(),
    )
    for node in range(len(times_left) - 1, -1, -1):
        for edge in range(starts[node], starts[node + 1]):
            source = sources[edge]
            candidate = times_left[node] - delays[edge] - lengths[source]
            times_left[source] = min(times_left[source], candidate)
    return np.array(times_left)


def _solve_fallback(first: Ints, src: Ids, delay_ns: Floats, dur: Floats, time: Floats, critical_edge: Ints) -> Replay:
    """Return the replay without native code."""
    starts, sources, delays, lengths, solved = (
        first.tolist(),
        src.tolist(),
        delay_ns.tolist(),
        dur.tolist(),
        time.tolist(),
    )
    for node, (first_edge, last_edge) in enumerate(pairwise(starts)):
        latest = -np.inf
        for edge in range(first_edge, last_edge):
            source = sources[edge]
            candidate = solved[source] + lengths[source] + delays[edge]
            if candidate > latest:
                latest, critical_edge[node] = candidate, edge
        if critical_edge[node] >= 0:
            solved[node] = latest
    return Replay(np.array(solved), critical_edge)
