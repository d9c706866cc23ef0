"""The graph of a rank with only the moments that its exchanges with other ranks and its ends depend on."""

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
    """The moments that stay and the ways between them, and the waits of calls that exchange data, by dst.

    kept: the moments before that stay. used: the waits before that ways are made of. calls: those of calls. order: of
    the ways and then of the calls by dst.
    """

    contraction: Contraction
    retained_nodes: Ints
    contracted_edges: Mask
    call_edges: Ints
    order: Ints

    def times(self, dur: Floats, ns: Floats) -> ReplayTimes:
        """Times of the moments that stay and of their waits, with some times of the graph."""
        waits = np.append(self._ways(dur, ns).delay_ns, ns[self.call_edges])
        return np.append(dur, 0.0)[self.retained_nodes], waits[self.order]

    def breakdown_ns(self, dur: Floats, ns: Floats) -> Floats:
        """What each wait is made of, (e, parts) ns."""
        calls = np.zeros((len(self.call_edges), len(PATH_PARTS)))
        calls[:, DEPENDENCY_KINDS.index("call")] = ns[self.call_edges]
        return np.concatenate((self._ways(dur, ns, made=True).breakdown_ns, calls))[self.order]

    def _ways(self, dur: Floats, ns: Floats, made: bool = False) -> Shortcuts:
        more = np.zeros(len(self.contracted_edges) - len(ns))
        return self.contraction.shortcuts(
            np.append(dur, 0.0)[: len(self.contraction.is_retained)], np.append(ns, more)[self.contracted_edges], made
        )


def contract_graph(
    graph: WaitGraph, work: Ids, exchanges: Transfers, keep_all: bool
) -> tuple[ContractedGraph, WaitGraph, Transfers]:
    """A graph without the moments that no other rank matters to, and the exchanges in it.

    One moment is added, at which all other work of the device is done. work: (n,) places in PARTS, -1 of the host.
    every: leaves none out.
    """
    whole = _ended(graph, exchanges)
    moments, waits, n = whole.nodes, whole.edges, len(whole.nodes.time)
    kept, wanted = _chosen(whole, exchanges)
    used = wanted[waits.dst] | keep_all
    calls = exchanges.call_edge[exchanges.call_edge >= 0]
    used[calls] = False
    left = Dependencies(waits.src[used], waits.dst[used], waits.delay_ns[used], waits.kind[used])
    works = np.append(work, PATH_PARTS.index("computation"))[:n].astype(np.int32)
    short = contract(left, works, len(PATH_PARTS), (kept | keep_all).astype(np.uint8))
    ways = short.shortcuts(np.zeros(n), left.delay_ns)
    src, dst = np.append(ways.src, waits.src[calls]), np.append(ways.dst, waits.dst[calls])
    order = np.argsort(dst, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    stays = np.flatnonzero(short.is_retained)
    new = np.cumsum(short.is_retained, dtype=np.int64) - 1
    call = np.full(len(exchanges.part), -1)
    call[exchanges.call_edge >= 0] = place[len(ways.src) :]
    result = ContractedGraph(short, stays, used, calls, order)
    ns = result.times(graph.nodes.dur.astype(np.float64), graph.edges.delay_ns)[1]
    src, dst = (new[column][order].astype(np.int32) for column in (src, dst))
    return (
        result,
        replace(
            whole,
            nodes=GraphNodes(
                moments.time[stays], moments.event[stays], moments.thread_group[stays], moments.dur[stays]
            ),
            edges=Dependencies(src, dst, ns, np.zeros(len(src), np.int32)),
            step_nodes=new[whole.step_nodes[[0, -1]]] if len(whole.step_nodes) else whole.step_nodes,
            group_tracks=(),
        ),
        Transfers(exchanges.part, new[exchanges.start_node], new[exchanges.end_node], call),
    )


def _ended(graph: WaitGraph, exchanges: Transfers) -> WaitGraph:
    """With a last moment at which all work of the device that is no exchange is done; as it was where there is none."""
    moments, waits, n = graph.nodes, graph.edges, len(graph.nodes.time)
    device = moments.thread_group < 0
    device[exchanges.start_node[exchanges.call_edge < 0]] = False
    works = np.flatnonzero(device).astype(np.int32)
    if not len(works):
        return graph
    none, last = np.zeros(len(works), np.int32), np.int32(-1)
    return replace(
        graph,
        nodes=GraphNodes(
            np.append(moments.time, (moments.time + moments.dur)[works].max()),
            np.append(moments.event, last),
            np.append(moments.thread_group, last),
            np.append(moments.dur, 0),
        ),
        edges=Dependencies(
            np.append(waits.src, works),
            np.append(waits.dst, none + np.int32(n)),
            np.append(waits.delay_ns, np.zeros(len(works))),
            np.append(waits.kind, none),
        ),
    )


def _chosen(graph: WaitGraph, exchanges: Transfers) -> tuple[Mask, Mask]:
    """Moments that are kept, and those that these depend on."""
    moments, waits, marks = graph.nodes, graph.edges, graph.step_nodes
    at, line, n = moments.time, moments.thread_group, len(moments.time)
    kept, last = np.zeros(n, bool), np.full(int(line.max(initial=-1)) + 2, -1)
    kept[exchanges.start_node] = kept[exchanges.end_node] = True
    kept[-1:] = True  # where the work of the device is done
    last[line] = np.arange(n)
    kept[marks[[0, -1]] if len(marks) else last[:-1]] = True  # without steps a recording ends with its threads
    wanted = _leads_to(graph, kept)
    entries = np.bincount(waits.dst, minlength=n)
    # Where a thread awaits something: all that it launches from there on would wait for what led there.
    kept |= (entries == 0) | ((entries > 1) & (line >= 0))
    # A transfer that ends after what waits for it has begun was no wait: which, the other ranks decide.
    device = exchanges.start_node[exchanges.call_edge < 0]
    until = np.full(n, np.iinfo(np.int64).min)
    until[device] = at[device] + np.maximum(moments.dur[device] - 1, 0)
    kept[waits.dst[at[waits.dst] <= until[waits.src]]] = True
    if len(marks):  # what may come before the first step of another rank, where the path is cut
        early = wanted & ~_behind(graph, int(marks[0]))
        kept |= early
        kept[waits.dst[early[waits.src]]] = True
    return kept & wanted, wanted


def _leads_to(graph: WaitGraph, ends: Mask) -> Mask:
    """Of each moment: does any of some others wait for it, or is it one?"""
    none, still = np.zeros(len(ends)), Replay(np.zeros(len(ends)), np.zeros(len(ends), np.int64))
    return np.isfinite(latest_times(graph, still, none, np.zeros(len(graph.edges.src)), np.flatnonzero(ends), 0.0))


def _behind(graph: WaitGraph, mark: int) -> Mask:
    """Of each moment: does it wait for a certain one, or is it that?"""
    at = np.zeros(len(graph.nodes.time), np.int64)
    at[mark] = 1
    only = replace(graph, nodes=replace(graph.nodes, time=at))
    return solve(only, np.zeros(len(at)), (graph.edges.dst == mark).astype(np.float64)).time > 0
