"""The graph of a recording: threads as lines of control, streams, launches, and what waits for what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Floats, Ids, Ints, Rows, Trace, TrackKind
from visualprof.views.measure.collectives import collectives
from visualprof.views.measure.groups import distinct, is_in
from visualprof.views.measure.intervals import INT64_LIMITS, intersect, merge, span_length
from visualprof.views.measure.launch import device_calls
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Dependencies, GraphNodes, WaitGraph
from visualprof.views.measure.self_time import thread_busy_spans
from visualprof.views.measure.trace_cache import cached_on_trace

DEVICE_SYNC_CALL = re.compile(r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize")
STREAM_SYNC_CALL = re.compile(r"(cuda|hip)(Stream|Event)Synchronize|cuStreamSynchronize")
COPY_CALL = re.compile(r"(cuda|hip)(Memcpy|MemcpyAsync|MemcpyWithStream|Free)$")
STREAM_WAIT_CALL = "StreamWaitEvent"
MAX_OVERLAP_SHARE = 0.02  # of a thread's work beside another's, up to which the two are one line of control
MIN_HANDOFF_REST_NS = 20_000  # a longer rest of a thread may end because another one asks for something
NONBLOCKING_CALL_NS = 3_000  # a call that need not wait
MIN_LATE_NS = 5_000  # work that starts so much later than all that it is known to wait for waits for something else
MAX_REACTION_NS = 15_000
MIN_HELD_BACK_NS = (
    50_000  # the first work of a stream that comes so late waits for what was asked for before the recording
)
MIN_QUEUED_NS = 4_000  # before the end of the work in front, that work was surely queued
MAX_LOOKBACK = 64
ROLE_ORDER = np.array([4, 0, 2, 3, 1])  # roles that meet: ends before starts, and calls within the work around them
DEFAULT_LAUNCH_NS, DEFAULT_GAP_NS, DEFAULT_RETURN_NS = 6_000, 1_000, 8_000  # where a recording has none to learn from


@cached_on_trace
def wait_graph(trace: Trace) -> WaitGraph:
    """The graph of a recording. Source: docs/whatif.md, ADR 61."""
    return _Builder(trace).graph()


_Edges = tuple[Ints, Ints, Floats, str]  # src, dst, ns and the kind


class _Line(msgspec.Struct, frozen=True):
    """Threads that act as one. spans: (m, 2) ns in which any of them works."""

    tracks: list[int]
    spans: Ints


class _Builder:
    """Collects the moments of lines and streams, and then their waits."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        events, self._first_ns = trace.events, trace.span_ns[0]
        work, call, _ = device_calls(trace)
        order = np.argsort(events.ts[work], kind="stable")
        self._work, self._call = work[order], call[order]
        self._start, self._end = self._starts(self._work), self._ends(self._work)
        self._stream = events.track[self._work]
        self._lines = _lines(trace)
        line = np.full(len(trace.tracks) + 1, -1, np.int32)
        for number, one in enumerate(self._lines):
            line[one.tracks] = number
        self._line_of = line
        self._awaiting, self._awaited_work = self._awaited_by_calls()

    def _starts(self, rows: Rows) -> Ints:
        """When events begin, ns since the first one: as Unix time a float has them to 256 ns only."""
        return self._trace.events.ts[rows] - self._first_ns

    def _ends(self, rows: Rows) -> Ints:
        return self._trace.events.end[rows] - self._first_ns

    def graph(self) -> WaitGraph:
        """All of it."""
        events = self._trace.events
        at, row, line, role = self._host_points()
        known = self._call >= 0
        begun = np.where(known, np.maximum(self._start, self._starts(self._call) + 1), self._start)
        count, host = len(self._work), len(at)
        times = np.concatenate((begun, at))
        order = np.lexsort((np.arange(count + host), np.repeat([0, 1], [count, host]), times))
        node = np.empty(count + host, np.int64)
        node[order] = np.arange(count + host)
        works, points = node[:count], node[count:]
        starts, ends = (np.full(len(events) + 1, -1) for _ in range(2))
        starts[row[role == 0]], ends[row[role == 1]] = points[role == 0], points[role == 1]
        moments = GraphNodes(
            times[order].astype(np.int64),
            np.concatenate((self._work, row))[order].astype(np.int32),
            np.concatenate((np.full(count, -1), line))[order].astype(np.int32),
            np.concatenate((self._end - self._start, np.zeros(host, np.int64)))[order],
        )
        launched = starts[self._call]
        before = _before(self._stream)
        held = self._held_back(before)
        launch_ns, gap_ns = self._constants(before, held)
        edges = list(self._host_edges(at, row, line, role, points))
        back, return_ns = self._returns(ends, works)
        waited = self._waits()
        has, queued = np.flatnonzero(launched >= 0), np.flatnonzero(before >= 0)
        late, unexplained = self._late(before, waited, held, launch_ns, gap_ns)
        first = moments.time[0] + moments.dur[0] if len(moments.time) else 0
        edges += [
            (launched[has], works[has], np.full(len(has), launch_ns), "launch"),
            (works[before[queued]], works[queued], self._paces(before, queued, gap_ns), "queue"),
            *((works[a], works[b], np.full(len(a), gap_ns), "wait") for a, b in (waited, late)),
            (held * 0, works[held], (self._start[held] - first).astype(np.float64), "wait"),
            back,
        ]
        marks = points[np.flatnonzero(role == 2)]
        tracks = tuple(tuple(one.tracks) for one in self._lines)
        return WaitGraph(moments, _sorted(edges), marks, tracks, launch_ns, gap_ns, return_ns, unexplained)

    def _host_points(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Time, event, line and role (0 start and 1 end of a call, 2 step, 3 start and 4 end of work) of the points."""
        trace, events = self._trace, self._trace.events
        rows = distinct(np.concatenate((self._call[self._call >= 0], self._blocking()[0], _exchanges(trace))))
        of = self._line_of[events.track[rows]]
        rows, of = rows[of >= 0], of[of >= 0]
        parts = [(self._starts(rows), rows, of, 0), (self._ends(rows), rows, of, 1)]
        for number, line in enumerate(self._lines):
            spans = line.spans - self._first_ns
            if len(self._lines) == 1:
                spans = np.array([[spans[0, 0], spans[-1, 1]]])
            none = np.full(len(spans), -1)
            parts += [(spans[:, 0], none, none * 0 + number, 3), (spans[:, 1], none, none * 0 + number, 4)]
        if len(trace.steps) and self._lines:
            main = max(int(self._line_of[int(trace.steps.track[0])]), 0)
            starts = trace.steps.ts - self._first_ns
            marks = np.append(starts, starts[-1:] + trace.steps.dur[-1:])
            parts.append((marks, np.full(len(marks), -1), np.full(len(marks), main), 2))
        at, row, line = (np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(3))
        role = np.repeat([part[3] for part in parts], [len(part[0]) for part in parts])
        order = np.lexsort((ROLE_ORDER[role], at, line))
        return at[order], row[order], line[order], role[order]

    def _host_edges(self, at: Ints, row: Ints, line: Ints, role: Ints, points: Ints) -> Iterator[_Edges]:
        """Each point after the one before it on its line; what one line hands to another; and where a line begins."""
        after = np.flatnonzero(line[1:] == line[:-1]) + 1
        spent = (at[after] - at[after - 1]).astype(np.float64)
        call = (row[after] >= 0) & (row[after] == row[after - 1]) & (role[after] == 1)
        waits = call & is_in(row[after], self._awaiting)
        handed, giver = self._handed(at, line, role, after)
        spent = np.where(
            waits, np.minimum(spent, NONBLOCKING_CALL_NS), np.where(handed >= 0, np.minimum(spent, 1000), spent)
        )
        for kind, chosen in (("call", call), ("host", ~call)):
            mine = after[chosen]
            yield points[mine - 1], points[mine], spent[chosen], kind
        given = np.flatnonzero(handed >= 0)
        mine, other = after[given], giver[given]
        yield points[other], points[mine], (at[mine] - at[other]).astype(np.float64), "handed"
        begins = np.flatnonzero(np.append(True, line[1:] != line[:-1])) if len(line) else np.zeros(0, np.int64)
        other = self._latest_of_others(at, line, begins)
        begins, other = begins[other >= 0], other[other >= 0]
        yield points[other], points[begins], (at[begins] - at[other]).astype(np.float64), "handed"

    def _handed(self, at: Ints, line: Ints, role: Ints, after: Ints) -> tuple[Ints, Ints]:
        """Of each point with one before it on its line: the point of another line that ended its rest, -1 for none."""
        rest = at[after] - at[after - 1]
        resting = (rest > MIN_HANDOFF_REST_NS) & is_in(role[after - 1], (1, 4)) & is_in(role[after], (0, 3))
        other = np.full(len(after), -1)
        if len(self._lines) > 1:
            mine = np.flatnonzero(resting)
            other[mine] = self._latest_of_others(at, line, after[mine])
        holds = (other >= 0) & (at[other] > at[after - 1]) & (at[after] - at[other] < rest / 2)
        return np.where(holds, other, -1), other

    def _latest_of_others(self, at: Ints, line: Ints, wanted: Ints) -> Ints:
        """The last point of another line before each of some points, -1 for none."""
        found, best = np.full(len(wanted), -1), np.full(len(wanted), np.iinfo(np.int64).min)
        for number in range(len(self._lines)):
            first, last = np.searchsorted(line, (number, number + 1))
            place = first + np.searchsorted(at[first:last], at[wanted]) - 1
            holds = (line[wanted] != number) & (place >= first)
            holds &= np.where(holds, at[np.maximum(place, 0)] > best, False)
            found, best = np.where(holds, place, found), np.where(holds, at[np.maximum(place, 0)], best)
        return found

    def _blocking(self) -> tuple[Ints, Ints]:
        """Calls that may wait for a device, and of those that copy the last piece of their own work, else -1."""
        trace, events = self._trace, self._trace.events
        rows = np.flatnonzero(
            (events.category == Category.RUNTIME) & trace.track_mask(TrackKind.THREAD) & (events.dur >= 0)
        )
        names = {int(i): trace.strings[int(i)] for i in distinct(events.name[rows])}
        syncs = [i for i, name in names.items() if DEVICE_SYNC_CALL.match(name) or STREAM_SYNC_CALL.match(name)]
        copies = [i for i, name in names.items() if COPY_CALL.match(name)]
        rows = rows[is_in(events.name[rows], [*syncs, *copies])]
        own = np.full(len(events) + 1, -1)
        known = np.flatnonzero(self._call >= 0)
        own[self._call[known]] = known  # of several the last one stays
        return rows, np.where(is_in(events.name[rows], copies), own[rows], -1)

    def _awaited_by_calls(self) -> tuple[Ints, Ints]:
        """Calls that wait for device work, and places in it: their own copy, or the last that was launched before them.

        A copy that has not ended within its call was not waited for, nor was work that ends later than the call.
        """
        rows, copied = self._blocking()
        if not len(self._work):
            return rows[:0], copied[:0]
        by_end = np.argsort(self._end, kind="stable")
        launch = np.where(self._call >= 0, self._starts(self._call), self._start)
        begins, ends = self._starts(rows), self._ends(rows)
        place = np.searchsorted(self._end[by_end], ends, side="right") - 1
        for _ in range(MAX_LOOKBACK):  # over what was launched by another thread during the call
            late = (place >= 0) & (launch[by_end[place]] > begins)
            if not late.any():
                break
            place = place - late
        last = np.where(place >= 0, by_end[place], -1)
        awaited = np.where(copied >= 0, np.where(self._end[copied] <= ends, copied, -1), last)
        during = (awaited >= 0) & (self._end[awaited] > begins)
        return rows[during], awaited[during]

    def _returns(self, ends: Ints, works: Ints) -> tuple[_Edges, float]:
        """From the end of awaited work to that of the call. ends: the moment at which each event ends, -1 for none."""
        rows, awaited = self._awaiting, self._awaited_work
        back = self._ends(rows) - self._end[awaited]
        median = _median(back, DEFAULT_RETURN_NS)
        known = ends[rows] >= 0
        node = ends[rows[known]]
        return (works[awaited[known]], node, np.full(len(node), median), "return"), median

    def _waits(self) -> tuple[Ints, Ints]:
        """Work that a stream was told to wait for, and the first work behind that, as places.

        A thread's next launch after cudaStreamWaitEvent waits for the last launch on another stream before it.
        """
        trace, events = self._trace, self._trace.events
        told = [i for i, name in enumerate(trace.strings) if STREAM_WAIT_CALL in name]
        rows = np.flatnonzero(is_in(events.name, told) & (events.category == Category.RUNTIME))
        known = np.flatnonzero(self._call >= 0)
        if not len(rows) or not len(known):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        known = known[np.argsort(self._starts(self._call[known]), kind="stable")]
        thread = events.track[self._call[known]]
        behind = np.full(len(rows), -1)
        for track in distinct(events.track[rows]).tolist():
            mine, own = np.flatnonzero(events.track[rows] == track), known[thread == track]
            place = np.searchsorted(self._starts(self._call[own]), self._starts(rows[mine]), side="right")
            behind[mine] = np.append(own, -1)[np.minimum(place, len(own))]
        rows, behind = rows[behind >= 0], behind[behind >= 0]
        last = np.append(behind[1:] != behind[:-1], True)  # of several waits before a launch the last
        rows, behind = rows[last], behind[last]
        awaited, latest = np.full(len(rows), -1), np.full(len(rows), np.iinfo(np.int64).min)
        for stream in distinct(self._stream).tolist():
            mine = known[self._stream[known] == stream]
            times = self._starts(self._call[mine])
            place = np.searchsorted(times, self._starts(rows)) - 1
            holds = (place >= 0) & (self._stream[behind] != stream)
            at = np.where(holds, times[np.maximum(place, 0)], latest)
            better = holds & (at > latest)
            awaited, latest = np.where(better, mine[np.maximum(place, 0)], awaited), np.where(better, at, latest)
        return awaited[awaited >= 0], behind[awaited >= 0]

    def _held_back(self, before: Ints) -> Ints:
        """Places of work that what was asked for before the recording holds back: the first of a stream, and late.

        It waits for longer than the recording lasts when it is asked for; less may have other causes. Unless the host
        has waited for a device before, which leaves nothing from before the recording, or other work ended just then.
        """
        events = self._trace.events
        rows = self._blocking()[0]
        names = {int(i) for i in distinct(events.name[rows]) if DEVICE_SYNC_CALL.match(self._trace.strings[int(i)])}
        synced = self._ends(rows[is_in(events.name[rows], sorted(names))]).min(initial=INT64_LIMITS.max)
        asked = np.where(self._call >= 0, self._starts(self._call), INT64_LIMITS.max)
        least = np.maximum(asked, MIN_HELD_BACK_NS)
        held = (before < 0) & (self._start - least > asked) & (self._start <= synced)
        ends = np.sort(self._end)
        latest = np.append(INT64_LIMITS.min, ends)[np.searchsorted(ends, self._start, side="right")]
        return np.flatnonzero(held & (latest < self._start - MAX_REACTION_NS))

    def _constants(self, before: Ints, held: Ints) -> tuple[float, float]:
        """Medians from a launch to its work on a free device, and from work to the work that was queued behind it.

        Where no device is ever free, of launches on a free stream: such work may also wait for another stream.
        """
        known = self._call >= 0
        known[held] = False
        asked = np.where(known, self._starts(self._call), 0)
        ended = np.where(before >= 0, self._end[before], INT64_LIMITS.min)
        reached = np.append(INT64_LIMITS.min, np.maximum.accumulate(self._end)[:-1])
        queued = (before >= 0) & (~known | (ended >= asked + MIN_QUEUED_NS))
        alone = queued & ~((before >= 0) & known & (self._call == self._call[before]))  # not within one graph
        free = known & (reached < asked)
        launch, gap = (
            (self._start - asked)[free if free.any() else known & (ended < asked)],
            (self._start - ended)[alone],
        )
        return _median(launch, DEFAULT_LAUNCH_NS), _median(gap, DEFAULT_GAP_NS)

    def _paces(self, before: Ints, queued: Ints, gap_ns: float) -> Floats:
        """From each queued work to what was queued behind it: inside the launch of a graph at the pace of graphs."""
        call = self._call[queued]
        inside = (call >= 0) & (call == self._call[before[queued]])
        gaps = self._start[queued] - self._end[before[queued]]
        return np.where(inside, _median(gaps[inside], gap_ns), gap_ns)

    def _late(
        self, before: Ints, waits: tuple[Ints, Ints], held: Ints, launch_ns: float, gap_ns: float
    ) -> tuple[tuple[Ints, Ints], int]:
        """Work that began just after another stream's had ended, later than all that is known; and what is left."""
        asked = np.where(self._call >= 0, self._starts(self._call) + launch_ns, -np.inf)
        ready = np.maximum(asked, np.where(before >= 0, self._end[before] + gap_ns, -np.inf))
        np.maximum.at(ready, waits[1], self._end[waits[0]] + gap_ns)
        late = np.where(np.isfinite(ready), self._start - ready, 0)
        late[held] = 0
        by_end = np.argsort(self._end, kind="stable")
        latest = by_end[np.searchsorted(self._end[by_end], self._start, side="right") - 1]
        reacts = (
            (late > MIN_LATE_NS)
            & (self._start - self._end[latest] <= MAX_REACTION_NS)
            & (self._end[latest] <= self._start)
        )
        reacts &= (self._stream[latest] != self._stream) & (self._end[latest] > ready)
        unexplained = int(late[(late > MIN_LATE_NS) & ~reacts].sum())
        return (latest[reacts], np.flatnonzero(reacts)), unexplained


def _exchanges(trace: Trace) -> Ints:
    """Collectives that a thread takes part in, where no device does."""
    comm = trace.events.category == Category.COMM
    if not comm.any() or (comm & trace.track_mask(TrackKind.STREAM)).any():
        return np.zeros(0, np.int64)
    calls = collectives(trace)
    return calls.part_row[calls.is_transfer]


def _median(values: Ints, usual: float) -> float:
    return max(float(np.median(values)), 0.0) if len(values) else usual


def _lines(trace: Trace) -> list[_Line]:
    """Threads as lines of control, the busiest first; threads that do not work at the same time are one."""
    spans = thread_busy_spans(trace)
    lines = list[_Line]()
    for track, own in sorted(spans.items(), key=lambda item: -span_length(item[1])):
        for number, line in enumerate(lines):
            if span_length(intersect(line.spans, own)) <= MAX_OVERLAP_SHARE * span_length(own):
                lines[number] = _Line([*line.tracks, track], merge(line.spans, own))
                break
        else:
            lines.append(_Line([track], own))
    return lines


def _before(key: Ids) -> Ints:
    """The place before each of the same key, -1 for none."""
    order = np.argsort(key, kind="stable")
    found = np.full(len(key), -1)
    same = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    found[order[same + 1]] = order[same]
    return found


def _sorted(edges: Sequence[_Edges]) -> Dependencies:
    """Edges by the moment that waits; those that lead backwards, where clocks differ, are left out."""
    src, dst, ns = (np.concatenate([np.asarray(edge[i]) for edge in edges]) for i in range(3))
    kind = np.repeat([DEPENDENCY_KINDS.index(edge[3]) for edge in edges], [len(edge[0]) for edge in edges])
    order = np.argsort(dst, kind="stable")
    order = order[src[order] < dst[order]]
    return Dependencies(
        src[order].astype(np.int32),
        dst[order].astype(np.int32),
        ns[order].astype(np.float64),
        kind[order].astype(np.int32),
    )
