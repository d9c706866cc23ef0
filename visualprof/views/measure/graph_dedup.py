"""Captured graphs in which one launch stands for all that are alike, for sums."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import ArgColumn, Category, Events, Ids, Ints, Links, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.joined import JoinedTrace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.groups import Groups, group
from visualprof.views.measure.steps import is_in_step

FRAME_CATEGORIES = (Category.PYTHON, Category.MODULE)
CALLER_CATEGORIES = (Category.OP, Category.COMM, Category.OP_PART)


class DedupTrace(msgspec.Struct, frozen=True):
    """A trace, and how many events each of its events stands for; None where each is one."""

    trace: Trace
    weight: Ints | None = None

    def weights(self, rows: Rows) -> Ints:
        """How many events some events stand for."""
        return np.ones(len(rows), np.int64) if self.weight is None else self.weight[rows]

    def count(self, groups: Groups, rows: Rows) -> Ints:
        """How many events each group of some events stands for."""
        return groups.count if self.weight is None else groups.sum(self.weight[rows])


def dedup_graphs(trace: Trace, step: str = "") -> DedupTrace:
    """The trace with one launch for all of a template with the same calls around, in the step or outside of it.

    Its kernels last as long as theirs together. Launches from within operators, whose times are not the same, stay.
    Names, arguments, callers and sums are those of the trace; times of what is inside are not, nor are the pyramid and
    the memory events.
    """
    if not isinstance(trace, JoinedTrace):
        return DedupTrace(trace)
    key = dedup_graphs, step
    if key not in trace.derived:
        trace.derived[key] = _condensed(trace, step)
    return trace.derived[key]


def _condensed(trace: JoinedTrace, step: str) -> DedupTrace:
    own, graphs = trace.file_trace, trace.graphs
    alike = _alike(own, graphs, is_in_step(own, step))
    lead = own.events.ts[graphs.work[graphs.first[:-1]]]
    order = np.lexsort((lead, own.events.track[graphs.work[graphs.first[:-1]]]))  # in which they become events
    groups = group(alike[order])
    first = np.sort(order[groups.first])
    kept = np.zeros(len(own.events), bool)
    kept[graphs.work] = True
    if len(first) == len(order) or np.count_nonzero(kept) < len(graphs.work):  # no two alike, or of two calls
        return DedupTrace(trace)
    number = np.empty(len(order), np.int64)
    number[order[groups.first]] = np.searchsorted(first, order[groups.first])
    of = np.empty(len(order), np.int64)
    of[order] = number[order[groups.first]][groups.ids]
    count = np.bincount(of)
    size = np.diff(graphs.first)
    slices = np.append(0, np.cumsum(size[first]))
    place = np.repeat(slices[of] - graphs.first[:-1], size) + np.arange(len(graphs.work))
    stands = np.zeros(len(order), bool)
    stands[first] = True
    work = graphs.work[np.repeat(stands, size)]
    spent = np.bincount(place, own.events.dur[graphs.work], len(work)).astype(np.int64)
    np.logical_not(kept, out=kept)
    kept[work] = True
    small, at = _only(own, kept)
    small.events.dur[at[work]] = spent
    less = replace(graphs, call=at[graphs.call[first]], work=at[work], first=slices, template=graphs.template[first])
    whole = JoinedTrace(**{name: getattr(small, name) for name in Trace.__struct_fields__}, graphs=less)
    return DedupTrace(whole, _weights(whole, less, count))


def _alike(own: Trace, graphs: Graphs, inside: Mask) -> Ints:
    """A number for each launch; those alike have the same. inside: of each event."""
    events = own.events
    named = inside[graphs.work]
    low, high = (pick.reduceat(named, graphs.first[:-1]) for pick in (np.logical_and, np.logical_or))
    single, key = low != high, group(graphs.template, high).ids
    calls, frames = events.category_mask(*CALLER_CATEGORIES), events.category_mask(*FRAME_CATEGORIES)
    at = events.parent[graphs.call]
    while (at >= 0).any():
        single |= (at >= 0) & calls[at]
        key = group(key, np.where((at >= 0) & frames[at], events.name[at], -1)).ids
        at = np.where(at >= 0, events.parent[at], -1)
    return np.where(single, len(key) + np.arange(len(key)), key)


def _only(own: Trace, kept: Mask) -> tuple[Trace, Ids]:
    """The trace with some of its events, and the new row of each."""
    at = np.cumsum(kept, dtype=np.int32) - np.int32(1)
    columns = {name: getattr(own.events, name)[kept] for name in Events.__struct_fields__}
    columns["parent"] = np.where(columns["parent"] >= 0, at[columns["parent"]], -1)
    before = np.append(0, np.cumsum(kept))
    tracks = tuple(
        replace(t, first=int(before[t.first]), count=int(before[t.first + t.count] - before[t.first]))
        for t in own.tracks
    )
    links = own.links
    mine = kept[links.src] & kept[links.dst]
    args: dict[str, ArgColumn] = {}
    for name, column in own.args.items():
        chosen = kept[column.events]
        args[name] = ArgColumn(at[column.events[chosen]], column.values[chosen], column.text)
    linked = Links(at[links.src[mine]], at[links.dst[mine]], links.kind[mine])
    return own.with_columns(events=Events(**columns), tracks=tracks, args=args, links=linked), at


def _weights(whole: Trace, graphs: Graphs, count: Ints) -> Ints:
    """How many events each event stands for. count: (l,) of each launch."""
    weight = np.ones(len(whole.events), np.int64)
    weight[graphs.call] = count
    inside = whole.track_mask(TrackKind.GRAPH)
    rows = np.flatnonzero(inside)
    weight[rows] = weight[nearest_ancestor(whole.events.parent, ~inside, rows)]
    weight[graphs.call] = 1
    weight[graphs.work] = np.repeat(count, np.diff(graphs.first))
    return weight
