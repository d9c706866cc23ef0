"""What the replay of all ranks takes of one: its graph between the moments that other ranks have a part in."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.errors import BadParameter
from visualprof.reader.trace import Floats, Ids, Trace
from visualprof.views.measure.alignment import Clock, clock_of
from visualprof.views.measure.collectives import Collectives, collectives
from visualprof.views.measure.processes import Place, place_of
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.change import changed, parse, suggestions
from visualprof.views.measure.replay.contract_graph import shortened
from visualprof.views.measure.replay.graph import Graph, Waits, solve
from visualprof.views.measure.replay.path import part_of_work, window
from visualprof.views.measure.replay.prune import decisive
from visualprof.views.measure.replay.transfers import Exchanges, Times, exchanges_of


class Made(msgspec.Struct, frozen=True):
    """What waits are made of, (k,) by wait: the wait, the place in PARTS, and ns."""

    wait: Ids
    part: Ids
    ns: Floats


class Less(msgspec.Struct, frozen=True):
    """Times that differ from the usual ones: where they stand, moments before waits, and ns."""

    place: Ids
    ns: Floats


class Rank(msgspec.Struct, frozen=True):
    """A rank of a run; its graph has the moments of the exchanges and what their times depend on.

    work: (n,) the place in PARTS of a moment's work, -1 of the host. changes: times
    after changes, by their text. offered: what may be changed. lacks: why what was asked for changes nothing.
    """

    place: Place
    clock: Clock
    steps: int
    calls: Collectives
    graph: Graph
    work: Ids
    made: Made
    exchanges: Exchanges
    changes: dict[str, Less]
    offered: tuple[str, ...]
    lacks: str

    @property
    def usual(self) -> Times:
        """As measured."""
        return self.graph.moments.dur.astype(np.float64), self.graph.waits.ns

    def after(self, change: str) -> Times:
        """After a change; as measured where it is none of this rank's."""
        less = self.changes.get(change)
        if less is None:
            return self.usual
        times = np.concatenate(self.usual)
        times[less.place] = less.ns
        return times[: len(self.work)], times[len(self.work) :]

    def scaled(self, times: Times, factor: float) -> Times:
        """All its times but those of its collectives, times a factor."""
        return self.exchanges.kept((times[0] * factor, times[1] * factor), times)

    def own_ns(self) -> float:
        """How long it would take alone, were there no collectives."""
        dur, ns = self.exchanges.without(self.usual)
        start, end, _ = window(self.graph, solve(self.graph, dur, ns).at, dur)
        return end - start


def rank_of(trace: Trace, asked: str = "", every: bool = False) -> Rank:
    """The part of a trace, with times after some changes. every: with all moments, of which the same follows.

    Source: ADR 77.
    """
    graph, calls, clock = wait_graph(trace), collectives(trace), clock_of(trace)
    moments = graph.moments
    category = np.where(moments.line < 0, trace.events.category[moments.event].astype(np.int32), -1)
    work = part_of_work(category).astype(np.int32)
    short, left, exchanges = shortened(graph, work, exchanges_of(graph, calls), every)
    offered = [text for text in suggestions(trace, graph) if "[" not in text]
    times, lacks = dict[str, Times](), ""
    for text in filter(None, (*offered, asked)):
        known, lacks = _changed(trace, graph, text)
        if known:
            times[text] = short.times(*known)
    some, dur = left.waits, left.moments.dur.astype(np.float64)
    keep = decisive(left, exchanges, [(dur, some.ns), *times.values()]) | every
    made = short.made(moments.dur.astype(np.float64), graph.waits.ns)[keep]
    wait, part = np.nonzero(made)
    waits = Waits(some.src[keep], some.dst[keep], some.ns[keep], some.kind[keep])
    return Rank(
        place_of(trace),
        clock,
        len(trace.steps),
        calls,
        replace(left, waits=waits),
        np.append(work, np.int32(-1))[short.kept],
        Made(wait.astype(np.int32), part.astype(np.int32), made[wait, part]),
        replace(exchanges, call=np.where(exchanges.call < 0, -1, (np.cumsum(keep) - 1)[exchanges.call])),
        {text: _less((dur, waits.ns), (other, ns[keep])) for text, (other, ns) in times.items()},
        tuple(text for text in offered if text in times),
        lacks,
    )


def _less(usual: Times, times: Times) -> Less:
    """Times as what differs from the usual ones."""
    before, after = np.concatenate(usual), np.concatenate(times)
    place = np.flatnonzero(before != after)
    return Less(place.astype(np.int32), after[place])


def _changed(trace: Trace, graph: Graph, text: str) -> tuple[Times | None, str]:
    """Times after some changes, or why there are none."""
    try:
        return changed(trace, graph, parse(text)), ""
    except BadParameter as error:
        return None, error.error
