"""The moments of a rank in which it exchanges data with others."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.collectives import Collectives
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, WaitGraph

ReplayTimes = tuple[Floats, Floats]  # (n,) ns of the moments' work and (e,) ns of the waits


class Transfers(msgspec.Struct, frozen=True):
    """Parts of collectives in which a rank exchanges data, (p,).

    part: places in `Collectives`. begin, end: moments of a thread's call; of a device both are its work. call: the wait
    of a thread's call for itself, -1 of a device.
    """

    part: Ints
    start_node: Ints
    end_node: Ints
    call_edge: Ints

    def select(self, chosen: Mask) -> Transfers:
        """Some of them."""
        return Transfers(self.part[chosen], self.start_node[chosen], self.end_node[chosen], self.call_edge[chosen])

    def zero_transfers(self, times: ReplayTimes) -> ReplayTimes:
        """Times with collectives that take none."""
        return self.replace_transfers(times, (np.zeros_like(times[0]), np.zeros_like(times[1])))

    def replace_transfers(self, times: ReplayTimes, own: ReplayTimes) -> ReplayTimes:
        """Times of which those of collectives are others."""
        out = np.array(times[0]), np.array(times[1])
        work, calls = self.start_node[self.call_edge < 0], self.call_edge[self.call_edge >= 0]
        out[0][work], out[1][calls] = own[0][work], own[1][calls]
        return out

    def slowdown(self, times: ReplayTimes, usual: ReplayTimes) -> Floats:
        """How many times as long as usual each takes, (p,)."""
        now, before = (np.array(one[0][self.start_node]) for one in (times, usual))
        host = self.call_edge >= 0
        now[host], before[host] = times[1][self.call_edge[host]], usual[1][self.call_edge[host]]
        return np.where(before > 0, now / np.maximum(before, 1), 1.0)


def find_transfers(graph: WaitGraph, calls: Collectives) -> Transfers:
    """The parts in which data is exchanged and that are moments of the graph."""
    part = np.flatnonzero(calls.is_transfer)
    row = calls.part_row[part]
    event, nodes = graph.nodes.event, np.flatnonzero(graph.nodes.event >= 0)
    first, last = (np.full(int(max(row.max(initial=0), event.max(initial=0))) + 1, -1) for _ in range(2))
    first[event[nodes[::-1]]] = nodes[::-1]
    last[event[nodes]] = nodes
    called = np.full(len(graph.nodes.time) + 1, -1)
    own = np.flatnonzero(graph.edges.kind == DEPENDENCY_KINDS.index("call"))
    called[graph.edges.dst[own]] = own
    begin, end = first[row], last[row]
    on_device = (begin >= 0) & (graph.nodes.thread_group[begin] < 0)
    call = np.where(on_device, -1, called[end])
    return Transfers(part, begin, end, call).select(on_device | (call >= 0))
