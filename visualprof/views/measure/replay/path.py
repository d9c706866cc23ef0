"""The critical path: the waits, each decided by the one before it, that make a stretch of time as long as it is."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Floats, Ints, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.groups import one_of
from visualprof.views.measure.replay.graph import KINDS, Graph, Replay


class PathPartColumns(Columns):
    """Time on a path by what it is: kinds of waits, and device work."""

    part: kinds.Words
    path_ns: kinds.Durations
    share: kinds.Ratios


class Path(msgspec.Struct, frozen=True):
    """(p,) pieces of a path in order. edge: the wait of each.

    wait_ns: its time; work_ns: of the device work before it. last: the moment that it leads to, last_work_ns: its work.
    """

    edge: Ints
    wait_ns: Floats
    work_ns: Floats
    last_work_ns: float
    last: int


def window(graph: Graph, at: Floats, dur: Floats) -> tuple[float, float, int]:
    """From the first step's start to the end of the last one and of all device work; the moment that ends it.

    at: (n,) ns when each moment comes. dur: (n,) ns of its work.
    """
    ends, marks = at + dur, graph.marks
    candidates = np.flatnonzero(graph.moments.line < 0)
    if len(marks):
        candidates = np.append(candidates, marks[-1])
    elif len(candidates) < len(ends):
        candidates = np.arange(len(ends))
    if not len(candidates):
        return 0.0, 0.0, -1
    last = int(candidates[np.argmax(ends[candidates])])
    start = at[marks[0]] if len(marks) else at.min()
    return float(start), float(ends[last]), last


def critical_path(graph: Graph, replay: Replay, dur: Floats, ns: Floats, start: float, last: int) -> Path:
    """The path to a moment, back to a time. Its pieces and the last moment's work add up to the time between."""
    edges, node = list[int](), last
    while node >= 0 and replay.at[node] > start and (edge := int(replay.via[node])) >= 0:
        edges.append(edge)
        node = int(graph.waits.src[edge])
    edge = np.array(edges[::-1], np.int64)
    src = graph.waits.src[edge]
    wait, work = np.array(ns[edge]), np.array(dur[src])
    if len(edge):  # the first piece may begin before the start
        early = max(start - float(replay.at[src[0]]), 0.0)
        taken = min(early, float(work[0]))
        work[0] -= taken
        wait[0] -= early - taken
    return Path(edge, wait, work, float(dur[last]) if last >= 0 else 0.0, last)


def parts(trace: Trace, graph: Graph, path: Path, steps: int = 1) -> PathPartColumns:
    """What a path is made of, the largest first, divided by a number of steps."""
    if path.last < 0:
        return PathPartColumns(part=[], path_ns=[], share=[])
    node, spent = np.append(graph.waits.src[path.edge], path.last), np.append(path.work_ns, path.last_work_ns)
    category = np.where(graph.moments.line[node] < 0, trace.events.category[graph.moments.event[node]], -1)
    waited: list[float] = np.bincount(graph.waits.kind[path.edge], path.wait_ns, len(KINDS)).tolist()
    found = dict[str, float](zip(KINDS, waited, strict=True))
    found["communication"] = float(spent[category == Category.COMM].sum())
    found["memory"] = float(spent[one_of(category, (Category.MEMCPY, Category.MEMSET))].sum())
    found["computation"] = float(spent.sum()) - found["communication"] - found["memory"]
    shown = sorted((part for part, ns in found.items() if ns >= 0.5), key=lambda part: -found[part])
    ns = np.array([found[part] for part in shown])
    return PathPartColumns(part=shown, path_ns=ns / steps, share=ns / max(float(ns.sum()), 1.0))
