"""Contract the wait graph of a rank to the nodes that its transfers with other ranks and its ends depend on."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import Floats, Ids, Ints, Mask
from visualprof.views.measure.replay.contraction import Contraction, Shortcuts, contract
from visualprof.views.measure.replay.graph import (
    DEPENDENCY_KINDS,
    Dependencies,
    GraphNodes,
    Replay,
    WaitGraph,
    latest_times,
    solve,
)
from visualprof.views.measure.replay.path import PATH_PARTS
from visualprof.views.measure.replay.transfers import ReplayTimes, Transfers


class ContractedGraph(msgspec.Struct, frozen=True):
    """A contraction, with the edges of calls that transfer data; edges are sorted by `dst`.

    Attributes:
        contraction: The contraction.
        retained_nodes: Original nodes that are retained.
        contracted_edges: Original edges that shortcuts are made of.
        call_edges: Original edges of calls that transfer data.
        order: Order of the shortcuts followed by the call edges, by `dst`.
    """

    contraction: Contraction
    retained_nodes: Ints
    contracted_edges: Mask
    call_edges: Ints
    order: Ints

    def times(self, dur: Floats, delay_ns: Floats) -> ReplayTimes:
        """Return the times of the retained nodes and edges for some times of the original graph."""
        delays = np.append(self._shortcuts(dur, delay_ns).delay_ns, delay_ns[self.call_edges])
        return np.append(dur, 0.0)[self.retained_nodes], delays[self.order]

    def breakdown_ns(self, dur: Floats, delay_ns: Floats) -> Floats:
        """Return what each edge is made of, (e, parts) ns."""
        call_breakdown = np.zeros((len(self.call_edges), len(PATH_PARTS)))
        call_breakdown[:, DEPENDENCY_KINDS.index("call")] = delay_ns[self.call_edges]
        return np.concatenate((self._shortcuts(dur, delay_ns, with_breakdown=True).breakdown_ns, call_breakdown))[
            self.order
        ]

    def _shortcuts(self, dur: Floats, delay_ns: Floats, with_breakdown: bool = False) -> Shortcuts:
        """Return the shortcuts for some times of the original graph."""
        added = np.zeros(len(self.contracted_edges) - len(delay_ns))
        return self.contraction.shortcuts(
            np.append(dur, 0.0)[: len(self.contraction.is_retained)],
            np.append(delay_ns, added)[self.contracted_edges],
            with_breakdown,
        )


def contract_graph(
    graph: WaitGraph, parts: Ids, transfers: Transfers, keep_all: bool
) -> tuple[ContractedGraph, WaitGraph, Transfers]:
    """Return a contraction, the contracted graph, and the transfers in it.

    Nodes that do not matter to other ranks are left out.

    One node is added: the end of all other device work.

    Args:
        graph: The graph of a rank.
        parts: (n,) index in `PATH_PARTS`, -1 for host nodes.
        transfers: The transfers.
        every: Retain all nodes.
    """
    extended = _add_end_node(graph, transfers)
    nodes, edges, node_count = extended.nodes, extended.edges, len(extended.nodes.time)
    is_retained, is_needed = _choose_retained(extended, transfers)
    contracted_edges = is_needed[edges.dst] | keep_all
    call_edges = transfers.call_edge[transfers.call_edge >= 0]
    contracted_edges[call_edges] = False
    remaining = Dependencies(
        edges.src[contracted_edges],
        edges.dst[contracted_edges],
        edges.delay_ns[contracted_edges],
        edges.kind[contracted_edges],
    )
    work_part = np.append(parts, PATH_PARTS.index("computation"))[:node_count].astype(np.int32)
    contraction = contract(remaining, work_part, len(PATH_PARTS), (is_retained | keep_all).astype(np.uint8))
    shortcuts = contraction.shortcuts(np.zeros(node_count), remaining.delay_ns)
    src, dst = np.append(shortcuts.src, edges.src[call_edges]), np.append(shortcuts.dst, edges.dst[call_edges])
    order = np.argsort(dst, kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    retained = np.flatnonzero(contraction.is_retained)
    new_index = np.cumsum(contraction.is_retained, dtype=np.int64) - 1
    call_edge = np.full(len(transfers.part), -1)
    call_edge[transfers.call_edge >= 0] = position[len(shortcuts.src) :]
    result = ContractedGraph(contraction, retained, contracted_edges, call_edges, order)
    delay_ns = result.times(graph.nodes.dur.astype(np.float64), graph.edges.delay_ns)[1]
    src, dst = (new_index[nodes_of_edge][order].astype(np.int32) for nodes_of_edge in (src, dst))
    return (
        result,
        replace(
            extended,
            nodes=GraphNodes(
                nodes.time[retained], nodes.event[retained], nodes.thread_group[retained], nodes.dur[retained]
            ),
            edges=Dependencies(src, dst, delay_ns, np.zeros(len(src), np.int32)),
            step_nodes=new_index[extended.step_nodes[[0, -1]]] if len(extended.step_nodes) else extended.step_nodes,
            group_tracks=(),
        ),
        Transfers(transfers.part, new_index[transfers.start_node], new_index[transfers.end_node], call_edge),
    )


def _add_end_node(graph: WaitGraph, transfers: Transfers) -> WaitGraph:
    """Return the graph with a last node at which all device work except transfers is done.

    Unchanged without such work.
    """
    nodes, edges, node_count = graph.nodes, graph.edges, len(graph.nodes.time)
    is_device = nodes.thread_group < 0
    is_device[transfers.start_node[transfers.call_edge < 0]] = False
    work_nodes = np.flatnonzero(is_device).astype(np.int32)
    if not len(work_nodes):
        return graph
    zeros, no_event = np.zeros(len(work_nodes), np.int32), np.int32(-1)
    return replace(
        graph,
        nodes=GraphNodes(
            np.append(nodes.time, (nodes.time + nodes.dur)[work_nodes].max()),
            np.append(nodes.event, no_event),
            np.append(nodes.thread_group, no_event),
            np.append(nodes.dur, 0),
        ),
        edges=Dependencies(
            np.append(edges.src, work_nodes),
            np.append(edges.dst, zeros + np.int32(node_count)),
            np.append(edges.delay_ns, np.zeros(len(work_nodes))),
            np.append(edges.kind, zeros),
        ),
    )


def _choose_retained(graph: WaitGraph, transfers: Transfers) -> tuple[Mask, Mask]:
    """Return which nodes are retained, and which nodes these depend on."""
    nodes, edges, step_nodes = graph.nodes, graph.edges, graph.step_nodes
    time, thread_group, node_count = nodes.time, nodes.thread_group, len(nodes.time)
    is_retained, last_node = np.zeros(node_count, bool), np.full(int(thread_group.max(initial=-1)) + 2, -1)
    is_retained[transfers.start_node] = is_retained[transfers.end_node] = True
    is_retained[-1:] = True  # the end of device work
    last_node[thread_group] = np.arange(node_count)
    is_retained[step_nodes[[0, -1]] if len(step_nodes) else last_node[:-1]] = (
        True  # without steps, a recording ends with its threads
    )
    is_needed = _is_ancestor(graph, is_retained)
    incoming = np.bincount(edges.dst, minlength=node_count)
    # Nodes where a thread waits: otherwise everything that it launches later would have edges to all predecessors.
    is_retained |= (incoming == 0) | ((incoming > 1) & (thread_group >= 0))
    # A dependency on a transfer that ended too late did not cause a wait; other ranks decide which ones do.
    transfer_work = transfers.start_node[transfers.call_edge < 0]
    work_end = np.full(node_count, np.iinfo(np.int64).min)
    work_end[transfer_work] = time[transfer_work] + np.maximum(nodes.dur[transfer_work] - 1, 0)
    is_retained[edges.dst[time[edges.dst] <= work_end[edges.src]]] = True
    if len(step_nodes):  # nodes that may come before another rank's first step, where the path begins
        is_early = is_needed & ~_is_descendant(graph, int(step_nodes[0]))
        is_retained |= is_early
        is_retained[edges.dst[is_early[edges.src]]] = True
    return is_retained & is_needed, is_needed


def _is_ancestor(graph: WaitGraph, ends: Mask) -> Mask:
    """Return, per node, whether it is one of some nodes or one of these depends on it."""
    zeros, replay = np.zeros(len(ends)), Replay(np.zeros(len(ends)), np.zeros(len(ends), np.int64))
    return np.isfinite(latest_times(graph, replay, zeros, np.zeros(len(graph.edges.src)), np.flatnonzero(ends), 0.0))


def _is_descendant(graph: WaitGraph, mark: int) -> Mask:
    """Return, per node, whether it is a certain node or depends on it."""
    time = np.zeros(len(graph.nodes.time), np.int64)
    time[mark] = 1
    marked = replace(graph, nodes=replace(graph.nodes, time=time))
    return solve(marked, np.zeros(len(time)), (graph.edges.dst == mark).astype(np.float64)).time > 0
