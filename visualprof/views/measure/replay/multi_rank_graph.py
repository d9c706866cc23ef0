"""The graphs of several ranks as one: a collective exchanges data once the last of its ranks has arrived."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import Floats, Ids, Ints
from visualprof.views.measure.alignment import axis_shifts, clock_offsets
from visualprof.views.measure.call_matching import match_calls
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Dependencies, GraphNodes, Replay, WaitGraph, solve
from visualprof.views.measure.replay.path import PATH_PARTS, PathScope
from visualprof.views.measure.replay.rank_graph import RankGraph
from visualprof.views.measure.replay.transfers import ReplayTimes, Transfers


class MultiRankGraph(msgspec.Struct, frozen=True):
    """Graphs of ranks as one. Each exchange of data adds its beginning, and the transfer of each of its ranks.

    rank: (n,) of each moment, -1 of a beginning. work: (n,) places in PARTS of device work and transfers, else -1.
    place: (n,) and edge: (e,) where the moments and waits stood before they were sorted by time. marks: (r, 2) moments
    of the first step's start and the last one's end. begun: exchanges, each once. exchanges: those of all ranks in a
    row, in their moments and waits in a row; usual: the times of these. transfer: (p,) ns from the last arrival to the
    rank's own end.
    """

    ranks: tuple[RankGraph, ...]
    graph: WaitGraph
    rank: Ids
    work_part: Ids
    node_order: Ints
    edge_order: Ints
    step_nodes: Ints
    transfer_count: int
    transfers: Transfers
    measured_times: ReplayTimes
    transfer_ns: Ints

    def combine_times(self, each: Sequence[ReplayTimes]) -> ReplayTimes:
        """Of the whole, from those of each rank."""
        times = _in_a_row(each)
        moved = self.transfer_ns * self.transfers.slowdown(times, self.measured_times)
        dur, ns = self.transfers.zero_transfers(times)
        dur, ns = np.concatenate((dur, np.zeros(self.transfer_count), moved)), np.append(ns, np.zeros(4 * len(moved)))
        return dur[self.node_order], ns[self.edge_order]

    def full_scope(self, at: Floats, dur: Floats) -> PathScope:
        """All steps of all ranks."""
        ends = at + dur
        last = np.concatenate((np.flatnonzero(self.graph.nodes.thread_group < 0), self.step_nodes[:, 1]))
        last = last if len(last) else np.arange(len(at))
        node = int(last[np.argmax(ends[last])])
        start = float(at[self.step_nodes[:, 0]].min() if len(self.step_nodes) else at.min())
        return PathScope(start, node, round(start), round(float(ends[node])))

    def wait_parts(self, edges: Ints, wait_ns: Floats) -> tuple[Ids, Floats]:
        """What some waits are made of, (k,) places in PARTS and ns. wait_ns: of the waits, or of what is left of each.

        The parts of a wait are in proportion, as those of one that lasts as measured, or not at all.
        """
        base = np.cumsum([0, *(len(rank.graph.edges.src) for rank in self.ranks)])
        place = self.edge_order[edges]
        owner = np.searchsorted(base, place, side="right") - 1
        parts, spent = list[Ids](), list[Floats]()
        numbers: list[int] = distinct(owner[owner < len(self.ranks)]).tolist()
        for number in numbers:
            made = self.ranks[number].breakdown
            mine = np.flatnonzero(owner == number)
            own = place[mine] - base[number]
            whole = np.bincount(made.edge, made.ns, len(self.ranks[number].graph.edges.src))
            left = np.zeros(len(whole))
            left[own] = np.divide(wait_ns[mine], whole[own], out=np.zeros(len(own)), where=whole[own] > 0)
            chosen = np.flatnonzero(left[made.edge])
            parts.append(made.part[chosen])
            spent.append(made.ns[chosen] * left[made.edge[chosen]])
        return np.concatenate([*parts, np.zeros(0, np.int32)]), np.concatenate([*spent, np.zeros(0)])


def join_ranks(ranks: Sequence[RankGraph]) -> MultiRankGraph | None:
    """The graphs of the ranks on one clock, that of the collectives' ends; None where one has none, or no clock."""
    if len(ranks) < 2:
        return None
    shifts, each = _placed(ranks)
    matched = [replace(rank, transfers=rank.transfers.select(key >= 0)) for rank, key in zip(ranks, each, strict=True)]
    keys = [key[key >= 0] for key in each]
    return _joined(matched, keys, shifts) if shifts and all(map(len, keys)) else None


def _placed(ranks: Sequence[RankGraph]) -> tuple[list[int] | None, list[Ints]]:
    """What to add to the times of each rank, None where that is not known, and numbers of its exchanges."""
    calls, clocks = match_calls([rank.collectives for rank in ranks]), [rank.clock for rank in ranks]
    known = zip(ranks, calls.rank_slices(parts=True), strict=True)
    return axis_shifts(clocks, clock_offsets(clocks, calls)), [
        calls.part_id[mine][rank.transfers.part] for rank, mine in known
    ]


