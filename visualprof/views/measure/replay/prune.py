"""Find the edges of a wait graph that can never determine a node's time, whatever the change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.replay.graph import WaitGraph
from visualprof.views.measure.replay.transfers import Transfers

MAX_PAIRS = 1 << 22  # pairs of edges that are tested; with more, some removable edges remain


def critical_predecessors(graph: WaitGraph, transfers: Transfers, times: Sequence[tuple[Floats, Floats]]) -> Mask:
    """Return, per edge, whether it may be the one that a node waits for longest.

    It is not if two other consecutive edges take longer with the first of the times, and at least
    as long with the others. A transfer may take no time at all, and a node that depends on a
    transfer may not have waited for it.

    Args:
        graph: The graph.
        transfers: Its transfers.
        times: Times before and after changes.
    """
    nodes, edges, node_count = graph.nodes, graph.edges, len(graph.nodes.time)
    src, dst = edges.src.astype(np.int64), edges.dst.astype(np.int64)
    is_regular, is_certain = np.ones(len(src), bool), np.ones(len(src), bool)
    is_regular[transfers.call_edge[transfers.call_edge >= 0]] = False
    transfer_work = transfers.start_node[transfers.call_edge < 0]
    work_end = np.full(node_count, np.iinfo(np.int64).min)
    work_end[transfer_work] = nodes.time[transfer_work] + np.maximum(nodes.dur[transfer_work] - 1, 0)
    is_certain = is_regular & (nodes.time[dst] > work_end[src])
    first, second = _edge_pairs(np.flatnonzero(is_certain), src, dst, node_count)
    edge_key = np.where(is_regular, src * node_count + dst, -1)
    order = np.argsort(edge_key, kind="stable")
    pair_key = src[first] * node_count + dst[second]
    direct_edge = order[np.minimum(np.searchsorted(edge_key[order], pair_key), max(len(order) - 1, 0))]
    exists = edge_key[direct_edge] == pair_key
    first, second, direct_edge = first[exists], second[exists], direct_edge[exists]
    is_longer = np.ones(len(first), bool)
    for index, (dur, delay_ns) in enumerate(times):
        minimum = np.array(dur)
        minimum[transfers.start_node] = 0
        detour_ns = delay_ns[first] + minimum[dst[first]] + delay_ns[second]
        is_longer &= detour_ns > delay_ns[direct_edge] if index == 0 else detour_ns >= delay_ns[direct_edge]
    may_be_critical = np.ones(len(src), bool)
    may_be_critical[direct_edge[is_longer]] = False
    return may_be_critical


def _edge_pairs(edges: Ints, src: Ints, dst: Ints, node_count: int) -> tuple[Ints, Ints]:
    """Return all pairs of some edges in which the second begins where the first ends."""
    by_source = edges[np.argsort(src[edges], kind="stable")]
    first_by_node = np.searchsorted(src[by_source], np.arange(node_count + 1))
    count = np.diff(first_by_node)[dst[edges]]
    is_within_limit = np.cumsum(count) <= MAX_PAIRS
    edges, count = edges[is_within_limit], count[is_within_limit]
    first = np.repeat(edges, count)
    index_of_pair = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    return first, by_source[first_by_node[dst[first]] + index_of_pair]
