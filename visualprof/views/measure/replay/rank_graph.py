"""What the replay of all ranks takes of one: its graph between the moments that other ranks have a part in."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.errors import BadParameter
from visualprof.reader.trace import Floats, Ids, Trace
from visualprof.views.measure.alignment import TraceClock, trace_clock
from visualprof.views.measure.collectives import Collectives, collectives
from visualprof.views.measure.processes import RankLocation, rank_location
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.change import apply_changes, parse_changes, suggest_changes
from visualprof.views.measure.replay.contract_graph import contract_graph
from visualprof.views.measure.replay.graph import Dependencies, WaitGraph, solve
from visualprof.views.measure.replay.path import replay_window, work_parts
from visualprof.views.measure.replay.prune import critical_predecessors
from visualprof.views.measure.replay.transfers import ReplayTimes, Transfers, find_transfers


class WaitBreakdown(msgspec.Struct, frozen=True):
    """What waits are made of, (k,) by wait: the wait, the place in PARTS, and ns."""

    edge: Ids
    part: Ids
    ns: Floats


class TimeOverrides(msgspec.Struct, frozen=True):
    """Times that differ from the usual ones: where they stand, moments before waits, and ns."""

    index: Ids
    ns: Floats


class RankGraph(msgspec.Struct, frozen=True):
    """A rank of a run; its graph has the moments of the exchanges and what their times depend on.

    work: (n,) the place in PARTS of a moment's work, -1 of the host. changes: times
    after changes, by their text. offered: what may be changed. lacks: why what was asked for changes nothing.
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
        """As measured."""
        return self.graph.nodes.dur.astype(np.float64), self.graph.edges.delay_ns

    def times_after(self, change: str) -> ReplayTimes:
        """After a change; as measured where it is none of this rank's."""
        less = self.change_overrides.get(change)
        if less is None:
            return self.measured_times
        times = np.concatenate(self.measured_times)
        times[less.index] = less.ns
        return times[: len(self.work_part)], times[len(self.work_part) :]

    def scale_times(self, times: ReplayTimes, factor: float) -> ReplayTimes:
        """All its times but those of its collectives, times a factor."""
        return self.transfers.replace_transfers((times[0] * factor, times[1] * factor), times)

    def communication_free_ns(self) -> float:
        """How long it would take alone, were there no collectives."""
        dur, ns = self.transfers.zero_transfers(self.measured_times)
        start, end, _ = replay_window(self.graph, solve(self.graph, dur, ns).time, dur)
        return end - start


def rank_graph(trace: Trace, requested_change: str = "", keep_all: bool = False) -> RankGraph:
    """The part of a trace, with times after some changes. every: with all moments, of which the same follows.

    Source: ADR 77.
    """
    graph, calls, clock = wait_graph(trace), collectives(trace), trace_clock(trace)
    moments = graph.nodes
    category = np.where(moments.thread_group < 0, trace.events.category[moments.event].astype(np.int32), -1)
    work = work_parts(category).astype(np.int32)
    short, left, exchanges = contract_graph(graph, work, find_transfers(graph, calls), keep_all)
    offered = [text for text in suggest_changes(trace, graph) if "[" not in text]
    times, lacks = dict[str, ReplayTimes](), ""
    for text in filter(None, (*offered, requested_change)):
        known, lacks = _changed(trace, graph, text)
        if known:
            times[text] = short.times(*known)
    some, dur = left.edges, left.nodes.dur.astype(np.float64)
    keep = critical_predecessors(left, exchanges, [(dur, some.delay_ns), *times.values()]) | keep_all
    made = short.breakdown_ns(moments.dur.astype(np.float64), graph.edges.delay_ns)[keep]
    wait, part = np.nonzero(made)
    waits = Dependencies(some.src[keep], some.dst[keep], some.delay_ns[keep], some.kind[keep])
    return RankGraph(
        rank_location(trace),
        clock,
        len(trace.steps),
        calls,
        replace(left, edges=waits),
        np.append(work, np.int32(-1))[short.retained_nodes],
        WaitBreakdown(wait.astype(np.int32), part.astype(np.int32), made[wait, part]),
        replace(exchanges, call_edge=np.where(exchanges.call_edge < 0, -1, (np.cumsum(keep) - 1)[exchanges.call_edge])),
        {text: _less((dur, waits.delay_ns), (other, ns[keep])) for text, (other, ns) in times.items()},
        tuple(text for text in offered if text in times),
        lacks,
    )


def _less(usual: ReplayTimes, times: ReplayTimes) -> TimeOverrides:
    """Times as what differs from the usual ones."""
    before, after = np.concatenate(usual), np.concatenate(times)
    place = np.flatnonzero(before != after)
    return TimeOverrides(place.astype(np.int32), after[place])


def _changed(trace: Trace, graph: WaitGraph, text: str) -> tuple[ReplayTimes | None, str]:
    """Times after some changes, or why there are none."""
    try:
        return apply_changes(trace, graph, parse_changes(text)), ""
    except BadParameter as error:
        return None, error.error
