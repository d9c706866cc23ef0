"""Captured CUDA graphs: the kernels of each launch, where they come from, and which ones are unexplained."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.intervals import covered_ns, union
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_operator, launch_delays
from visualprof.views.measure.names.families import kernel_family
from visualprof.views.measure.steps.windows import is_in_step

SOURCES = ("capture", "repeats", "none", "annotation")


class CapturedColumns(Columns):
    """Graphs by name and capture.

    Attributes:
        match: How the kernels match the launches of the capture; `none` without a capture.
        note: Reason of the match.
        kernels: Device work items of all launches.
        matched: Work items whose operator or module is known from the capture.
        launch_delay_ns: Mean time from the end of the call to the first kernel.
        span_ns: Time from the first start to the last end.
        gap_ns: Part of the span without a kernel of the graph.
    """

    name: kinds.NameColumn
    capture: kinds.TextColumn
    match: kinds.WordColumn
    note: kinds.TextColumn
    launches: kinds.CountColumn
    kernels: kinds.CountColumn
    matched: kinds.CountColumn
    total_ns: kinds.DurationColumn
    call_ns: kinds.DurationColumn
    launch_delay_ns: kinds.DurationColumn
    span_ns: kinds.DurationColumn
    gap_ns: kinds.DurationColumn


class InsideColumns(Columns):
    """Kernels inside graphs by graph, name and location.

    Attributes:
        source: `capture` if the operator is known from the capture, `annotation` if the kernel names its module,
            `repeats` if only the repeating block is known, else `none`.
        within: The innermost enclosing module, range or block.
    """

    graph: kinds.NameColumn
    name: kinds.NameColumn
    family: kinds.WordColumn
    source: kinds.WordColumn
    operator: kinds.NameColumn
    within: kinds.NameColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn


class CapturedAnswer(Table[CapturedColumns]):
    """Captured graphs.

    Attributes:
        kernels: Kernels of all graphs.
        total_ns: Time of all kernels.
        matched: Kernels that a capture explains.
        matched_ns: Time of these kernels.
    """

    launches: kinds.Count
    kernels: kinds.Count
    matched: kinds.Count
    total_ns: kinds.Duration
    matched_ns: kinds.Duration
    inside: Table[InsideColumns]


class Inside(msgspec.Struct, frozen=True):
    """Kernels of graph launches.

    Attributes:
        graphs: (g,) rows of launches of graphs.
        work: (w,) rows of their kernels.
        graph: (w,) index of the graph of each kernel.
        owner: (w,) the innermost enclosing event; the graph itself if nothing is known.
    """

    graphs: Ids
    work: Ids
    graph: Ints
    owner: Ids


def needs(trace: Trace) -> bool:
    """Whether the trace has a launch of a captured graph."""
    return any(track.kind == TrackKind.GRAPH and track.count for track in trace.tracks)


def compute(trace: Trace, params: Params) -> CapturedAnswer:
    """Return graphs, those with the longest kernel time first.

    Source: docs/views/captured.md
    """
    inside, events = _inside(trace, is_in_step(trace, params.step)), trace.events
    keys = [trace.arg(name, inside.graphs, 0).astype(np.int64) for name in ("capture", "match", "note")]
    groups = group(events.name[inside.graphs], *keys)
    dur = np.maximum(events.dur[inside.work], 0)
    source = _sources(trace, inside)
    explained = source == SOURCES.index("capture")
    return CapturedAnswer(
        columns=CapturedColumns(**sort_columns(_graphs(trace, inside, groups, keys, explained), "total_ns")),
        launches=len(inside.graphs),
        kernels=len(inside.work),
        matched=int(explained.sum()),
        total_ns=int(dur.sum()),
        matched_ns=int(dur[explained].sum()),
        inside=Table(columns=_kernels(trace, inside, groups, source)),
    )


@cached_on_trace
def _all_inside(trace: Trace) -> Inside:
    links, events = trace.links, trace.events
    outermost = trace.track_mask(TrackKind.GRAPH) & (events.parent >= 0)
    outermost[outermost] = ~trace.track_mask(TrackKind.GRAPH)[events.parent[outermost]]
    graphs = np.flatnonzero(outermost).astype(np.int32)
    owned = links.kind == LinkKind.OWNER
    work, owner = links.dst[owned], links.src[owned]
    place = np.full(len(events), -1)
    place[graphs] = np.arange(len(graphs))
    return Inside(graphs, work, place[nearest_ancestor(events.parent, outermost, owner)], owner)


def _inside(trace: Trace, wanted: Mask) -> Inside:
    """Return the kernels of the launches in a step, or of all launches."""
    whole = _all_inside(trace)
    in_range = wanted[whole.graphs]
    place = np.where(in_range, np.cumsum(in_range) - 1, -1)
    chosen = place[whole.graph] >= 0
    return Inside(whole.graphs[in_range], whole.work[chosen], place[whole.graph[chosen]], whole.owner[chosen])


def _sources(trace: Trace, inside: Inside) -> Ints:
    """Return per kernel the index into SOURCES: how its location is known."""
    is_explained = inside.owner != inside.graphs[inside.graph]
    captured = trace.arg("capture", inside.graphs, 0)[inside.graph] > 0
    is_module = trace.events.category[inside.owner] == Category.MODULE
    return np.where(is_explained, np.where(captured, 0, np.where(is_module, 3, 1)), 2)


def _graphs(trace: Trace, inside: Inside, groups: Groups, keys: list[Ints], explained: Mask) -> dict[str, Column]:
    events, first = trace.events, groups.first
    call = events.parent[inside.graphs]
    begin, end = events.ts[inside.graphs], events.end[inside.graphs]
    dur = np.maximum(events.dur[inside.work], 0)
    group_of_work = groups.ids[inside.graph]
    busy = covered_ns(union(events.ts[inside.work], events.end[inside.work]), begin, end)

    def summed(values: Rows | Mask) -> Ints:
        return np.bincount(group_of_work, values, len(first)).astype(np.int64)

    capture, match, note = ([trace.strings[int(i)] or None for i in key[first]] for key in keys)
    delay = launch_delays(trace, call, inside.graphs)
    return {
        "name": name_texts(trace, events.name[inside.graphs][first]),
        "capture": capture,
        "match": match,
        "note": note,
        "launches": groups.count,
        "kernels": summed(np.ones(len(group_of_work), np.int64)),
        "matched": summed(explained),
        "total_ns": summed(dur),
        "call_ns": groups.sum(np.maximum(events.dur[call], 0)) / groups.count,
        "launch_delay_ns": groups.mean(delay, np.ones(len(delay))),
        "span_ns": groups.sum(end - begin),
        "gap_ns": groups.sum(end - begin - busy),
    }


def _kernels(trace: Trace, inside: Inside, graphs: Groups, source: Ints) -> InsideColumns:
    events = trace.events
    on_graphs = trace.track_mask(TrackKind.GRAPH)
    operator = nearest_ancestor(events.parent, is_operator(trace) & on_graphs, inside.owner)
    around = on_graphs & events.category_mask(Category.MODULE, Category.ANNOTATION)
    within = nearest_ancestor(events.parent, around, inside.owner)
    labels = (np.where(rows >= 0, events.name[rows], 0) for rows in (operator, within))
    called, placed = labels
    groups = group(graphs.ids[inside.graph], events.name[inside.work], called, placed, source)
    first = groups.first
    kernel_names = name_texts(trace, events.name[inside.work][first])
    columns: dict[str, Column] = {
        "graph": name_texts(trace, events.name[inside.graphs][inside.graph[first]]),
        "name": kernel_names,
        "family": [kernel_family(name) or None for name in kernel_names],
        "source": [SOURCES[i] for i in source[first].tolist()],
        "operator": [name or None for name in name_texts(trace, called[first])],
        "within": [name or None for name in name_texts(trace, placed[first])],
        "calls": groups.count,
        "total_ns": groups.sum(np.maximum(events.dur[inside.work], 0)),
    }
    return InsideColumns(**sort_columns(columns, "total_ns"))


VIEW = View("captured", 32, needs, Params, compute)
