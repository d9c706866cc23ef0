"""A graph of waits without those that never decide when a moment comes, whatever the change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.replay.graph import WaitGraph
from visualprof.views.measure.replay.transfers import Transfers

MAX_PAIRS = 1 << 22  # of waits that are looked at; with more, some waits stay that could go


def critical_predecessors(graph: WaitGraph, exchanges: Transfers, times: Sequence[tuple[Floats, Floats]]) -> Mask:
    """Of each wait: may it be what a moment waits for longest?

    It is not where two other waits, one after the other, take longer with the first of the times, and as long at least
    with the others. An exchange may take no time at all, and what waits for one may not in fact have waited for it.
    """
    moments, waits, n = graph.nodes, graph.edges, len(graph.nodes.time)
    src, dst = waits.src.astype(np.int64), waits.dst.astype(np.int64)
    own, certain = np.ones(len(src), bool), np.ones(len(src), bool)
    own[exchanges.call_edge[exchanges.call_edge >= 0]] = False
    device = exchanges.start_node[exchanges.call_edge < 0]
    until = np.full(n, np.iinfo(np.int64).min)
    until[device] = moments.time[device] + np.maximum(moments.dur[device] - 1, 0)
    certain = own & (moments.time[dst] > until[src])
    one, other = _pairs(np.flatnonzero(certain), src, dst, n)
    key = np.where(own, src * n + dst, -1)
    order = np.argsort(key, kind="stable")
    wanted = src[one] * n + dst[other]
    beside = order[np.minimum(np.searchsorted(key[order], wanted), max(len(order) - 1, 0))]
    there = key[beside] == wanted
    one, other, beside = one[there], other[there], beside[there]
    longer = np.ones(len(one), bool)
    for place, (dur, ns) in enumerate(times):
        least = np.array(dur)
        least[exchanges.start_node] = 0
        around = ns[one] + least[dst[one]] + ns[other]
        longer &= around > ns[beside] if place == 0 else around >= ns[beside]
    keep = np.ones(len(src), bool)
    keep[beside[longer]] = False
    return keep


def _pairs(chosen: Ints, src: Ints, dst: Ints, n: int) -> tuple[Ints, Ints]:
    """Of some waits all pairs of one and another that begins where it ends."""
    after = chosen[np.argsort(src[chosen], kind="stable")]
    first = np.searchsorted(src[after], np.arange(n + 1))
    count = np.diff(first)[dst[chosen]]
    few = np.cumsum(count) <= MAX_PAIRS
    chosen, count = chosen[few], count[few]
    one = np.repeat(chosen, count)
    nth = np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
    return one, after[first[dst[one]] + nth]
