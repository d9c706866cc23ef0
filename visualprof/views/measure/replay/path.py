"""The critical path: the waits, each decided by the one before it, that make a stretch of time as long as it is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Floats, Ints, Rows, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.groups import is_in
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Replay, WaitGraph

PATH_PARTS = (*DEPENDENCY_KINDS, "communication", "memory", "computation")  # kinds of waits, and of device work


class PathPartColumns(Columns):
    """Time on a path by what it is: kinds of waits, and device work."""

    part: kinds.WordColumn
    path_ns: kinds.DurationColumn
    share: kinds.RatioColumn


class CriticalPath(msgspec.Struct, frozen=True):
    """(p,) waits and (q,) moments of a path in order.

    edge: of each wait; wait_ns: its time. node: of each moment; work_ns: of its device work. spans: (m, 2) ns in which
    it lies, as the moments were measured.
    """

    edge: Ints
    wait_ns: Floats
    node: Ints
    work_ns: Floats
    spans: Ints


class PathScope(msgspec.Struct, frozen=True):
    """A stretch of a replay. start: ns there. last: the moment that ends it, -1 for none. low, high: ns as measured.

    tail: the wait of the host that is cut off at the end, -1 for none; tail_ns: what of it is inside. Times count from
    the recording's first event.
    """

    start: float
    last_node: int
    low: int
    high: int
    tail_edge: int = -1
    tail_ns: float = 0.0


def end_nodes(graph: WaitGraph) -> Ints:
    """The moments of which the latest one ends a recording: device work, and the last step's end."""
    moments, marks = graph.nodes, graph.step_nodes
    ends = np.flatnonzero(moments.thread_group < 0)
    if len(marks):
        return np.append(ends, marks[-1])
    return np.arange(len(moments.time)) if len(ends) < len(moments.time) else ends


def replay_window(graph: WaitGraph, at: Floats, dur: Floats) -> tuple[float, float, int]:
    """From the first step's start to the end of the last one and of all device work; the moment that ends it.

    at: (n,) ns when each moment comes. dur: (n,) ns of its work.
    """
    ends, marks = at + dur, graph.step_nodes
    candidates = end_nodes(graph)
    if not len(candidates):
        return 0.0, 0.0, -1
    last = int(candidates[np.argmax(ends[candidates])])
    start = at[marks[0]] if len(marks) else at.min()
    return float(start), float(ends[last]), last


def full_scope(graph: WaitGraph, replay: Replay, dur: Floats) -> PathScope:
    """All steps."""
    start, _, last = replay_window(graph, replay.time, dur)
    low, high, _ = replay_window(graph, graph.nodes.time.astype(np.float64), graph.nodes.dur.astype(np.float64))
    return PathScope(start, last, round(low), round(high))


def thread_scope(graph: WaitGraph, replay: Replay, dur: Floats, line: int, low: int, high: int) -> PathScope:
    """A stretch of a line of control and the device work that was launched in it. low, high: ns as measured."""
    moments, waits = graph.nodes, graph.edges
    points = np.flatnonzero(moments.thread_group == line)
    first, behind = np.searchsorted(moments.time[points], (low, high + 1))
    if first >= behind:  # the host did nothing that anything waits for
        return PathScope(0.0, -1, low, high)
    begin, last = int(points[first]), int(points[behind - 1])
    tail_ns, tail = float(high - moments.time[last]), -1
    if tail_ns > 0 and behind < len(points):
        mine = np.flatnonzero(waits.dst == points[behind])
        mine = mine[(waits.src[mine] == last) & (waits.kind[mine] <= DEPENDENCY_KINDS.index("call"))]
        tail = int(mine[0]) if len(mine) else -1
    tail_ns = tail_ns if tail >= 0 else 0.0
    launch = waits.kind == DEPENDENCY_KINDS.index("launch")
    asked = moments.time[waits.src]
    work = waits.dst[launch & (asked >= low) & (asked < high)]
    ends = replay.time[work] + dur[work]
    latest_work = int(work[ends.argmax()]) if len(work) else -1
    start = float(replay.time[begin]) - float(moments.time[begin] - low)
    if len(work) and float(ends.max()) > float(replay.time[last]) + tail_ns:
        return PathScope(start, latest_work, low, max(high, int(moments.time[latest_work] + moments.dur[latest_work])))
    return PathScope(start, last, low, high, tail, tail_ns)


def critical_path(graph: WaitGraph, replay: Replay, dur: Floats, ns: Floats, scope: PathScope) -> CriticalPath:
    """The path to the last moment of a scope, back to its start; the pieces add up to the time between."""
    edges, node, start = list[int](), scope.last_node, scope.start
    at, via, src = replay.time.data, replay.critical_edge.data, graph.edges.src.data
    while node >= 0 and at[node] > start and (edge := via[node]) >= 0:  # 0.1 us a turn
        edges.append(edge)
        node = src[edge]
    edge = np.array(edges[::-1], np.int64)
    nodes = np.append(graph.edges.src[edge], scope.last_node) if scope.last_node >= 0 else np.zeros(0, np.int64)
    wait, work = np.array(ns[edge]), np.array(dur[nodes])
    if len(edge):  # the first piece may begin before the start
        early = max(start - float(replay.time[nodes[0]]), 0.0)
        taken = min(early, float(work[0]))
        work[0] -= taken
        wait[0] -= early - taken
    if scope.tail_edge >= 0:
        edge, wait = np.append(edge, scope.tail_edge), np.append(wait, scope.tail_ns)
    return CriticalPath(edge, wait, nodes, work, np.array([[scope.low, scope.high]]))


def concatenate_paths(paths: Sequence[CriticalPath]) -> CriticalPath:
    """Paths of stretches that do not overlap, one after the other."""
    columns = ([getattr(path, name) for path in paths] for name in CriticalPath.__struct_fields__)
    edge, wait_ns, node, work_ns, spans = (np.concatenate(column) for column in columns)
    return CriticalPath(edge, wait_ns, node, work_ns, spans)


def path_parts(trace: Trace, graph: WaitGraph, path: CriticalPath, steps: int = 1) -> PathPartColumns:
    """What a path is made of, the largest first, divided by a number of steps."""
    node = path.node
    category = np.where(graph.nodes.thread_group[node] < 0, trace.events.category[graph.nodes.event[node]], 0)
    kind = np.append(graph.edges.kind[path.edge], work_parts(category))
    return part_columns(kind, np.append(path.wait_ns, path.work_ns), steps)


def work_parts(category: Rows) -> Ints:
    """Places in PARTS of device work of some categories; -1 of what is none, with the category -1."""
    copies = is_in(category, (Category.MEMCPY, Category.MEMSET))
    memory, computation = PATH_PARTS.index("memory"), PATH_PARTS.index("computation")
    part = np.where(category == Category.COMM, PATH_PARTS.index("communication"), np.where(copies, memory, computation))
    return np.where(category < 0, -1, part)


def part_columns(part: Rows, ns: Floats, steps: int) -> PathPartColumns:
    """The same of times and what they are, places in PARTS."""
    found = np.bincount(part, ns, len(PATH_PARTS))
    order = np.argsort(-found, kind="stable")
    order = order[found[order] >= 0.5]
    places: list[int] = order.tolist()
    return PathPartColumns(
        part=[PATH_PARTS[i] for i in places],
        path_ns=found[order] / steps,
        share=found[order] / max(float(found[order].sum()), 1.0),
    )
