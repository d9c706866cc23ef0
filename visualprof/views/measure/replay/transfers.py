"""Nodes of a rank's wait graph at which it transfers data to or from other ranks."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.ranks.collectives import Collectives
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, WaitGraph

ReplayTimes = tuple[Floats, Floats]  # (n,) ns of device work and (e,) ns of the edges


class Transfers(msgspec.Struct, frozen=True):
    """Parts of collectives in which a rank transfers data, all (p,).

    Attributes:
        part: Index in `Collectives`.
        start_node: Node at which a thread's call starts; for device work, its node.
        end_node: Node at which a thread's call ends; for device work, its node.
        call_edge: Edge of a thread's call itself, -1 for device work.
    """

    part: Ints
    start_node: Ints
    end_node: Ints
    call_edge: Ints

    def select(self, mask: Mask) -> Transfers:
        """Return some of the transfers."""
        return Transfers(self.part[mask], self.start_node[mask], self.end_node[mask], self.call_edge[mask])

    def zero_transfers(self, times: ReplayTimes) -> ReplayTimes:
        """Return times in which transfers take no time."""
        return self.replace_transfers(times, (np.zeros_like(times[0]), np.zeros_like(times[1])))

    def replace_transfers(self, times: ReplayTimes, transfer_times: ReplayTimes) -> ReplayTimes:
        """Return times in which the transfers take other times."""
        result = np.array(times[0]), np.array(times[1])
        work_nodes, call_edges = self.start_node[self.call_edge < 0], self.call_edge[self.call_edge >= 0]
        result[0][work_nodes], result[1][call_edges] = transfer_times[0][work_nodes], transfer_times[1][call_edges]
        return result

    def slowdown(self, times: ReplayTimes, usual_times: ReplayTimes) -> Floats:
        """Return how many times as long as usual each transfer takes, (p,)."""
        duration, usual_duration = (np.array(columns[0][self.start_node]) for columns in (times, usual_times))
        is_host = self.call_edge >= 0
        duration[is_host], usual_duration[is_host] = (
            times[1][self.call_edge[is_host]],
            usual_times[1][self.call_edge[is_host]],
        )
        return np.where(usual_duration > 0, duration / np.maximum(usual_duration, 1), 1.0)


def find_transfers(graph: WaitGraph, collectives: Collectives) -> Transfers:
    """Return the parts of collectives in which data is transferred and that are nodes of the graph."""
    part = np.flatnonzero(collectives.is_transfer)
    row = collectives.part_row[part]
    event, nodes = graph.nodes.event, np.flatnonzero(graph.nodes.event >= 0)
    first_node, last_node = (np.full(int(max(row.max(initial=0), event.max(initial=0))) + 1, -1) for _ in range(2))
    first_node[event[nodes[::-1]]] = nodes[::-1]
    last_node[event[nodes]] = nodes
    call_edge_of_node = np.full(len(graph.nodes.time) + 1, -1)
    call_edges = np.flatnonzero(graph.edges.kind == DEPENDENCY_KINDS.index("call"))
    call_edge_of_node[graph.edges.dst[call_edges]] = call_edges
    begin, end = first_node[row], last_node[row]
    on_device = (begin >= 0) & (graph.nodes.thread_group[begin] < 0)
    call = np.where(on_device, -1, call_edge_of_node[end])
    return Transfers(part, begin, end, call).select(on_device | (call >= 0))
