"""The graphs of several ranks as one: a collective exchanges data once the last of its ranks has arrived."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Floats, Ids, Ints, Trace
from visualprof.views.measure.alignment import offsets
from visualprof.views.measure.collectives import Matched, collectives, match
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.graph import KINDS, Graph, Moments, Replay, Waits, solve
from visualprof.views.measure.replay.path import Scope, window

Times = tuple[Floats, Floats]  # (n,) ns of the moments' work and (e,) ns of the waits


class Exchanges(msgspec.Struct, frozen=True):
    """Matched parts of collectives of one rank, (p,).

    key: the same on all ranks. begin, end: moments of a thread's call; of a device both are its work. call: the wait
    of a thread's call for itself, -1 of a device.
    """

    key: Ints
    begin: Ints
    end: Ints
    call: Ints


class Rank(msgspec.Struct, frozen=True):
    """A rank of a run."""

    graph: Graph
    exchanges: Exchanges

    def without(self, times: Times) -> Times:
        """Its times with collectives that take none."""
        return self._with(times, np.zeros_like(times[0]), np.zeros_like(times[1]))

    def scaled(self, times: Times, factor: float) -> Times:
        """All its times but those of its collectives, times a factor."""
        return self._with((times[0] * factor, times[1] * factor), *times)

    def _with(self, times: Times, dur: Floats, ns: Floats) -> Times:
        """Times of which those of collectives are others."""
        one, out = self.exchanges, (np.array(times[0]), np.array(times[1]))
        work, calls = one.begin[one.call < 0], one.call[one.call >= 0]
        out[0][work], out[1][calls] = dur[work], ns[calls]
        return out

    def changes(self, times: Times) -> Floats:
        """How many times as long as measured a change makes each of its collectives, (p,)."""
        one, (dur, ns) = self.exchanges, times
        on_device = np.array(dur[one.begin]), self.graph.moments.dur[one.begin]
        on_host = ns[one.call], self.graph.waits.ns[one.call]
        now, before = (np.where(one.call < 0, *pair) for pair in zip(on_device, on_host, strict=True))
        return np.where(before > 0, now / np.maximum(before, 1), 1.0)

    def own_ns(self, times: Times) -> float:
        """How long it would take alone, were there no collectives."""
        dur, ns = self.without(times)
        start, end, _ = window(self.graph, solve(self.graph, dur, ns).at, dur)
        return end - start


class Joint(msgspec.Struct, frozen=True):
    """Graphs of ranks as one. Each exchange of data adds its beginning, and the transfer of each of its ranks.

    rank: (n,) of each moment, -1 of a beginning. category: (n,) of device work and transfers, else -1. place: (n,) and
    edge: (e,) where the moments and waits stood before they were sorted by time. marks: (r, 2) moments of the first
    step's start and the last one's end. transfer: of each rank, (p,) ns from the last arrival to its own end.
    """

    ranks: tuple[Rank, ...]
    graph: Graph
    rank: Ids
    category: Ids
    place: Ints
    edge: Ints
    marks: Ints
    exchanges: int
    transfer: tuple[Ints, ...]

    def times(self, each: Sequence[Times]) -> Times:
        """Of the whole, from those of each rank."""
        pairs = list(zip(self.ranks, each, strict=True))
        moved = [spent * rank.changes(times) for (rank, times), spent in zip(pairs, self.transfer, strict=True)]
        durs, waits = zip(*(rank.without(times) for rank, times in pairs), strict=True)
        dur = np.concatenate([*durs, np.zeros(self.exchanges), *moved])
        ns = np.concatenate([*waits, np.zeros(4 * sum(map(len, moved)))])
        return dur[self.place], ns[self.edge]

    def whole(self, at: Floats, dur: Floats) -> Scope:
        """All steps of all ranks."""
        ends = at + dur
        last = np.concatenate((np.flatnonzero(self.graph.moments.line < 0), self.marks[:, 1]))
        last = last if len(last) else np.arange(len(at))
        node = int(last[np.argmax(ends[last])])
        start = float(at[self.marks[:, 0]].min() if len(self.marks) else at.min())
        return Scope(start, node, round(start), round(float(ends[node])))


def join(traces: Sequence[Trace]) -> Joint | None:
    """The graphs of the ranks on one clock, that of the collectives' ends; None where no collectives are matched."""
    if len(traces) < 2:
        return None
    graphs = [wait_graph(trace) for trace in traces]
    matched = match([collectives(trace) for trace in traces])
    ranks = [Rank(graph, _exchanges(graph, mine)) for graph, mine in zip(graphs, matched, strict=True)]
    if not all(len(rank.exchanges.key) for rank in ranks):
        return None
    shifts = [(one.clock_ns or 0) - (one.residual_ns or 0) for one in offsets(list(traces))]
    categories = [
        np.where(graph.moments.line < 0, trace.events.category[graph.moments.event].astype(np.int32), -1)
        for graph, trace in zip(graphs, traces, strict=True)
    ]
    return _joined(ranks, shifts, categories)


