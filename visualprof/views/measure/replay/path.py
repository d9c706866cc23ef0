"""The critical path: the waits, each decided by the one before it, that make a stretch of time as long as it is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Floats, Ints, Rows, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.groups import one_of
from visualprof.views.measure.replay.graph import KINDS, Graph, Replay

PARTS = (*KINDS, "communication", "memory", "computation")  # kinds of waits, and of device work


class PathPartColumns(Columns):
    """Time on a path by what it is: kinds of waits, and device work."""

    part: kinds.WordColumn
    path_ns: kinds.DurationColumn
    share: kinds.RatioColumn


class Path(msgspec.Struct, frozen=True):
    """(p,) waits and (q,) moments of a path in order.

    edge: of each wait; wait_ns: its time. node: of each moment; work_ns: of its device work. spans: (m, 2) ns in which
    it lies, as the moments were measured.
    """

    edge: Ints
    wait_ns: Floats
    node: Ints
    work_ns: Floats
    spans: Ints


class Scope(msgspec.Struct, frozen=True):
    """A stretch of a replay. start: ns there. last: the moment that ends it, -1 for none. low, high: ns as measured.

    tail: the wait of the host that is cut off at the end, -1 for none; tail_ns: what of it is inside. Times count from
    the recording's first event.
    """

    start: float
    last: int
    low: int
    high: int
    tail: int = -1
    tail_ns: float = 0.0


def ends_of(graph: Graph) -> Ints:
    """The moments of which the latest one ends a recording: device work, and the last step's end."""
    moments, marks = graph.moments, graph.marks
    ends = np.flatnonzero(moments.line < 0)
    if len(marks):
        return np.append(ends, marks[-1])
    return np.arange(len(moments.at)) if len(ends) < len(moments.at) else ends


def window(graph: Graph, at: Floats, dur: Floats) -> tuple[float, float, int]:
    """From the first step's start to the end of the last one and of all device work; the moment that ends it.

    at: (n,) ns when each moment comes. dur: (n,) ns of its work.
    """
    ends, marks = at + dur, graph.marks
    candidates = ends_of(graph)
    if not len(candidates):
        return 0.0, 0.0, -1
    last = int(candidates[np.argmax(ends[candidates])])
    start = at[marks[0]] if len(marks) else at.min()
    return float(start), float(ends[last]), last


def whole(graph: Graph, replay: Replay, dur: Floats) -> Scope:
    """All steps."""
    start, _, last = window(graph, replay.at, dur)
    low, high, _ = window(graph, graph.moments.at.astype(np.float64), graph.moments.dur.astype(np.float64))
    return Scope(start, last, round(low), round(high))


def scope_of(graph: Graph, replay: Replay, dur: Floats, line: int, low: int, high: int) -> Scope:
    """A stretch of a line of control and the device work that was launched in it. low, high: ns as measured."""
    moments, waits = graph.moments, graph.waits
    points = np.flatnonzero(moments.line == line)
    first, behind = np.searchsorted(moments.at[points], (low, high + 1))
    if first >= behind:  # the host did nothing that anything waits for
        return Scope(0.0, -1, low, high)
    begin, last = int(points[first]), int(points[behind - 1])
    tail_ns, tail = float(high - moments.at[last]), -1
    if tail_ns > 0 and behind < len(points):
        mine = np.flatnonzero(waits.dst == points[behind])
        mine = mine[(waits.src[mine] == last) & (waits.kind[mine] <= KINDS.index("call"))]
        tail = int(mine[0]) if len(mine) else -1
    tail_ns = tail_ns if tail >= 0 else 0.0
    launch = waits.kind == KINDS.index("launch")
    asked = moments.at[waits.src]
    work = waits.dst[launch & (asked >= low) & (asked < high)]
    ends = replay.at[work] + dur[work]
    latest_work = int(work[ends.argmax()]) if len(work) else -1
    start = float(replay.at[begin]) - float(moments.at[begin] - low)
    if len(work) and float(ends.max()) > float(replay.at[last]) + tail_ns:
        return Scope(start, latest_work, low, max(high, int(moments.at[latest_work] + moments.dur[latest_work])))
    return Scope(start, last, low, high, tail, tail_ns)


def critical_path(graph: Graph, replay: Replay, dur: Floats, ns: Floats, scope: Scope) -> Path:
    """The path to the last moment of a scope, back to its start; the pieces add up to the time between."""
    edges, node, start = list[int](), scope.last, scope.start
    at, via, src = replay.at.data, replay.via.data, graph.waits.src.data
    while node >= 0 and at[node] > start and (edge := via[node]) >= 0:  # 0.1 us a turn
        edges.append(edge)
        node = src[edge]
    edge = np.array(edges[::-1], np.int64)
    nodes = np.append(graph.waits.src[edge], scope.last) if scope.last >= 0 else np.zeros(0, np.int64)
    wait, work = np.array(ns[edge]), np.array(dur[nodes])
    if len(edge):  # the first piece may begin before the start
        early = max(start - float(replay.at[nodes[0]]), 0.0)
        taken = min(early, float(work[0]))
        work[0] -= taken
        wait[0] -= early - taken
    if scope.tail >= 0:
        edge, wait = np.append(edge, scope.tail), np.append(wait, scope.tail_ns)
    return Path(edge, wait, nodes, work, np.array([[scope.low, scope.high]]))


def together(paths: Sequence[Path]) -> Path:
    """Paths of stretches that do not overlap, one after the other."""
    columns = ([getattr(path, name) for path in paths] for name in Path.__struct_fields__)
    edge, wait_ns, node, work_ns, spans = (np.concatenate(column) for column in columns)
    return Path(edge, wait_ns, node, work_ns, spans)


def parts(trace: Trace, graph: Graph, path: Path, steps: int = 1) -> PathPartColumns:
    """What a path is made of, the largest first, divided by a number of steps."""
    node = path.node
    category = np.where(graph.moments.line[node] < 0, trace.events.category[graph.moments.event[node]], 0)
    kind = np.append(graph.waits.kind[path.edge], part_of_work(category))
    return part_columns(kind, np.append(path.wait_ns, path.work_ns), steps)


def part_of_work(category: Rows) -> Ints:
    """Places in PARTS of device work of some categories; -1 of what is none, with the category -1."""
    copies = one_of(category, (Category.MEMCPY, Category.MEMSET))
    memory, computation = PARTS.index("memory"), PARTS.index("computation")
    part = np.where(category == Category.COMM, PARTS.index("communication"), np.where(copies, memory, computation))
    return np.where(category < 0, -1, part)


def part_columns(part: Rows, ns: Floats, steps: int) -> PathPartColumns:
    """The same of times and what they are, places in PARTS."""
    found = np.bincount(part, ns, len(PARTS))
    order = np.argsort(-found, kind="stable")
    order = order[found[order] >= 0.5]
    places: list[int] = order.tolist()
    return PathPartColumns(
        part=[PARTS[i] for i in places],
        path_ns=found[order] / steps,
        share=found[order] / max(float(found[order].sum()), 1.0),
    )
