"""Expand the contents of captured graphs at each launch into events after those of the file."""

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
from visualprof.reader.trace.order import sort_events

_WRITTEN = ("ts", "dur", "name", "category", "track", "parent", "step")


class Expansion(msgspec.Struct, frozen=True):
    """Events and tracks of a trace, including the contents of graph launches.

    Attributes:
        events: All events.
        tracks: All tracks.
        begin: (l,) row of each launch's first event, if the template's order is kept.
        new_rows: (added,) sorted row of each added event, `None` if the order is kept.
        owner: (w,) row of the innermost event around each kernel in `work` of the graphs.
    """

    events: Events
    tracks: tuple[Track, ...]
    begin: Ints
    new_rows: Ids | None
    owner: Ids


def expand_graphs(trace: Trace, graphs: Graphs) -> Expansion:
    """Add the contents of each launch: events on a track of kind `graph`, over the time of their kernels.

    The outermost event has the call that launched the graph as `parent`.
    """
    file_events = trace.events
    first_work = graphs.work[graphs.first[:-1]]
    size = np.diff(graphs.nodes)[graphs.template]
    streams, number = np.unique(file_events.track[first_work], return_inverse=True)
    track = number.reshape(-1).astype(np.int32)
    order = np.lexsort((file_events.ts[first_work], track))
    begin = np.empty(len(size), np.int64)
    begin[order] = len(file_events) + np.cumsum(size[order]) - size[order]
    columns = _extend_columns(file_events, int(size.sum()))
    columns["corr"][len(file_events) :], columns["row"][len(file_events) :] = 0, -1
    owner = np.empty(len(graphs.work), np.int32)
    _fill(graphs, begin, track + np.int32(len(trace.tracks)), file_events.step[first_work], columns, owner)
    bounds = np.append(0, np.cumsum(np.bincount(track, size, len(streams)))).astype(np.int64)
    new_rows = _sort(columns, len(file_events), bounds)
    ts, dur = columns["ts"][len(file_events) :], columns["dur"][len(file_events) :]
    columns["depth"][len(file_events) :] = nest(ts, ts + dur, bounds)[1]
    slices: list[int] = (bounds + len(file_events)).tolist()
    stream_tracks: list[int] = streams.tolist()
    tracks = [_graph_track(trace.tracks[t], *slices[i : i + 2]) for i, t in enumerate(stream_tracks)]
    owner = owner if new_rows is None else new_rows[owner - np.int32(len(file_events))]
    return Expansion(Events(**columns), (*trace.tracks, *tracks), begin, new_rows, owner)


def _extend_columns(events: Events, count: int) -> dict[str, Values]:
    """Return the columns of events with space for `count` more."""
    columns: dict[str, Values] = {}
    for name in Events.__struct_fields__:
        column = getattr(events, name)
        columns[name] = np.empty(len(events) + count, column.dtype)
        columns[name][: len(events)] = column
    return columns


def _graph_track(stream: Track, first: int, end: int) -> Track:
    return replace(stream, kind=TrackKind.GRAPH, tid=f"{stream.tid} graphs", first=first, count=end - first)


def _fill(graphs: Graphs, begin: Ints, track: Ids, step: Ids, columns: dict[str, Values], owner: Ids) -> None:
    """Write the contents of each launch from row `begin` on; `track` and `step` are (l,), per launch."""
    launches = (graphs.call, graphs.template, begin, track, step, graphs.work, graphs.first)
    template_columns = (graphs.nodes, graphs.kernels, graphs.name, graphs.category, graphs.parent, graphs.owner)
    types = (INT32, INT32, INT64, INT32, INT32, INT32, INT64, INT64, INT64, INT32, UINT8, INT32, INT32)
    written = (INT64, INT64, INT32, UINT8, INT32, INT32, INT32, INT32)
    native = function("vp_expand_launches", None, c_int64, *types, *written)
    if native:
        native(len(begin), *launches, *template_columns, *(columns[name] for name in _WRITTEN), owner)
        return
    for template in range(len(graphs.nodes) - 1):
        rows = np.flatnonzero(graphs.template == template)
        nodes, kernels = (slice(*edge[template : template + 2]) for edge in (graphs.nodes, graphs.kernels))
        owners, parent = graphs.owner[kernels], graphs.parent[nodes]
        work = graphs.first[rows][:, None] + np.arange(len(owners))
        targets = begin[rows][:, None] + np.arange(len(parent))
        start, end = _node_spans(owners, parent, columns, graphs.work[work])
        parents = np.where(parent < 0, graphs.call[rows][:, None], begin[rows][:, None] + parent)
        values = (start, end - start, graphs.name[nodes], graphs.category[nodes])
        values = (*values, track[rows][:, None], parents, step[rows][:, None])
        for name, value in zip(_WRITTEN, values, strict=True):
            columns[name][targets] = value
        owner[work] = begin[rows][:, None] + owners