def _joined(ranks: Sequence[RankGraph], each: Sequence[Ints], shifts: list[int]) -> MultiRankGraph:
    """The call or the device work of a rank is its arrival; what came after that comes after its transfer.

    each: (p,) numbers of the exchanges of each rank, the same on all.
    """
    base = np.cumsum([0, *(len(rank.graph.nodes.time) for rank in ranks)])
    keys = distinct(np.concatenate(each))
    hubs = [np.searchsorted(keys, key) for key in each]
    at = [rank.graph.nodes.time + shift for rank, shift in zip(ranks, shifts, strict=True)]
    begun = _begun(ranks, at, hubs, len(keys))
    counts = [len(hub) for hub in hubs]
    moved = base[-1] + len(keys) + np.cumsum([0, *counts])
    waits, beside = list[tuple[Ints, Ints, Ids]](), list[tuple[Ints, Ints, Ids]]()
    transfer, together = list[Ints](), list[Ints]()
    for number, (rank, hub, times) in enumerate(zip(ranks, hubs, at, strict=True)):
        one, graph, low = rank.transfers, rank.graph, base[number]
        on_device = one.call_edge < 0
        after: Ints = np.arange(int(moved[number]), int(moved[number + 1]))
        ended, begin = times[one.end_node] + graph.nodes.dur[one.end_node], times[one.start_node]
        together.append(np.maximum(begun[hub], begin))
        transfer.append(ended - together[-1])
        source = np.arange(len(times)) + low
        source[one.start_node[on_device]] = after[on_device]
        waits.append((source[graph.edges.src], graph.edges.dst + low, graph.edges.kind))
        kind, begins = np.full(len(hub), DEPENDENCY_KINDS.index("rank"), np.int32), base[-1] + hub
        beside += [(one.start_node + low, begins, kind), (begins, after, kind), (one.start_node + low, after, kind)]
        beside.append((after[~on_device], one.end_node[~on_device] + low, kind[~on_device]))
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
        np.concatenate([*(getattr(rank.graph.nodes, name) for rank in ranks), np.full(more, -1, np.int32)])[place]
        for name in ("thread_group", "event")
    )
    marks = [
        rank.graph.step_nodes[[0, -1]] + low
        for rank, low in zip(ranks, base, strict=False)
        if len(rank.graph.step_nodes)
    ]
    moments = GraphNodes(times[place], event, line, np.zeros(len(place), np.int64))
    joined = Dependencies(
        src[edge].astype(np.int32), dst[edge].astype(np.int32), np.zeros(len(edge)), kind[edge].astype(np.int32)
    )
    number = np.arange(len(ranks))
    sizes = (*np.diff(base), len(keys), *counts)
    unexplained = sum(rank.graph.unexplained_ns for rank in ranks)
    return MultiRankGraph(
        tuple(ranks),
        WaitGraph(moments, joined, np.zeros(0, np.int64), (), 0.0, 0.0, 0.0, unexplained),
        np.repeat(np.concatenate((number, [-1], number)), sizes)[place].astype(np.int32),
        np.concatenate(
            [*(rank.work_part for rank in ranks), np.full(more, PATH_PARTS.index("communication"), np.int32)]
        )[place],
        place,
        edge,
        node[np.array(marks, np.int64).reshape(-1, 2)],
        len(keys),
        _exchanges_in_a_row(ranks),
        _in_a_row([rank.measured_times for rank in ranks]),
        np.concatenate(transfer),
    )


def _in_a_row(each: Sequence[ReplayTimes]) -> ReplayTimes:
    return np.concatenate([dur for dur, _ in each]), np.concatenate([ns for _, ns in each])


def _exchanges_in_a_row(ranks: Sequence[RankGraph]) -> Transfers:
    moments, waits = (
        np.cumsum([0, *sizes])[:-1]
        for sizes in ([len(rank.work_part) for rank in ranks], [len(rank.graph.edges.src) for rank in ranks])
    )
    columns = (
        (
            one.part,
            one.start_node + moment,
            one.end_node + moment,
            np.where(one.call_edge < 0, -1, one.call_edge + wait),
        )
        for one, moment, wait in zip([rank.transfers for rank in ranks], moments, waits, strict=True)
    )
    return Transfers(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _begun(ranks: Sequence[RankGraph], at: Sequence[Ints], hubs: Sequence[Ints], count: int) -> Ints:
    """When the last rank of each exchange has arrived, (count,) ns; before one of them is done, which did not wait."""
    arrival, ended = np.full(count, np.iinfo(np.int64).min), np.full(count, np.iinfo(np.int64).max)
    for rank, times, hub in zip(ranks, at, hubs, strict=True):
        one = rank.transfers
        np.maximum.at(arrival, hub, times[one.start_node])
        np.minimum.at(ended, hub, times[one.end_node] + rank.graph.nodes.dur[one.end_node])
    return np.minimum(arrival, ended - 1)


def solve_joint(joint: MultiRankGraph, each: Sequence[ReplayTimes]) -> tuple[Replay, Floats, Floats]:
    """When each moment comes, with the times of the whole."""
    dur, ns = joint.combine_times(each)
    return solve(joint.graph, dur, ns), dur, ns
