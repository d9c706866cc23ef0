"""What is inside each launch of a captured graph, as events behind those of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import c_int64

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.native import INT32, INT64, UINT8, function
from visualprof.reader.trace import ArgColumn, Events, Ids, Ints, LinkKind, Links, Trace, Track, TrackKind, Values
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.nesting import nest
from visualprof.reader.trace.order import order_of_events

_WRITTEN = ("ts", "dur", "name", "category", "track", "parent", "step")


class Expansion(msgspec.Struct, frozen=True):
    """The events and tracks of a trace with all that is inside its launches.

    begin: (l,) row of each launch's first, as long as its template's stand in order. place: (added,) the row of each
    where they do not, else None. owner: (w,) row of the innermost around each of the `work` of the graphs.
    """

    events: Events
    tracks: tuple[Track, ...]
    begin: Ints
    place: Ids | None
    owner: Ids


def expansion(own: Trace, graphs: Graphs) -> Expansion:
    """Add what is inside each launch: events on a track of kind `graph`, over the time of its kernels.

    The outermost has the call that launched the graph as `parent`.
    """
    before = own.events
    lead = graphs.work[graphs.first[:-1]]
    size = np.diff(graphs.nodes)[graphs.template]
    streams, number = np.unique(before.track[lead], return_inverse=True)
    track = number.reshape(-1).astype(np.int32)
    order = np.lexsort((before.ts[lead], track))
    begin = np.empty(len(size), np.int64)
    begin[order] = len(before) + np.cumsum(size[order]) - size[order]
    columns = _room(before, int(size.sum()))
    columns["corr"][len(before) :], columns["row"][len(before) :] = 0, -1
    owner = np.empty(len(graphs.work), np.int32)
    _fill(graphs, begin, track + np.int32(len(own.tracks)), before.step[lead], columns, owner)
    bounds = np.append(0, np.cumsum(np.bincount(track, size, len(streams)))).astype(np.int64)
    place = _sort(columns, len(before), bounds)
    ts, dur = columns["ts"][len(before) :], columns["dur"][len(before) :]
    columns["depth"][len(before) :] = nest(ts, ts + dur, bounds)[1]
    slices: list[int] = (bounds + len(before)).tolist()
    named: list[int] = streams.tolist()
    tracks = [_track(own.tracks[t], *slices[i : i + 2]) for i, t in enumerate(named)]
    owner = owner if place is None else place[owner - np.int32(len(before))]
    return Expansion(Events(**columns), (*own.tracks, *tracks), begin, place, owner)


def _room(before: Events, count: int) -> dict[str, Values]:
    """The columns of events with room for more behind them."""
    whole: dict[str, Values] = {}
    for name in Events.__struct_fields__:
        kept = getattr(before, name)
        whole[name] = np.empty(len(before) + count, kept.dtype)
        whole[name][: len(before)] = kept
    return whole


def _track(stream: Track, first: int, end: int) -> Track:
    return replace(stream, kind=TrackKind.GRAPH, tid=f"{stream.tid} graphs", first=first, count=end - first)


def _fill(graphs: Graphs, begin: Ints, track: Ids, step: Ids, columns: dict[str, Values], owner: Ids) -> None:
    """Write what is inside each launch from the row `begin` of each on. track, step: (l,) of each launch."""
    launches = (graphs.call, graphs.template, begin, track, step, graphs.work, graphs.first)
    inside = (graphs.nodes, graphs.kernels, graphs.name, graphs.category, graphs.parent, graphs.owner)
    types = (INT32, INT32, INT64, INT32, INT32, INT32, INT64, INT64, INT64, INT32, UINT8, INT32, INT32)
    written = (INT64, INT64, INT32, UINT8, INT32, INT32, INT32, INT32)
    native = function("vp_inside", None, c_int64, *types, *written)
    if native:
        native(len(begin), *launches, *inside, *(columns[name] for name in _WRITTEN), owner)
        return
    for template in range(len(graphs.nodes) - 1):
        rows = np.flatnonzero(graphs.template == template)
        nodes, kernels = (slice(*edge[template : template + 2]) for edge in (graphs.nodes, graphs.kernels))
        owners, parent = graphs.owner[kernels], graphs.parent[nodes]
        work = graphs.first[rows][:, None] + np.arange(len(owners))
        at = begin[rows][:, None] + np.arange(len(parent))
        start, end = _spans(owners, parent, columns, graphs.work[work])
        around = np.where(parent < 0, graphs.call[rows][:, None], begin[rows][:, None] + parent)
        values = (start, end - start, graphs.name[nodes], graphs.category[nodes])
        values = (*values, track[rows][:, None], around, step[rows][:, None])
        for name, value in zip(_WRITTEN, values, strict=True):
            columns[name][at] = value
        owner[work] = begin[rows][:, None] + owners


def _spans(owner: Ids, parent: Ids, columns: dict[str, Values], work: Ids) -> tuple[Ints, Ints]:
    """Start and end of all that is inside each launch, (l, n) ns: of its first and its last kernel.

    Args: work: (l, k) rows of the kernels.
    """
    start = np.full((len(work), len(parent)), np.iinfo(np.int64).max)
    end = np.full(start.shape, np.iinfo(np.int64).min)
    for kernel, node in enumerate(owner.tolist()):
        ts, dur = (columns[name][work[:, kernel]] for name in ("ts", "dur"))
        start[:, node] = np.minimum(start[:, node], ts)
        end[:, node] = np.maximum(end[:, node], ts + dur)
    for node in range(len(parent) - 1, 0, -1):  # those inside stand behind those around
        around = parent[node]
        start[:, around] = np.minimum(start[:, around], start[:, node])
        end[:, around] = np.maximum(end[:, around], end[:, node])
    return start, end


def _sort(columns: dict[str, Values], before: int, bounds: Ints) -> Ids | None:
    """Sort what was added by (track, ts, -dur): the new row of each, None where all stay."""
    added = {name: column[before:] for name, column in columns.items()}
    ts, dur = added["ts"], added["dur"]
    late = (ts[1:] < ts[:-1]) | ((ts[1:] == ts[:-1]) & (dur[1:] > dur[:-1]))
    late[bounds[1:-1] - 1] = False
    if not late.any():
        return None
    order, _ = order_of_events(ts, dur, added["track"] - added["track"].min(), len(bounds) - 1)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(before, before + len(order), dtype=np.int32)
    parent = added["parent"]
    inside = np.flatnonzero(parent >= before)
    parent[inside] = place[parent[inside] - before]
    for column in added.values():
        column[:] = column[order]
    return place


def with_owners(links: Links, owner: Ids, work: Ids) -> Links:
    """Links by what they lead to, those of owners first: they tell more than what launched."""
    dst = np.concatenate((work, links.dst))
    order = np.argsort(dst, kind="stable")
    kind = np.append(np.full(len(work), LinkKind.OWNER, np.uint8), links.kind)
    return Links(np.concatenate((owner, links.src))[order], dst[order], kind[order])


class Arguments(Mapping[str, ArgColumn]):
    """Arguments of a trace by name with those of what is inside launches; each is made when it is asked for."""

    def __init__(self, own: Mapping[str, ArgColumn], graphs: Graphs, inside: Expansion) -> None:
        self._own, self._graphs, self._inside = own, graphs, inside
        self._known: dict[str, ArgColumn] = {}
        self._rows: dict[bytes, tuple[Ids, Ints]] = {}  # of those that the same nodes have

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **self._graphs.args})

    def __len__(self) -> int:
        return len(self._own.keys() | self._graphs.args.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._graphs.args

    def __getitem__(self, name: str) -> ArgColumn:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._column(name)
        return known

    def _column(self, name: str) -> ArgColumn:
        """One that is a text on one side and a number on the other is left as it was."""
        own, added = self._own.get(name), self._graphs.args.get(name)
        if added is None or (own is not None and own.text != added.text):
            return self._own[name]
        rows, place = self._places(added.events)
        values = added.values[place]
        if own is None:
            return ArgColumn(rows, values, added.text)
        values = np.rint(values) if own.values.dtype.kind in "iu" else values
        return ArgColumn(np.append(own.events, rows), np.append(own.values, values.astype(own.values.dtype)), own.text)

    def _places(self, nodes: Ids) -> tuple[Ids, Ints]:
        """Rows of the events of some nodes in all launches, ascending, and of which node each is."""
        key = nodes.tobytes()
        if key not in self._rows:
            begin, template, slices = self._inside.begin, self._graphs.template, self._graphs.nodes
            order = np.argsort(begin)
            template = template[order]
            edges = np.searchsorted(nodes, slices)
            count = np.diff(edges)[template]
            place = np.repeat(edges[template] - np.cumsum(count) + count, count)
            place += np.arange(len(place))
            rows = (np.repeat(begin[order] - slices[template], count) + nodes[place]).astype(np.int32)
            if self._inside.place is not None:
                rows = self._inside.place[rows - np.int32(len(self._inside.events) - len(self._inside.place))]
                order = np.argsort(rows, kind="stable")
                rows, place = rows[order], place[order]
            self._rows[key] = rows, place
        return self._rows[key]