def _exchanges(graph: Graph, mine: Matched) -> Exchanges:
    """The parts in which data is exchanged, that all ranks have, and that are moments of the graph."""
    chosen = np.flatnonzero(mine.calls.exchanges & (mine.part >= 0))
    row, key = mine.calls.row[chosen], mine.part[chosen]
    event, nodes = graph.moments.event, np.flatnonzero(graph.moments.event >= 0)
    first, last = (np.full(int(max(row.max(initial=0), event.max(initial=0))) + 1, -1) for _ in range(2))
    first[event[nodes[::-1]]] = nodes[::-1]
    last[event[nodes]] = nodes
    called = np.full(len(graph.moments.at) + 1, -1)
    calls = np.flatnonzero(graph.waits.kind == KINDS.index("call"))
    called[graph.waits.dst[calls]] = calls
    begin, end = first[row], last[row]
    on_device = (begin >= 0) & (graph.moments.line[begin] < 0)
    call = np.where(on_device, -1, called[end])
    holds = on_device | (call >= 0)
    return Exchanges(key[holds], begin[holds], end[holds], call[holds])


def _joined(ranks: Sequence[Rank], shifts: list[int], categories: Sequence[Ids]) -> Joint:
    """The call or the device work of a rank is its arrival; what came after that comes after its transfer."""
    base = np.cumsum([0, *(len(rank.graph.moments.at) for rank in ranks)])
    keys = distinct(np.concatenate([rank.exchanges.key for rank in ranks]))
    hubs = [np.searchsorted(keys, rank.exchanges.key) for rank in ranks]
    at = [rank.graph.moments.at + shift for rank, shift in zip(ranks, shifts, strict=True)]
    begun = _begun(ranks, at, hubs, len(keys))
    counts = [len(hub) for hub in hubs]
    moved = base[-1] + len(keys) + np.cumsum([0, *counts])
    waits, beside = list[tuple[Ints, Ints, Ids]](), list[tuple[Ints, Ints, Ids]]()
    transfer, together = list[Ints](), list[Ints]()
    for number, (rank, hub, times) in enumerate(zip(ranks, hubs, at, strict=True)):
        one, graph, low = rank.exchanges, rank.graph, base[number]
        on_device = one.call < 0
        after: Ints = np.arange(int(moved[number]), int(moved[number + 1]))
        ended, begin = times[one.end] + graph.moments.dur[one.end], times[one.begin]
        together.append(np.maximum(begun[hub], begin))
        transfer.append(ended - together[-1])
        source = np.arange(len(times)) + low
        source[one.begin[on_device]] = after[on_device]
        waits.append((source[graph.waits.src], graph.waits.dst + low, graph.waits.kind))
        kind, begins = np.full(len(hub), KINDS.index("rank"), np.int32), base[-1] + hub
        beside += [(one.begin + low, begins, kind), (begins, after, kind), (one.begin + low, after, kind)]
        beside.append((after[~on_device], one.end[~on_device] + low, kind[~on_device]))
    times = np.concatenate([*at, begun, *together])
    place = np.argsort(times, kind="stable")
    node = np.empty(len(place), np.int64)
    node[place] = np.arange(len(place))
    src, dst, kind = (np.concatenate([part[i] for part in (*waits, *beside)]) for i in range(3))
    src, dst = node[src], node[dst]
    edge = np.argsort(dst, kind="stable")
    edge = edge[src[edge] < dst[edge]]  # where clocks differ some lead backwards
    more = len(keys) + sum(counts)
    line, event = (
        np.concatenate([*(getattr(rank.graph.moments, name) for rank in ranks), np.full(more, -1, np.int32)])[place]
        for name in ("line", "event")
    )
    marks = [rank.graph.marks[[0, -1]] + low for rank, low in zip(ranks, base, strict=False) if len(rank.graph.marks)]
    moments = Moments(times[place], event, line, np.zeros(len(place), np.int64))
    joined = Waits(
        src[edge].astype(np.int32), dst[edge].astype(np.int32), np.zeros(len(edge)), kind[edge].astype(np.int32)
    )
    number = np.arange(len(ranks))
    sizes = (*np.diff(base), len(keys), *counts)
    unexplained = sum(rank.graph.unexplained_ns for rank in ranks)
    return Joint(
        tuple(ranks),
        Graph(moments, joined, np.zeros(0, np.int64), (), 0.0, 0.0, 0.0, unexplained),
        np.repeat(np.concatenate((number, [-1], number)), sizes)[place].astype(np.int32),
        np.concatenate([*categories, np.full(more, Category.COMM, np.int32)])[place],
        place,
        edge,
        node[np.array(marks, np.int64).reshape(-1, 2)],
        len(keys),
        tuple(transfer),
    )


def _begun(ranks: Sequence[Rank], at: Sequence[Ints], hubs: Sequence[Ints], count: int) -> Ints:
    """When the last rank of each exchange has arrived, (count,) ns; before one of them is done, which did not wait."""
    arrival, ended = np.full(count, np.iinfo(np.int64).min), np.full(count, np.iinfo(np.int64).max)
    for rank, times, hub in zip(ranks, at, hubs, strict=True):
        one = rank.exchanges
        np.maximum.at(arrival, hub, times[one.begin])
        np.minimum.at(ended, hub, times[one.end] + rank.graph.moments.dur[one.end])
    return np.minimum(arrival, ended - 1)


def solved(joint: Joint, each: Sequence[Times]) -> tuple[Replay, Floats, Floats]:
    """When each moment comes, with the times of the whole."""
    dur, ns = joint.times(each)
    return solve(joint.graph, dur, ns), dur, ns