def _node_spans(owner: Ids, parent: Ids, columns: dict[str, Values], work: Ids) -> tuple[Ints, Ints]:
    """Return start and end of each graph node per launch, (l, n) ns, from its first and last kernel.

    Args:
        owner: (k,) innermost node of each kernel.
        parent: (n,) parent of each node.
        columns: Columns of the events.
        work: (l, k) rows of the kernels.
    """
    start = np.full((len(work), len(parent)), np.iinfo(np.int64).max)
    end = np.full(start.shape, np.iinfo(np.int64).min)
    for kernel, node in enumerate(owner.tolist()):
        ts, dur = (columns[name][work[:, kernel]] for name in ("ts", "dur"))
        start[:, node] = np.minimum(start[:, node], ts)
        end[:, node] = np.maximum(end[:, node], ts + dur)
    for node in range(len(parent) - 1, 0, -1):  # nested nodes come after their parents
        parent_node = parent[node]
        start[:, parent_node] = np.minimum(start[:, parent_node], start[:, node])
        end[:, parent_node] = np.maximum(end[:, parent_node], end[:, node])
    return start, end


def _sort(columns: dict[str, Values], file_count: int, bounds: Ints) -> Ids | None:
    """Sort the added rows by (track, ts, -dur) and return the new row of each, or `None` if all stay."""
    added = {name: column[file_count:] for name, column in columns.items()}
    ts, dur = added["ts"], added["dur"]
    late = (ts[1:] < ts[:-1]) | ((ts[1:] == ts[:-1]) & (dur[1:] > dur[:-1]))
    late[bounds[1:-1] - 1] = False
    if not late.any():
        return None
    order, _ = sort_events(ts, dur, added["track"] - added["track"].min(), len(bounds) - 1)
    new_rows = np.empty(len(order), np.int32)
    new_rows[order] = np.arange(file_count, file_count + len(order), dtype=np.int32)
    parent = added["parent"]
    nested = np.flatnonzero(parent >= file_count)
    parent[nested] = new_rows[parent[nested] - file_count]
    for column in added.values():
        column[:] = column[order]
    return new_rows


def add_owner_links(links: Links, owner: Ids, work: Ids) -> Links:
    """Return links by target. Owner links come first, because they are more precise than launch links."""
    dst = np.concatenate((work, links.dst))
    order = np.argsort(dst, kind="stable")
    kind = np.append(np.full(len(work), LinkKind.OWNER, np.uint8), links.kind)
    return Links(np.concatenate((owner, links.src))[order], dst[order], kind[order])


class JoinedArguments(Mapping[str, ArgColumn]):
    """Arguments by name, of the file's events and of graph contents; each column is built on first access."""

    def __init__(self, file_args: Mapping[str, ArgColumn], graphs: Graphs, expansion: Expansion) -> None:
        self._file_args, self._graphs, self._expansion = file_args, graphs, expansion
        self._columns: dict[str, ArgColumn] = {}
        self._rows_of_nodes: dict[bytes, tuple[Ids, Ints]] = {}  # by the nodes that have a value

    def __iter__(self) -> Iterator[str]:
        return iter({**self._file_args, **self._graphs.args})

    def __len__(self) -> int:
        return len(self._file_args.keys() | self._graphs.args.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._file_args or name in self._graphs.args

    def __getitem__(self, name: str) -> ArgColumn:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._column(name)
        return column

    def _column(self, name: str) -> ArgColumn:
        """Build a column. If only the values of the file or only those of the graphs are text, the file's are used."""
        file_column, graph_column = self._file_args.get(name), self._graphs.args.get(name)
        if graph_column is None or (file_column is not None and file_column.text != graph_column.text):
            return self._file_args[name]
        rows, node_index = self._expand_nodes(graph_column.events)
        values = graph_column.values[node_index]
        if file_column is None:
            return ArgColumn(rows, values, graph_column.text)
        values = np.rint(values) if file_column.values.dtype.kind in "iu" else values
        return ArgColumn(
            np.append(file_column.events, rows),
            np.append(file_column.values, values.astype(file_column.values.dtype)),
            file_column.text,
        )

    def _expand_nodes(self, nodes: Ids) -> tuple[Ids, Ints]:
        """Return the ascending event rows of some nodes in all launches, and the index of the node for each row."""
        key = nodes.tobytes()
        if key not in self._rows_of_nodes:
            begin, template, slices = self._expansion.begin, self._graphs.template, self._graphs.nodes
            order = np.argsort(begin)
            template = template[order]
            edges = np.searchsorted(nodes, slices)
            count = np.diff(edges)[template]
            node_index = np.repeat(edges[template] - np.cumsum(count) + count, count)
            node_index += np.arange(len(node_index))
            rows = (np.repeat(begin[order] - slices[template], count) + nodes[node_index]).astype(np.int32)
            if self._expansion.new_rows is not None:
                rows = self._expansion.new_rows[
                    rows - np.int32(len(self._expansion.events) - len(self._expansion.new_rows))
                ]
                order = np.argsort(rows, kind="stable")
                rows, node_index = rows[order], node_index[order]
            self._rows_of_nodes[key] = rows, node_index
        return self._rows_of_nodes[key]
