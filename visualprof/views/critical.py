"""The critical path: what makes the steps as long as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.trace import Category, Floats, Ints, Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import union
from visualprof.views.measure.launch import is_device_work
from visualprof.views.measure.own_time import own_time, sum_by_name
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.graph import KINDS, Graph, solve
from visualprof.views.measure.replay.path import Path, PathPartColumns, critical_path, parts, window
from visualprof.views.measure.timing import names, ordered

LONGEST = 60  # pieces that are listed


class CriticalColumns(Columns):
    """What is on the path by name: device work, and own time of the host's events, "" for time in none of them.

    pieces: of device work, and events of the host.
    """

    name: kinds.Names
    category: kinds.Words
    path_ns: kinds.Durations
    share: kinds.Ratios
    pieces: kinds.Counts


class PieceColumns(Columns):
    """The longest stretches of the path in one place. start_ns, end_ns: since the first event, as measured."""

    duration_ns: kinds.Durations
    part: kinds.Words
    name: kinds.Names
    start_ns: kinds.Durations
    end_ns: kinds.Durations
    track: kinds.Identifiers


class CriticalAnswer(Table[CriticalColumns]):
    """The path through all steps. measured_ns: of the recording; path_ns: of its replay, which the path makes up."""

    measured_ns: kinds.Duration
    path_ns: kinds.Duration
    parts: Table[PathPartColumns]
    longest: Table[PieceColumns]


def needs(trace: Trace) -> bool:
    """Work on a device: without any the path is the thread."""
    return bool(is_device_work(trace).any())


def compute(trace: Trace, params: Params) -> CriticalAnswer:
    """The path from the first step's start to the end of the last one and of all device work.

    Source: docs/views.md#critical.
    """
    graph = wait_graph(trace)
    dur, ns, at = graph.moments.dur.astype(np.float64), graph.waits.ns, graph.moments.at.astype(np.float64)
    replay = solve(graph, dur, ns)
    start, end, last = window(graph, replay.at, dur)
    begun, ended, _ = window(graph, at, dur)
    path = critical_path(graph, replay, dur, ns, start, last)
    total = max(end - start, 1.0)
    return CriticalAnswer(
        columns=_names(trace, graph, path, total),
        measured_ns=round(ended - begun),
        path_ns=round(end - start),
        parts=Table(columns=parts(trace, graph, path)),
        longest=Table(columns=_longest(trace, graph, path)),
    )


def make_charts(result: CriticalAnswer, params: Params, top: int) -> dict[str, charts.Option]:
    """`path`: time on it by what it is."""
    shown = result.parts.columns
    slices = [(f"@t:idle.part.{part}", ns) for part, ns in zip(shown.part, shown.path_ns, strict=True)]
    return {"path": charts.pie(slices, colors=True)}


def _names(trace: Trace, graph: Graph, path: Path, total: float) -> CriticalColumns:
    events = trace.events
    rows, ns = _device_work(graph, path)
    groups = group(events.name[rows], events.category[rows])
    found = [own_time(trace, tracks, _spans(graph, path, line)) for line, tracks in enumerate(graph.tracks)]
    host, outside = sum_by_name(trace, found), sum(one.outside for one in found)
    extra: list[int] = [outside] if outside else []
    spent = np.concatenate((groups.sum(ns), host.ns, np.array(extra, np.int64)))
    categories = [Category(int(c)).name.lower() for c in events.category[rows][groups.first]]
    columns: dict[str, Column] = {
        "name": [*names(trace, events.name[rows][groups.first]), *host.name, *("" for _ in extra)],
        "category": [*categories, *host.category, *(None for _ in extra)],
        "path_ns": spent,
        "share": spent / total,
        "pieces": np.concatenate((groups.count, host.calls, np.full(len(extra), np.nan))),
    }
    return CriticalColumns(**ordered(columns, "path_ns"))


def _device_work(graph: Graph, path: Path) -> tuple[Ints, Floats]:
    """Events of device work on the path, and the time of each there."""
    node, ns = np.append(graph.waits.src[path.edge], path.last), np.append(path.work_ns, path.last_work_ns)
    mine = np.flatnonzero(ns > 0)
    return graph.moments.event[node[mine]].astype(np.int64), ns[mine]


def _spans(graph: Graph, path: Path, line: int) -> Ints:
    """When the path is on a line of control, as measured, (m, 2) ns."""
    src, dst = graph.waits.src[path.edge], graph.waits.dst[path.edge]
    on = (graph.waits.kind[path.edge] <= KINDS.index("call")) & (graph.moments.line[dst] == line) & (path.wait_ns > 0)
    return union(graph.moments.at[src[on]], graph.moments.at[dst[on]])


def _longest(trace: Trace, graph: Graph, path: Path) -> PieceColumns:
    """Device work, and stretches of a line of control, by length."""
    events, first = trace.events, trace.span_ns[0]
    rows = _device_work(graph, path)[0]
    pieces = [(int(events.ts[row]), int(events.end[row]), int(row), -1) for row in rows]
    for line in range(len(graph.tracks)):
        pieces += [(low, high, -1, line) for low, high in _spans(graph, path, line).tolist()]
    pieces = sorted(pieces, key=lambda piece: piece[0] - piece[1])[:LONGEST]
    return PieceColumns(
        duration_ns=[high - low for low, high, _, _ in pieces],
        part=["host" if row < 0 else "device" for _, _, row, _ in pieces],
        name=[
            trace.strings[int(events.name[row])] if row >= 0 else _longest_of(trace, graph.tracks[line], low, high)
            for low, high, row, line in pieces
        ],
        start_ns=[low - first for low, _, _, _ in pieces],
        end_ns=[high - first for _, high, _, _ in pieces],
        track=[int(events.track[row]) if row >= 0 else graph.tracks[line][0] for _, _, row, line in pieces],
    )


def _longest_of(trace: Trace, tracks: Sequence[int], low: int, high: int) -> str:
    """What some threads did longest between two moments, "" for nothing that was recorded."""
    own = sum_by_name(trace, [own_time(trace, tracks, np.array([[low, high]]))])
    return own.name[int(own.ns.argmax())] if own.name else ""


VIEW = View("critical", 47, needs, Params, compute, make_charts)
