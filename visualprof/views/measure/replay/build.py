"""Build the wait graph of a recording: thread groups, streams, launches, and their dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ctypes import c_int64

import numpy as np

from visualprof.reader.native import FLOAT64, INT32, INT64, function
from visualprof.reader.trace import Category, Floats, Ids, Ints, Rows, Trace, TrackKind
from visualprof.reader.trace.order import group_rows
from visualprof.views.measure.columns.groups import distinct, is_in
from visualprof.views.measure.columns.intervals import INT64_LIMITS, positions
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import device_calls
from visualprof.views.measure.ranks.collectives import collectives
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Dependencies, GraphNodes, WaitGraph
from visualprof.views.measure.replay.handovers import find_handovers, latest_of_others
from visualprof.views.measure.replay.stream_waits import find_stream_waits
from visualprof.views.measure.replay.thread_groups import thread_groups

DEVICE_SYNC_CALL = re.compile(r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize")
STREAM_SYNC_CALL = re.compile(r"(cuda|hip)(Stream|Event)Synchronize|cuStreamSynchronize")
COPY_CALL = re.compile(r"(cuda|hip)(Memcpy|MemcpyAsync|MemcpyWithStream|Free)$")
NONBLOCKING_CALL_NS = 3_000  # duration of a call that does not wait
MIN_LATE_NS = 5_000  # work that starts later than its known dependencies by more has an unknown one
MAX_REACTION_NS = 15_000
MIN_HELD_BACK_NS = 50_000  # first work of a stream that starts later waits for work from before the recording
MIN_QUEUED_NS = 4_000  # work launched this long before the end of the previous work was certainly queued
MAX_LOOKBACK = 64  # iterations
ROLE_ORDER = np.array(
    [4, 0, 2, 3, 1]
)  # order of roles at equal times: ends before starts, calls inside the work around them
DEFAULT_LAUNCH_NS, DEFAULT_GAP_NS, DEFAULT_RETURN_NS = 6_000, 1_000, 8_000  # used if a recording has no examples


@cached_on_trace
def wait_graph(trace: Trace) -> WaitGraph:
    """Return the wait graph of a recording. Source: docs/whatif.md, ADR 61."""
    return _Builder(trace).graph()


_EDGE_TYPES = (INT32, INT32, FLOAT64, INT32)  # of `vp_sort_edges`
_EdgeColumns = tuple[Rows, Rows, Floats, str]  # src, dst, ns, kind


class _Builder:
    """Collects the nodes of thread groups and streams, and then their dependencies."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        events, self._first_ns = trace.events, trace.span_ns[0]
        work, call, issuer = device_calls(trace)
        order = np.argsort(events.ts[work], kind="stable")
        self._work, self._call, self._issuer = work[order], call[order], issuer[order]
        self._start, self._end = self._starts(self._work), self._ends(self._work)
        self._stream = events.track[self._work]
        self._groups = thread_groups(trace)
        group_of_track = np.full(len(trace.tracks) + 1, -1, np.int32)
        for number, group in enumerate(self._groups):
            group_of_track[group.tracks] = number
        self._group_of_track = group_of_track
        self._blocking_calls = self._find_blocking_calls()
        self._waiting_calls, self._awaited_work = self._find_waiting_calls()

    def _starts(self, rows: Rows) -> Ints:
        """Return the starts of events in ns since the first event.

        Unix times as floats would be exact to 256 ns only.
        """
        return self._trace.events.ts[rows] - self._first_ns

    def _ends(self, rows: Rows) -> Ints:
        """Return the ends of events in ns since the first event."""
        return self._trace.events.end[rows] - self._first_ns

    def graph(self) -> WaitGraph:
        """Return the graph."""
        events = self._trace.events
        host_time, host_event, host_group, host_role = self._host_points()
        has_call = self._call >= 0
        work_start = np.where(has_call, np.maximum(self._start, self._starts(self._call) + 1), self._start)
        work_count, host_count = len(self._work), len(host_time)
        times = np.concatenate((work_start, host_time))
        order = np.argsort(times, kind="stable")  # at equal times, device work comes first
        position = np.empty(work_count + host_count, np.int64)
        position[order] = np.arange(work_count + host_count)
        work_nodes, host_nodes = position[:work_count], position[work_count:]
        start_nodes, end_nodes = (np.full(len(events) + 1, -1, np.int32) for _ in range(2))
        start_nodes[host_event[host_role == 0]], end_nodes[host_event[host_role == 1]] = (
            host_nodes[host_role == 0],
            host_nodes[host_role == 1],
        )
        nodes = GraphNodes(
            times[order].astype(np.int64),
            np.concatenate((self._work, host_event))[order].astype(np.int32),
            np.concatenate((np.full(work_count, -1), host_group))[order].astype(np.int32),
            np.concatenate((self._end - self._start, np.zeros(host_count, np.int64)))[order],
        )
        launch_nodes = start_nodes[self._call]
        previous = _previous_of_key(self._stream)
        held_back = self._find_held_back(previous)
        launch_ns, gap_ns = self._median_delays(previous, held_back)
        edges = list(self._host_edges(host_time, host_event, host_group, host_role, host_nodes))
        return_edges, return_ns = self._return_edges(end_nodes, work_nodes)
        stream_waits = find_stream_waits(self._trace, self._call, self._stream)
        launched_work, queued_work = np.flatnonzero(launch_nodes >= 0), np.flatnonzero(previous >= 0)
        reactions, unexplained_ns = self._find_reactions(previous, stream_waits, held_back, launch_ns, gap_ns)
        first_end = nodes.time[0] + nodes.dur[0] if len(nodes.time) else 0
        edges += [
            (launch_nodes[launched_work], work_nodes[launched_work], np.full(len(launched_work), launch_ns), "launch"),
            (
                work_nodes[previous[queued_work]],
                work_nodes[queued_work],
                self._queue_delays(previous, queued_work, gap_ns),
                "queue",
            ),
            *(
                (work_nodes[awaited], work_nodes[waiting], np.full(len(awaited), gap_ns), "wait")
                for awaited, waiting in (stream_waits, reactions)
            ),
            (held_back * 0, work_nodes[held_back], (self._start[held_back] - first_end).astype(np.float64), "wait"),
            return_edges,
        ]
        step_nodes = host_nodes[np.flatnonzero(host_role == 2)]
        tracks = tuple(tuple(group.tracks) for group in self._groups)
        return WaitGraph(
            nodes=nodes,
            edges=sorted_edges(edges),
            step_nodes=step_nodes,
            group_tracks=tracks,
            launch_ns=launch_ns,
            gap_ns=gap_ns,
            return_ns=return_ns,
            unexplained_ns=unexplained_ns,
        )

    def _host_points(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return time, event, thread group and role of the host's endpoints.

        Roles are 0 start and 1 end of a call, 2 step, 3 start and 4 end of a busy interval.
        """
        trace, events = self._trace, self._trace.events
        rows = distinct(np.concatenate((self._call[self._call >= 0], self._blocking_calls[0], _host_transfers(trace))))
        event_groups = self._group_of_track[events.track[rows]]
        rows, event_groups = rows[event_groups >= 0], event_groups[event_groups >= 0]
        columns = [(self._starts(rows), rows, event_groups, 0), (self._ends(rows), rows, event_groups, 1)]
        for group_number, group in enumerate(self._groups):
            spans = group.spans - self._first_ns
            if len(self._groups) == 1:
                spans = np.array([[spans[0, 0], spans[-1, 1]]])
            no_event = np.full(len(spans), -1)
            columns += [
                (spans[:, 0], no_event, no_event * 0 + group_number, 3),
                (spans[:, 1], no_event, no_event * 0 + group_number, 4),
            ]
        if len(trace.steps) and self._groups:
            main = max(int(self._group_of_track[int(trace.steps.track[0])]), 0)
            starts = trace.steps.ts - self._first_ns
            boundaries = np.append(starts, starts[-1:] + trace.steps.dur[-1:])
            columns.append((boundaries, np.full(len(boundaries), -1), np.full(len(boundaries), main), 2))
        time, event, thread_group = (
            np.concatenate([column[field] for column in columns]).astype(np.int64) for field in range(3)
        )
        role = np.repeat([column[3] for column in columns], [len(column[0]) for column in columns])
        order = np.lexsort((ROLE_ORDER[role], time, thread_group))
        return time[order], event[order], thread_group[order], role[order]

    def _host_edges(
        self, time: Ints, event: Ints, thread_group: Ints, role: Ints, nodes: Ints
    ) -> Iterator[_EdgeColumns]:
        """Yield the edges between endpoints of the host.

        They are along each thread group, between groups that hand over work, and to a group's first
        endpoint.
        """
        following = np.flatnonzero(thread_group[1:] == thread_group[:-1]) + 1
        elapsed = (time[following] - time[following - 1]).astype(np.float64)
        is_call = (event[following] >= 0) & (event[following] == event[following - 1]) & (role[following] == 1)
        is_waiting = is_call & is_in(event[following], self._waiting_calls)
        handover, latest_other = find_handovers(time, thread_group, role, following, len(self._groups))
        elapsed = np.where(
            is_waiting,
            np.minimum(elapsed, NONBLOCKING_CALL_NS),
            np.where(handover >= 0, np.minimum(elapsed, 1000), elapsed),
        )
        for kind, is_kind in (("call", is_call), ("host", ~is_call)):
            receivers = following[is_kind]
            yield nodes[receivers - 1], nodes[receivers], elapsed[is_kind], kind
        with_handover = np.flatnonzero(handover >= 0)
        receivers, givers = following[with_handover], latest_other[with_handover]
        yield nodes[givers], nodes[receivers], (time[receivers] - time[givers]).astype(np.float64), "handed"
        first_points = (
            np.flatnonzero(np.append(True, thread_group[1:] != thread_group[:-1]))
            if len(thread_group)
            else np.zeros(0, np.int64)
        )
        givers = latest_of_others(time, thread_group, first_points, len(self._groups))
        first_points, givers = first_points[givers >= 0], givers[givers >= 0]
        yield nodes[givers], nodes[first_points], (time[first_points] - time[givers]).astype(np.float64), "handed"

    def _find_blocking_calls(self) -> tuple[Ints, Ints]:
        """Return the calls that may wait for a device, and for copies the last piece of their work (else -1)."""
        trace, events = self._trace, self._trace.events
        rows = np.flatnonzero(
            (events.category == Category.RUNTIME) & trace.track_mask(TrackKind.THREAD) & (events.dur >= 0)
        )
        names = {int(name_id): trace.strings[int(name_id)] for name_id in distinct(events.name[rows])}
        syncs = [
            name_id for name_id, name in names.items() if DEVICE_SYNC_CALL.match(name) or STREAM_SYNC_CALL.match(name)
        ]
        copies = [name_id for name_id, name in names.items() if COPY_CALL.match(name)]
        waits = np.flatnonzero(
            events.category_mask(Category.SYNC) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
        )
        rows = np.concatenate((rows[is_in(events.name[rows], [*syncs, *copies])], waits))
        last_work = np.full(len(events) + 1, -1, np.int32)
        launched = np.flatnonzero(self._call >= 0)
        last_work[self._call[launched]] = launched  # the last of several assignments wins
        return rows, np.where(is_in(events.name[rows], copies), last_work[rows], -1)

    def _find_waiting_calls(self) -> tuple[Ints, Ints]:
        """Return the calls that wait for device work, and the work that they wait for.

        The work is their own copy, or the last work launched before them.

        A copy that has not ended within its call was not waited for, and neither was work that ends
        after the call.
        """
        rows, copy_work = self._blocking_calls
        if not len(self._work):
            return rows[:0], copy_work[:0]
        by_end = np.argsort(self._end, kind="stable")
        launch_time = np.where(self._issuer >= 0, self._starts(self._issuer), self._start)
        call_start, call_end = self._starts(rows), self._ends(rows)
        candidate = positions(self._end[by_end], call_end, after_equal=True) - 1
        for _ in range(MAX_LOOKBACK):  # skip work that another thread launched during the call
            is_launched_later = (candidate >= 0) & (launch_time[by_end[candidate]] > call_start)
            if not is_launched_later.any():
                break
            candidate = candidate - is_launched_later
        last_before = np.where(candidate >= 0, by_end[candidate], -1)
        awaited = np.where(copy_work >= 0, np.where(self._end[copy_work] <= call_end, copy_work, -1), last_before)
        is_waiting = (awaited >= 0) & (self._end[awaited] > call_start)
        return rows[is_waiting], awaited[is_waiting]

    def _return_edges(self, ends: Rows, works: Ints) -> tuple[_EdgeColumns, float]:
        """Return the edges from the end of awaited work to the end of the call that waits, and their delay.

        Args:
            ends: Node at which each event ends, -1 for none.
            works: Node of each piece of work.
        """
        rows, awaited = self._waiting_calls, self._awaited_work
        delays = self._ends(rows) - self._end[awaited]
        median = _median(delays, DEFAULT_RETURN_NS)
        has_end = ends[rows] >= 0
        nodes = ends[rows[has_end]]
        return (works[awaited[has_end]], nodes, np.full(len(nodes), median), "return"), median

    def _find_held_back(self, before: Ints) -> Ints:
        """Return the indices of work that is held back by work from before the recording.

        It is the first work of a stream and starts late.

        It waits for longer than the recording had lasted at its launch; shorter waits may have
        other causes. The host must not have waited for a device before, because then nothing from
        before the recording is left, and no other work may have ended just before.
        """
        events = self._trace.events
        rows = self._blocking_calls[0]
        names = {
            int(name_id)
            for name_id in distinct(events.name[rows])
            if DEVICE_SYNC_CALL.match(self._trace.strings[int(name_id)])
        }
        first_sync = self._ends(rows[is_in(events.name[rows], sorted(names))]).min(initial=INT64_LIMITS.max)
        issued = np.where(self._call >= 0, self._starts(self._call), INT64_LIMITS.max)
        minimum = np.maximum(issued, MIN_HELD_BACK_NS)
        is_held_back = (before < 0) & (self._start - minimum > issued) & (self._start <= first_sync)
        ends = np.sort(self._end)
        latest_end = np.append(INT64_LIMITS.min, ends)[positions(ends, self._start, after_equal=True)]
        return np.flatnonzero(is_held_back & (latest_end < self._start - MAX_REACTION_NS))

    def _median_delays(self, previous: Ints, held_back: Ints) -> tuple[float, float]:
        """Return the median delays of launches and of queued work.

        The first is from a launch to its work on a free device, the second between queued pieces of
        work.

        If no device is ever free, launches on a free stream are used, although their work may wait
        for another stream.
        """
        is_launched = self._call >= 0
        is_launched[held_back] = False
        issued = np.where(is_launched, self._starts(self._call), 0)
        previous_end = np.where(previous >= 0, self._end[previous], INT64_LIMITS.min)
        busy_until = np.append(INT64_LIMITS.min, np.maximum.accumulate(self._end)[:-1])
        is_queued = (previous >= 0) & (~is_launched | (previous_end >= issued + MIN_QUEUED_NS))
        is_single = is_queued & ~(
            (previous >= 0) & is_launched & (self._call == self._call[previous])
        )  # not inside one graph launch
        is_free = is_launched & (busy_until < issued)
        launch, gap = (
            (self._start - issued)[is_free if is_free.any() else is_launched & (previous_end < issued)],
            (self._start - previous_end)[is_single],
        )
        return _median(launch, DEFAULT_LAUNCH_NS), _median(gap, DEFAULT_GAP_NS)

    def _queue_delays(self, previous: Ints, queued: Ints, gap_ns: float) -> Floats:
        """Return the delay from each queued work to the work behind it.

        Work inside a graph launch has its own median.
        """
        call = self._call[queued]
        is_in_graph = (call >= 0) & (call == self._call[previous[queued]])
        gaps = self._start[queued] - self._end[previous[queued]]
        return np.where(is_in_graph, _median(gaps[is_in_graph], gap_ns), gap_ns)

    def _find_reactions(
        self, previous: Ints, stream_waits: tuple[Ints, Ints], held_back: Ints, launch_ns: float, gap_ns: float
    ) -> tuple[tuple[Ints, Ints], int]:
        """Return work that began just after work of another stream ended, later than its known dependencies.

        And the unexplained rest in ns.
        """
        issued = np.where(self._call >= 0, self._starts(self._call) + launch_ns, -np.inf)
        ready_time = np.maximum(issued, np.where(previous >= 0, self._end[previous] + gap_ns, -np.inf))
        np.maximum.at(ready_time, stream_waits[1], self._end[stream_waits[0]] + gap_ns)
        delay = np.where(np.isfinite(ready_time), self._start - ready_time, 0)
        delay[held_back] = 0
        by_end = np.argsort(self._end, kind="stable")
        latest_ended = by_end[positions(self._end[by_end], self._start, after_equal=True) - 1]
        is_reaction = (
            (delay > MIN_LATE_NS)
            & (self._start - self._end[latest_ended] <= MAX_REACTION_NS)
            & (self._end[latest_ended] <= self._start)
        )
        is_reaction &= (self._stream[latest_ended] != self._stream) & (self._end[latest_ended] > ready_time)
        unexplained = int(delay[(delay > MIN_LATE_NS) & ~is_reaction].sum())
        return (latest_ended[is_reaction], np.flatnonzero(is_reaction)), unexplained


def _host_transfers(trace: Trace) -> Ints:
    """Return the collectives that a thread takes part in, if no device does."""
    is_comm = trace.events.category == Category.COMM
    if not is_comm.any() or (is_comm & trace.track_mask(TrackKind.STREAM)).any():
        return np.zeros(0, np.int64)
    calls = collectives(trace)
    return calls.part_row[calls.is_transfer]


def _median(values: Ints, default: float) -> float:
    """Return the median, not negative; `default` without values."""
    return max(float(np.median(values)), 0.0) if len(values) else default


def _previous_of_key(key: Ids) -> Ints:
    """Return the index of the previous item with the same key, -1 for none."""
    order = np.argsort(key, kind="stable")
    previous = np.full(len(key), -1)
    equal = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    previous[order[equal + 1]] = order[equal]
    return previous


def sorted_edges(edges: Sequence[_EdgeColumns]) -> Dependencies:
    """Return edges sorted by the waiting node; edges that lead backwards, because clocks differ, are left out."""
    src: Ids = np.concatenate([edge[0] for edge in edges], dtype=np.int32, casting="unsafe")
    dst: Ids = np.concatenate([edge[1] for edge in edges], dtype=np.int32, casting="unsafe")
    ns: Floats = np.concatenate([edge[2] for edge in edges], dtype=np.float64)
    kinds = np.array([DEPENDENCY_KINDS.index(edge[3]) for edge in edges], np.int32)
    kind = np.repeat(kinds, [len(edge[0]) for edge in edges])
    nodes = int(dst.max(initial=-1)) + 1
    native = function("vp_sort_edges", c_int64, *_EDGE_TYPES, c_int64, c_int64, INT64, *_EDGE_TYPES)
    if native:
        ordered = np.empty_like(src), np.empty_like(dst), np.empty_like(ns), np.empty_like(kind)
        count: int = native(src, dst, ns, kind, len(src), nodes, np.empty(nodes + 1, np.int64), *ordered)
        if count >= 0:
            return Dependencies(ordered[0][:count], ordered[1][:count], ordered[2][:count], ordered[3][:count])
    order = group_rows(dst, nodes)[0]
    order = order[src[order] < dst[order]]
    return Dependencies(src[order], dst[order], ns[order], kind[order])
