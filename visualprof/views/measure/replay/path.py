"""The critical path: the chain of dependencies that determines the length of an interval."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double, c_int64

import msgspec
import numpy as np

from visualprof.reader.native import FLOAT64, INT32, INT64, function
from visualprof.reader.trace import Category, Floats, Ints, Rows, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.columns.groups import is_in
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Replay, WaitGraph

PATH_PARTS = (*DEPENDENCY_KINDS, "communication", "memory", "computation")  # kinds of dependencies, and of device work


class PathPartColumns(Columns):
    """Time on a path by kind of dependency and of device work."""

    part: kinds.WordColumn
    path_ns: kinds.DurationColumn
    share: kinds.RatioColumn


class CriticalPath(msgspec.Struct, frozen=True):
    """A path of p edges and q nodes, in order.

    Attributes:
        edge: (p,) edges.
        wait_ns: (p,) time of each edge.
        node: (q,) nodes.
        work_ns: (q,) time of each node's device work.
        spans: (m, 2) ns that the path covers, as measured.
    """

    edge: Ints
    wait_ns: Floats
    node: Ints
    work_ns: Floats
    spans: Ints


class PathScope(msgspec.Struct, frozen=True):
    """An interval of a replay. Times count from the recording's first event.

    Attributes:
        start: Start in the replay, ns.
        last_node: Node that ends the interval, -1 for none.
        low: Start as measured, ns.
        high: End as measured, ns.
        tail_edge: Host edge that is cut off at the end, -1 for none.
        tail_ns: Part of that edge inside the interval.
    """

    start: float
    last_node: int
    low: int
    high: int
    tail_edge: int = -1
    tail_ns: float = 0.0


def end_nodes(graph: WaitGraph) -> Ints:
    """Return the nodes that may end a recording: device work, and the end of the last step."""
    nodes, step_nodes = graph.nodes, graph.step_nodes
    ends = np.flatnonzero(nodes.thread_group < 0)
    if len(step_nodes):
        return np.append(ends, step_nodes[-1])
    return np.arange(len(nodes.time)) if len(ends) < len(nodes.time) else ends


def replay_window(graph: WaitGraph, time: Floats, dur: Floats) -> tuple[float, float, int]:
    """Return the start of the first step, the end of the last step and of all device work, and the node that ends it.

    Args:
        graph: The graph.
        time: (n,) ns of each node.
        dur: (n,) ns of device work.
    """
    ends, step_nodes = time + dur, graph.step_nodes
    candidates = end_nodes(graph)
    if not len(candidates):
        return 0.0, 0.0, -1
    last_node = int(candidates[np.argmax(ends[candidates])])
    start = time[step_nodes[0]] if len(step_nodes) else time.min()
    return float(start), float(ends[last_node]), last_node


def full_scope(graph: WaitGraph, replay: Replay, dur: Floats) -> PathScope:
    """Return the scope of all steps."""
    start, _, last_node = replay_window(graph, replay.time, dur)
    start_ns, end_ns, _ = replay_window(graph, graph.nodes.time.astype(np.float64), graph.nodes.dur.astype(np.float64))
    return PathScope(start, last_node, round(start_ns), round(end_ns))


def thread_scope(graph: WaitGraph, replay: Replay, dur: Floats, thread_group: int, low: int, high: int) -> PathScope:
    """Return the scope of an interval of a thread group, including device work launched in it.

    Args:
        graph: The graph.
        replay: Its replay.
        dur: (n,) ns of device work.
        thread_group: The thread group.
        low: Start as measured, ns.
        high: End as measured, ns.
    """
    nodes, edges = graph.nodes, graph.edges
    points = np.flatnonzero(nodes.thread_group == thread_group)
    start_index, end_index = np.searchsorted(nodes.time[points], (low, high + 1))
    if start_index >= end_index:  # no node depends on the host in this interval
        return PathScope(0.0, -1, low, high)
    first_node, last_node = int(points[start_index]), int(points[end_index - 1])
    tail_ns, tail_edge = float(high - nodes.time[last_node]), -1
    if tail_ns > 0 and end_index < len(points):
        following_edges = np.flatnonzero(edges.dst == points[end_index])
        following_edges = following_edges[
            (edges.src[following_edges] == last_node) & (edges.kind[following_edges] <= DEPENDENCY_KINDS.index("call"))
        ]
        tail_edge = int(following_edges[0]) if len(following_edges) else -1
    tail_ns = tail_ns if tail_edge >= 0 else 0.0
    is_launch = edges.kind == DEPENDENCY_KINDS.index("launch")
    issued = nodes.time[edges.src]
    work_nodes = edges.dst[is_launch & (issued >= low) & (issued < high)]
    ends = replay.time[work_nodes] + dur[work_nodes]
    latest_work = int(work_nodes[ends.argmax()]) if len(work_nodes) else -1
    start = float(replay.time[first_node]) - float(nodes.time[first_node] - low)
    if len(work_nodes) and float(ends.max()) > float(replay.time[last_node]) + tail_ns:
        return PathScope(start, latest_work, low, max(high, int(nodes.time[latest_work] + nodes.dur[latest_work])))
    return PathScope(start, last_node, low, high, tail_edge, tail_ns)


def critical_path(graph: WaitGraph, replay: Replay, dur: Floats, delay_ns: Floats, scope: PathScope) -> CriticalPath:
    """Return the path to the last node of a scope, back to its start; its pieces add up to the time between."""
    start = scope.start
    edge = _path_edges(graph, replay, scope)
    nodes = np.append(graph.edges.src[edge], scope.last_node) if scope.last_node >= 0 else np.zeros(0, np.int64)
    wait_ns, work_ns = np.array(delay_ns[edge]), np.array(dur[nodes])
    if len(edge):  # the first piece may begin before the start of the scope
        early = max(start - float(replay.time[nodes[0]]), 0.0)
        cut_from_work = min(early, float(work_ns[0]))
        work_ns[0] -= cut_from_work
        wait_ns[0] -= early - cut_from_work
    if scope.tail_edge >= 0:
        edge, wait_ns = np.append(edge, scope.tail_edge), np.append(wait_ns, scope.tail_ns)
    return CriticalPath(edge, wait_ns, nodes, work_ns, np.array([[scope.low, scope.high]]))


def _path_edges(graph: WaitGraph, replay: Replay, scope: PathScope) -> Ints:
    """Return the edges of the path to the last node of a scope, in order of time."""
    node, start, src = scope.last_node, scope.start, graph.edges.src
    native = function("vp_path", c_int64, FLOAT64, INT64, INT32, c_int64, c_double, INT64)
    if native and node >= 0:
        backwards = np.empty(node + 1, np.int64)
        count: int = native(replay.time, replay.critical_edge, src, node, start, backwards)
        return np.array(backwards[:count][::-1])
    edges = list[int]()
    time, critical_edge, sources = replay.time.data, replay.critical_edge.data, src.data
    while node >= 0 and time[node] > start and (edge := critical_edge[node]) >= 0:  # 0.1 us per iteration
        edges.append(edge)
        node = sources[edge]
    return np.array(edges[::-1], np.int64)


def concatenate_paths(paths: Sequence[CriticalPath]) -> CriticalPath:
    """Return the paths of disjoint intervals as one."""
    columns = ([getattr(path, name) for path in paths] for name in CriticalPath.__struct_fields__)
    edge, wait_ns, node, work_ns, spans = (np.concatenate(column) for column in columns)
    return CriticalPath(edge, wait_ns, node, work_ns, spans)


def path_parts(trace: Trace, graph: WaitGraph, path: CriticalPath, step_count: int = 1) -> PathPartColumns:
    """Return what a path is made of, the largest part first, divided by a number of steps."""
    node = path.node
    category = np.where(graph.nodes.thread_group[node] < 0, trace.events.category[graph.nodes.event[node]], 0)
    kind = np.append(graph.edges.kind[path.edge], work_parts(category))
    return part_columns(kind, np.append(path.wait_ns, path.work_ns), step_count)


def work_parts(category: Rows) -> Ints:
    """Return the index in `PATH_PARTS` of device work of some categories; -1 for category -1."""
    copies = is_in(category, (Category.MEMCPY, Category.MEMSET))
    memory, computation = PATH_PARTS.index("memory"), PATH_PARTS.index("computation")
    part = np.where(category == Category.COMM, PATH_PARTS.index("communication"), np.where(copies, memory, computation))
    return np.where(category < 0, -1, part)


def part_columns(part: Rows, ns: Floats, step_count: int) -> PathPartColumns:
    """Return times by part, the largest first, divided by a number of steps.

    Args:
        part: Index into `PATH_PARTS` of each time.
        ns: Times.
        step_count: Number of steps.
    """
    totals = np.bincount(part, ns, len(PATH_PARTS))
    order = np.argsort(-totals, kind="stable")
    order = order[totals[order] >= 0.5]
    part_indices: list[int] = order.tolist()
    return PathPartColumns(
        part=[PATH_PARTS[index] for index in part_indices],
        path_ns=totals[order] / step_count,
        share=totals[order] / max(float(totals[order].sum()), 1.0),
    )
