"""Join the wait graphs of several ranks: a collective transfers data once the last of its ranks has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import Floats, Ids, Ints
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.ranks.alignment import axis_shifts, clock_offsets
from visualprof.views.measure.ranks.call_matching import match_calls
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, Dependencies, GraphNodes, Replay, WaitGraph, solve
from visualprof.views.measure.replay.path import PATH_PARTS, PathScope
from visualprof.views.measure.replay.rank_graph import RankGraph
from visualprof.views.measure.replay.transfers import ReplayTimes, Transfers

_EdgeColumns = tuple[Ints, Ints, Ids]


class MultiRankGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Wait graphs of several ranks as one.

    Each transfer adds a start node, and a transfer node per participating rank.

    Attributes:
        ranks: The ranks.
        graph: The joint graph.
        rank: (n,) rank of each node, -1 for start nodes.
        work_part: (n,) index in `PATH_PARTS` of device work and transfers, otherwise -1.
        node_order: (n,) position of each node before the nodes were sorted by time.
        edge_order: (e,) position of each edge before sorting.
        step_nodes: (r, 2) nodes of the first step's start and the last one's end.
        transfer_count: Number of distinct transfers.
        transfers: The transfers of all ranks, one rank after the other, as are their nodes and
            edges.
        measured_times: Their measured times.
        transfer_ns: (p,) time from the last arrival to the rank's own end.
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

    def combine_times(self, times_by_rank: Sequence[ReplayTimes]) -> ReplayTimes:
        """Return the times of the joint graph from those of each rank."""
        times = _concatenate_times(times_by_rank)
        transfer_ns = self.transfer_ns * self.transfers.slowdown(times, self.measured_times)
        dur, delay_ns = self.transfers.zero_transfers(times)
        dur, delay_ns = (
            np.concatenate((dur, np.zeros(self.transfer_count), transfer_ns)),
            np.append(delay_ns, np.zeros(4 * len(transfer_ns))),
        )
        return dur[self.node_order], delay_ns[self.edge_order]

    def full_scope(self, time: Floats, dur: Floats) -> PathScope:
        """Return the scope of all steps of all ranks."""
        ends = time + dur
        last_nodes = np.concatenate((np.flatnonzero(self.graph.nodes.thread_group < 0), self.step_nodes[:, 1]))
        last_nodes = last_nodes if len(last_nodes) else np.arange(len(time))
        node = int(last_nodes[np.argmax(ends[last_nodes])])
        start = float(time[self.step_nodes[:, 0]].min() if len(self.step_nodes) else time.min())
        return PathScope(start, node, round(start), round(float(ends[node])))

    def wait_parts(self, edges: Ints, wait_ns: Floats) -> tuple[Ids, Floats]:
        """Return what some edges are made of: (k,) indices in `PATH_PARTS`, and ns.

        The parts of an edge are scaled to its time: they keep their proportions.

        Args:
            edges: The edges.
            wait_ns: Time of each edge, or of the rest of it.
        """
        first_edges = np.cumsum([0, *(len(rank.graph.edges.src) for rank in self.ranks)])
        position = self.edge_order[edges]
        rank_index = np.searchsorted(first_edges, position, side="right") - 1
        parts, times = list[Ids](), list[Floats]()
        rank_indices: list[int] = distinct(rank_index[rank_index < len(self.ranks)]).tolist()
        for index in rank_indices:
            breakdown = self.ranks[index].breakdown
            rank_edges = np.flatnonzero(rank_index == index)
            local_edges = position[rank_edges] - first_edges[index]
            total = np.bincount(breakdown.edge, breakdown.ns, len(self.ranks[index].graph.edges.src))
            scale = np.zeros(len(total))
            scale[local_edges] = np.divide(
                wait_ns[rank_edges], total[local_edges], out=np.zeros(len(local_edges)), where=total[local_edges] > 0
            )
            used = np.flatnonzero(scale[breakdown.edge])
            parts.append(breakdown.part[used])
            times.append(breakdown.ns[used] * scale[breakdown.edge[used]])
        return np.concatenate([*parts, np.zeros(0, np.int32)]), np.concatenate([*times, np.zeros(0)])


def join_ranks(ranks: Sequence[RankGraph]) -> MultiRankGraph | None:
    """Return the joint graph on one clock, aligned by the ends of collectives.

    `None` if a rank has no transfers or no clock.
    """
    if len(ranks) < 2:
        return None
    shifts, transfer_ids = _align_ranks(ranks)
    ranks_with_matches = [
        replace(rank, transfers=rank.transfers.select(ids >= 0)) for rank, ids in zip(ranks, transfer_ids, strict=True)
    ]
    matched_ids = [ids[ids >= 0] for ids in transfer_ids]
    return _join_graphs(ranks_with_matches, matched_ids, shifts) if shifts and all(map(len, matched_ids)) else None


def _align_ranks(ranks: Sequence[RankGraph]) -> tuple[list[int] | None, list[Ints]]:
    """Return what to add to the times of each rank, `None` if unknown, and the ids of its transfers."""
    calls, clocks = match_calls([rank.collectives for rank in ranks]), [rank.clock for rank in ranks]
    rank_parts = zip(ranks, calls.rank_slices(parts=True), strict=True)
    return axis_shifts(clocks, clock_offsets(clocks, calls)), [
        calls.part_id[parts][rank.transfers.part] for rank, parts in rank_parts
    ]


class _RankPart(NamedTuple):
    """Nodes and edges that one rank contributes to the joint graph, in the numbering before sorting.

    Attributes:
        transfer_times: (p,) time of each transfer node, ns.
        transfer_ns: (p,) as in `MultiRankGraph`.
        own_edges: Source, target and kind of the edges of the rank's own graph.
        transfer_edges: The edges of start and transfer nodes, in the same form.
    """

    transfer_times: Ints
    transfer_ns: Ints
    own_edges: _EdgeColumns
    transfer_edges: list[_EdgeColumns]


def _join_graphs(ranks: Sequence[RankGraph], transfer_ids: Sequence[Ints], shifts: list[int]) -> MultiRankGraph:
    """Return the joint graph.

    Args:
        ranks: The ranks.
        transfer_ids: (p,) ids of the transfers of each rank, the same on all ranks.
        shifts: What to add to the times of each rank.
    """
    first_node = np.cumsum([0, *(len(rank.graph.nodes.time) for rank in ranks)])
    start_node = int(first_node[-1])  # of the first transfer
    all_ids = distinct(np.concatenate(transfer_ids))
    transfer_index = [np.searchsorted(all_ids, ids) for ids in transfer_ids]
    transfer_counts = [len(transfer) for transfer in transfer_index]
    first_transfer_node = start_node + len(all_ids) + np.cumsum([0, *transfer_counts])[:-1]
    rank_times = [rank.graph.nodes.time + clock_shift for rank, clock_shift in zip(ranks, shifts, strict=True)]
    start_times = _transfer_starts(ranks, rank_times, transfer_index, len(all_ids))
    parts = [
        _rank_part(
            rank,
            times,
            start_times=start_times[transfer],
            first_node=int(first),
            start_nodes=start_node + transfer,
            transfer_nodes=int(first_transfer) + np.arange(len(transfer)),
        )
        for rank, times, transfer, first, first_transfer in zip(
            ranks, rank_times, transfer_index, first_node[:-1], first_transfer_node, strict=True
        )
    ]
    times = np.concatenate([*rank_times, start_times, *(part.transfer_times for part in parts)])
    node_order = np.argsort(times, kind="stable")
    node = np.empty(len(node_order), np.int64)
    node[node_order] = np.arange(len(node_order))
    edges, edge_order = _sort_edges(parts, node)
    added_work = np.full(len(times) - start_node, PATH_PARTS.index("communication"), np.int32)
    rank_index = np.arange(len(ranks))
    sizes = (*np.diff(first_node), len(all_ids), *transfer_counts)
    step_nodes = [
        rank.graph.step_nodes[[0, -1]] + offset
        for rank, offset in zip(ranks, first_node[:-1], strict=True)
        if len(rank.graph.step_nodes)
    ]
    return MultiRankGraph(
        ranks=tuple(ranks),
        graph=_wait_graph(ranks, _sort_nodes(ranks, times, node_order), edges),
        rank=np.repeat(np.concatenate((rank_index, [-1], rank_index)), sizes)[node_order].astype(np.int32),
        work_part=np.concatenate([*(rank.work_part for rank in ranks), added_work])[node_order],
        node_order=node_order,
        edge_order=edge_order,
        step_nodes=node[np.array(step_nodes, np.int64).reshape(-1, 2)],
        transfer_count=len(all_ids),
        transfers=_concatenate_transfers(ranks),
        measured_times=_concatenate_times([rank.measured_times for rank in ranks]),
        transfer_ns=np.concatenate([part.transfer_ns for part in parts]),
    )


def _rank_part(
    rank: RankGraph, times: Ints, *, start_times: Ints, first_node: int, start_nodes: Ints, transfer_nodes: Ints
) -> _RankPart:
    """Return the contribution of a rank.

    The call or the device work of a rank is its arrival. What followed it now follows the rank's
    transfer.

    Args:
        rank: The rank.
        times: (n,) ns of its nodes on the joint clock.
        start_times: (p,) ns, start of each of its transfers.
        first_node: Number of its first node.
        start_nodes: (p,) start node of each transfer.
        transfer_nodes: (p,) transfer node of each transfer.
    """
    transfers, edges = rank.transfers, rank.graph.edges
    arrival_nodes, end_nodes, on_device = transfers.start_node, transfers.end_node, transfers.call_edge < 0
    transfer_times = np.maximum(start_times, times[arrival_nodes])
    source_nodes = np.arange(len(times)) + first_node
    source_nodes[arrival_nodes[on_device]] = transfer_nodes[on_device]
    kind = np.full(len(transfer_nodes), DEPENDENCY_KINDS.index("rank"), np.int32)
    return _RankPart(
        transfer_times=transfer_times,
        transfer_ns=times[end_nodes] + rank.graph.nodes.dur[end_nodes] - transfer_times,
        own_edges=(source_nodes[edges.src], edges.dst.astype(np.int64) + first_node, edges.kind),
        transfer_edges=[
            (arrival_nodes + first_node, start_nodes, kind),
            (start_nodes, transfer_nodes, kind),
            (arrival_nodes + first_node, transfer_nodes, kind),
            (transfer_nodes[~on_device], end_nodes[~on_device] + first_node, kind[~on_device]),
        ],
    )


def _sort_edges(parts: Sequence[_RankPart], node: Ints) -> tuple[Dependencies, Ints]:
    """Return the edges of all ranks, sorted by target, and the position of each before sorting.

    Args:
        parts: The contributions of the ranks.
        node: (n,) number of each node after sorting.
    """
    columns = [*(part.own_edges for part in parts), *(edges for part in parts for edges in part.transfer_edges)]
    src, dst, kind = (np.concatenate([edges[column] for edges in columns]) for column in range(3))
    src, dst = node[src], node[dst]
    order = np.argsort(dst, kind="stable")
    order = order[src[order] < dst[order]]  # where clocks differ, some edges lead backwards
    edges = Dependencies(
        src[order].astype(np.int32), dst[order].astype(np.int32), np.zeros(len(order)), kind[order].astype(np.int32)
    )
    return edges, order


def _sort_nodes(ranks: Sequence[RankGraph], times: Ints, order: Ints) -> GraphNodes:
    """Return the nodes of all ranks and the added ones, sorted by time."""
    added = np.full(len(times) - sum(len(rank.graph.nodes.time) for rank in ranks), -1, np.int32)
    thread_group, event = (
        np.concatenate([*(getattr(rank.graph.nodes, field) for rank in ranks), added])[order]
        for field in ("thread_group", "event")
    )
    return GraphNodes(times[order], event, thread_group, np.zeros(len(order), np.int64))


def _wait_graph(ranks: Sequence[RankGraph], nodes: GraphNodes, edges: Dependencies) -> WaitGraph:
    """Return a graph without the facts that only the graph of one rank has."""
    return WaitGraph(
        nodes=nodes,
        edges=edges,
        step_nodes=np.zeros(0, np.int64),
        group_tracks=(),
        launch_ns=0.0,
        gap_ns=0.0,
        return_ns=0.0,
        unexplained_ns=sum(rank.graph.unexplained_ns for rank in ranks),
    )


def _concatenate_times(times_by_rank: Sequence[ReplayTimes]) -> ReplayTimes:
    """Return the times of all ranks, one rank after the other."""
    return np.concatenate([dur for dur, _ in times_by_rank]), np.concatenate(
        [delay_ns for _, delay_ns in times_by_rank]
    )


def _concatenate_transfers(ranks: Sequence[RankGraph]) -> Transfers:
    """Return the transfers of all ranks, one rank after the other."""
    first_nodes, first_edges = (
        np.cumsum([0, *sizes])[:-1]
        for sizes in ([len(rank.work_part) for rank in ranks], [len(rank.graph.edges.src) for rank in ranks])
    )
    columns = (
        (
            transfers.part,
            transfers.start_node + first_node,
            transfers.end_node + first_node,
            np.where(transfers.call_edge < 0, -1, transfers.call_edge + first_edge),
        )
        for transfers, first_node, first_edge in zip(
            [rank.transfers for rank in ranks], first_nodes, first_edges, strict=True
        )
    )
    return Transfers(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _transfer_starts(
    ranks: Sequence[RankGraph], rank_times: Sequence[Ints], transfer_index: Sequence[Ints], count: int
) -> Ints:
    """Return when the last rank of each transfer arrived, (count,) ns, but before any rank's end."""
    arrival, first_end = np.full(count, np.iinfo(np.int64).min), np.full(count, np.iinfo(np.int64).max)
    for rank, times, index in zip(ranks, rank_times, transfer_index, strict=True):
        transfers = rank.transfers
        np.maximum.at(arrival, index, times[transfers.start_node])
        np.minimum.at(first_end, index, times[transfers.end_node] + rank.graph.nodes.dur[transfers.end_node])
    return np.minimum(arrival, first_end - 1)


def solve_joint(graph: MultiRankGraph, times_by_rank: Sequence[ReplayTimes]) -> tuple[Replay, Floats, Floats]:
    """Return the replay of the joint graph, with its durations and delays."""
    dur, delay_ns = graph.combine_times(times_by_rank)
    return solve(graph.graph, dur, delay_ns), dur, delay_ns
