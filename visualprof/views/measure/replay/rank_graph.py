"""The wait graph of one rank for the replay of all ranks, contracted to the nodes that matter to other ranks."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.errors import BadParameter
from visualprof.reader.trace import Floats, Ids, Trace
from visualprof.views.measure.ranks.alignment import TraceClock, trace_clock
from visualprof.views.measure.ranks.collectives import Collectives, collectives
from visualprof.views.measure.ranks.processes import RankLocation, rank_location
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.change import apply_changes, parse_changes, suggest_changes
from visualprof.views.measure.replay.contract_graph import contract_graph
from visualprof.views.measure.replay.graph import Dependencies, WaitGraph, solve
from visualprof.views.measure.replay.path import replay_window, work_parts
from visualprof.views.measure.replay.prune import critical_predecessors
from visualprof.views.measure.replay.transfers import ReplayTimes, Transfers, find_transfers


class WaitBreakdown(msgspec.Struct, frozen=True):
    """Composition of edges, (k,) sorted by edge.

    Attributes:
        edge: The edge.
        part: Index into `PATH_PARTS`.
        ns: Time.
    """

    edge: Ids
    part: Ids
    ns: Floats


class TimeOverrides(msgspec.Struct, frozen=True):
    """Times that differ from the measured ones.

    Attributes:
        index: Index in the times of all nodes, followed by those of all edges.
        ns: The times.
    """

    index: Ids
    ns: Floats


class RankGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a run; its graph has the nodes of transfers and what their times depend on.

    Attributes:
        location: The process of the rank.
        clock: Its time base.
        step_count: Number of steps.
        collectives: Its collectives.
        graph: The contracted graph.
        work_part: (n,) index in `PATH_PARTS` of a node's device work, -1 for host nodes.
        breakdown: What the edges are made of.
        transfers: Its transfers.
        change_overrides: Times after changes, by the changes' texts.
        suggested_changes: Changes to offer.
        change_error: Why the requested change does not apply.
    """

    location: RankLocation
    clock: TraceClock
    step_count: int
    collectives: Collectives
    graph: WaitGraph
    work_part: Ids
    breakdown: WaitBreakdown
    transfers: Transfers
    change_overrides: dict[str, TimeOverrides]
    suggested_changes: tuple[str, ...]
    change_error: str

    @property
    def measured_times(self) -> ReplayTimes:
        """Return the measured times."""
        return self.graph.nodes.dur.astype(np.float64), self.graph.edges.delay_ns

    def times_after(self, change: str) -> ReplayTimes:
        """Return the times after a change; the measured ones if it does not apply to this rank."""
        overrides = self.change_overrides.get(change)
        if overrides is None:
            return self.measured_times
        times = np.concatenate(self.measured_times)
        times[overrides.index] = overrides.ns
        return times[: len(self.work_part)], times[len(self.work_part) :]

    def scale_times(self, times: ReplayTimes, factor: float) -> ReplayTimes:
        """Return the times multiplied by a factor, except those of transfers."""
        return self.transfers.replace_transfers((times[0] * factor, times[1] * factor), times)

    def communication_free_ns(self) -> float:
        """Return how long the rank would take if collectives took no time."""
        dur, ns = self.transfers.zero_transfers(self.measured_times)
        start, end, _ = replay_window(self.graph, solve(self.graph, dur, ns).time, dur)
        return end - start


def rank_graph(trace: Trace, requested_change: str = "", keep_all: bool = False) -> RankGraph:
    """Return the graph of a trace, with times after some changes. Source: ADR 77.

    Args:
        trace: The trace.
        requested_change: A change to apply in addition to the suggested ones.
        keep_all: Keep all nodes; the results are the same.
    """
    graph, rank_collectives, clock = wait_graph(trace), collectives(trace), trace_clock(trace)
    nodes = graph.nodes
    category = np.where(nodes.thread_group < 0, trace.events.category[nodes.event].astype(np.int32), -1)
    work_part = work_parts(category).astype(np.int32)
    contracted, contracted_graph, transfers = contract_graph(
        graph, work_part, find_transfers(graph, rank_collectives), keep_all
    )
    suggested = [text for text in suggest_changes(trace, graph) if "[" not in text]
    times_by_change, error = dict[str, ReplayTimes](), ""
    for text in filter(None, (*suggested, requested_change)):
        changed_times, error = _changed_times(trace, graph, text)
        if changed_times:
            times_by_change[text] = contracted.times(*changed_times)
    edges, dur = contracted_graph.edges, contracted_graph.nodes.dur.astype(np.float64)
    is_retained = (
        critical_predecessors(contracted_graph, transfers, [(dur, edges.delay_ns), *times_by_change.values()])
        | keep_all
    )
    breakdown = contracted.breakdown_ns(nodes.dur.astype(np.float64), graph.edges.delay_ns)[is_retained]
    edge_index, part = np.nonzero(breakdown)
    retained_edges = Dependencies(
        edges.src[is_retained], edges.dst[is_retained], edges.delay_ns[is_retained], edges.kind[is_retained]
    )
    call_edge = np.where(transfers.call_edge < 0, -1, (np.cumsum(is_retained) - 1)[transfers.call_edge])
    return RankGraph(
        location=rank_location(trace),
        clock=clock,
        step_count=len(trace.steps),
        collectives=rank_collectives,
        graph=replace(contracted_graph, edges=retained_edges),
        work_part=np.append(work_part, np.int32(-1))[contracted.retained_nodes],
        breakdown=WaitBreakdown(edge_index.astype(np.int32), part.astype(np.int32), breakdown[edge_index, part]),
        transfers=replace(transfers, call_edge=call_edge),
        change_overrides={
            text: _overrides((dur, retained_edges.delay_ns), (changed_dur, delay_ns[is_retained]))
            for text, (changed_dur, delay_ns) in times_by_change.items()
        },
        suggested_changes=tuple(text for text in suggested if text in times_by_change),
        change_error=error,
    )


def _overrides(measured: ReplayTimes, times: ReplayTimes) -> TimeOverrides:
    """Return the times that differ from the measured ones."""
    before, after = np.concatenate(measured), np.concatenate(times)
    index = np.flatnonzero(before != after)
    return TimeOverrides(index.astype(np.int32), after[index])


def _changed_times(trace: Trace, graph: WaitGraph, text: str) -> tuple[ReplayTimes | None, str]:
    """Return the times after some changes, or why they do not apply."""
    try:
        return apply_changes(trace, graph, parse_changes(text)), ""
    except BadParameter as error:
        return None, error.error
