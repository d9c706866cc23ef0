"""Deduplicate captured graphs: one launch represents all launches that are alike, so that sums are cheap."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import ArgColumn, Category, Events, Ids, Ints, Links, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.joined import JoinedTrace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.steps.windows import is_in_step

FRAME_CATEGORIES = (Category.PYTHON, Category.MODULE)
CALLER_CATEGORIES = (Category.OP, Category.COMM, Category.OP_PART)


class DedupTrace(msgspec.Struct, frozen=True):
    """A deduplicated trace.

    Attributes:
        trace: The trace.
        weight: Number of original events that each event represents; `None` if each represents
            itself.
    """

    trace: Trace
    weight: Ints | None = None

    def weights(self, rows: Rows) -> Ints:
        """Return the number of original events that each row represents."""
        return np.ones(len(rows), np.int64) if self.weight is None else self.weight[rows]

    def count(self, groups: Groups, rows: Rows) -> Ints:
        """Return the number of original events that each group of rows represents."""
        return groups.count if self.weight is None else groups.sum(self.weight[rows])


def dedup_graphs(trace: Trace, step: str = "") -> DedupTrace:
    """Return the trace with one launch per graph template, call path, and side of the step (inside or outside).

    The kernels of that launch last as long as those of all represented launches together. Launches
    from within operators stay, because their times differ. Names, arguments, callers and sums are
    those of the original trace. Times inside the launches, the pyramid and memory events are not.
    """
    if not isinstance(trace, JoinedTrace):
        return DedupTrace(trace)
    key = dedup_graphs, step
    if key not in trace.derived:
        trace.derived[key] = _dedup(trace, step)
    return trace.derived[key]


def _dedup(trace: JoinedTrace, step: str) -> DedupTrace:
    """Return the deduplicated trace of one step; the trace itself if there is nothing to merge."""
    original, graphs = trace.file_trace, trace.graphs
    launch_keys = _launch_keys(original, graphs, is_in_step(original, step))
    launch_start = original.events.ts[graphs.work[graphs.first[:-1]]]
    order = np.lexsort(
        (launch_start, original.events.track[graphs.work[graphs.first[:-1]]])
    )  # order in which launches become events
    groups = group(launch_keys[order])
    first = np.sort(order[groups.first])
    is_retained = np.zeros(len(original.events), bool)
    is_retained[graphs.work] = True
    if len(first) == len(order) or np.count_nonzero(is_retained) < len(
        graphs.work
    ):  # no two launches are alike, or an event belongs to two calls
        return DedupTrace(trace)
    sorted_position = np.empty(len(order), np.int64)
    sorted_position[order[groups.first]] = np.searchsorted(first, order[groups.first])
    representative = np.empty(len(order), np.int64)
    representative[order] = sorted_position[order[groups.first]][groups.ids]
    count = np.bincount(representative)
    size = np.diff(graphs.first)
    work_offsets = np.append(0, np.cumsum(size[first]))
    work_position = np.repeat(work_offsets[representative] - graphs.first[:-1], size) + np.arange(len(graphs.work))
    is_representative = np.zeros(len(order), bool)
    is_representative[first] = True
    work = graphs.work[np.repeat(is_representative, size)]
    total_ns = np.bincount(work_position, original.events.dur[graphs.work], len(work)).astype(np.int64)
    np.logical_not(is_retained, out=is_retained)
    is_retained[work] = True
    reduced, new_row = _select_events(original, is_retained)
    reduced.events.dur[new_row[work]] = total_ns
    merged_graphs = replace(
        graphs,
        call=new_row[graphs.call[first]],
        work=new_row[work],
        first=work_offsets,
        template=graphs.template[first],
    )
    merged_trace = JoinedTrace(
        **{name: getattr(reduced, name) for name in Trace.__struct_fields__}, graphs=merged_graphs
    )
    return DedupTrace(merged_trace, _weights(merged_trace, merged_graphs, count))


def _launch_keys(original: Trace, graphs: Graphs, in_step: Mask) -> Ints:
    """Return a number per launch; launches that are alike get the same number.

    Args:
        original: The trace without expanded graphs.
        graphs: The launches.
        in_step: (n,) whether each event is in the step.
    """
    events = original.events
    is_inside = in_step[graphs.work]
    all_inside, any_inside = (
        combine.reduceat(is_inside, graphs.first[:-1]) for combine in (np.logical_and, np.logical_or)
    )
    is_unique, key = all_inside != any_inside, group(graphs.template, any_inside).ids
    is_caller, is_frame = events.category_mask(*CALLER_CATEGORIES), events.category_mask(*FRAME_CATEGORIES)
    caller = events.parent[graphs.call]
    while (caller >= 0).any():
        is_unique |= (caller >= 0) & is_caller[caller]
        key = group(key, np.where((caller >= 0) & is_frame[caller], events.name[caller], -1)).ids
        caller = np.where(caller >= 0, events.parent[caller], -1)
    return np.where(is_unique, len(key) + np.arange(len(key)), key)


def _select_events(original: Trace, is_retained: Mask) -> tuple[Trace, Ids]:
    """Return the trace with the retained events only, and the new row of each event."""
    new_row = np.cumsum(is_retained, dtype=np.int32) - np.int32(1)
    columns = {name: getattr(original.events, name)[is_retained] for name in Events.__struct_fields__}
    columns["parent"] = np.where(columns["parent"] >= 0, new_row[columns["parent"]], -1)
    retained_before = np.append(0, np.cumsum(is_retained))
    tracks = tuple(
        replace(
            track,
            first=int(retained_before[track.first]),
            count=int(retained_before[track.first + track.count] - retained_before[track.first]),
        )
        for track in original.tracks
    )
    links = original.links
    is_retained_link = is_retained[links.src] & is_retained[links.dst]
    args: dict[str, ArgColumn] = {}
    for name, column in original.args.items():
        is_retained_argument = is_retained[column.events]
        args[name] = ArgColumn(
            new_row[column.events[is_retained_argument]], column.values[is_retained_argument], column.text
        )
    new_links = Links(
        new_row[links.src[is_retained_link]], new_row[links.dst[is_retained_link]], links.kind[is_retained_link]
    )
    return original.with_columns(events=Events(**columns), tracks=tracks, args=args, links=new_links), new_row


def _weights(trace: Trace, graphs: Graphs, count: Ints) -> Ints:
    """Return the number of original events that each event represents.

    Args:
        trace: The deduplicated trace.
        graphs: Its launches.
        count: (l,) number of original launches that each launch represents.
    """
    weight = np.ones(len(trace.events), np.int64)
    weight[graphs.call] = count
    is_inside_graph = trace.track_mask(TrackKind.GRAPH)
    rows = np.flatnonzero(is_inside_graph)
    weight[rows] = weight[nearest_ancestor(trace.events.parent, ~is_inside_graph, rows)]
    weight[graphs.call] = 1
    weight[graphs.work] = np.repeat(count, np.diff(graphs.first))
    return weight
