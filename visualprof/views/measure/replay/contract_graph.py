"""The graph of a rank with only the moments that its exchanges with other ranks and its ends depend on."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import Floats, Ids, Ints, Mask
from visualprof.views.measure.replay.contraction import Contraction, Ways, contraction
from visualprof.views.measure.replay.graph import KINDS, Graph, Moments, Replay, Waits, latest, solve
from visualprof.views.measure.replay.path import PARTS
from visualprof.views.measure.replay.transfers import Exchanges, Times


class Short(msgspec.Struct, frozen=True):
    """The moments that stay and the ways between them, and the waits of calls that exchange data, by dst.

    kept: the moments before that stay. used: the waits before that ways are made of. calls: those of calls. order: of
    the ways and then of the calls by dst.
    """

    ways: Contraction
    kept: Ints
    used: Mask
    calls: Ints
    order: Ints

    def times(self, dur: Floats, ns: Floats) -> Times:
        """Times of the moments that stay and of their waits, with some times of the graph."""
        waits = np.append(self._ways(dur, ns).ns, ns[self.calls])
        return np.append(dur, 0.0)[self.kept], waits[self.order]

    def made(self, dur: Floats, ns: Floats) -> Floats:
        """What each wait is made of, (e, parts) ns."""
        calls = np.zeros((len(self.calls), len(PARTS)))
        calls[:, KINDS.index("call")] = ns[self.calls]
        return np.concatenate((self._ways(dur, ns, made=True).made, calls))[self.order]

    def _ways(self, dur: Floats, ns: Floats, made: bool = False) -> Ways:
        more = np.zeros(len(self.used) - len(ns))
        return self.ways.ways(np.append(dur, 0.0)[: len(self.ways.kept)], np.append(ns, more)[self.used], made)


def shortened(graph: Graph, work: Ids, exchanges: Exchanges, every: bool) -> tuple[Short, Graph, Exchanges]:
    """A graph without the moments that no other rank matters to, and the exchanges in it.

    One moment is added, at which all other work of the device is done. work: (n,) places in PARTS, -1 of the host.
    every: leaves none out.
    """
    whole = _ended(graph, exchanges)
    moments, waits, n = whole.moments, whole.waits, len(whole.moments.at)
    kept, wanted = _chosen(whole, exchanges)
    used = wanted[waits.dst] | every
    calls = exchanges.call[exchanges.call >= 0]
    used[calls] = False
    left = Waits(waits.src[used], waits.dst[used], waits.ns[used], waits.kind[used])
    works = np.append(work, PARTS.index("computation"))[:n].astype(np.int32)
    short = contraction(left, works, len(PARTS), (kept | every).astype(np.uint8))
    ways = short.ways(np.zeros(n), left.ns)
    src, dst = np.append(ways.src, waits.src[calls]), np.append(ways.dst, waits.dst[calls])
    order = np.argsort(dst, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    stays = np.flatnonzero(short.kept)
    new = np.cumsum(short.kept, dtype=np.int64) - 1
    call = np.full(len(exchanges.part), -1)
    call[exchanges.call >= 0] = place[len(ways.src) :]
    result = Short(short, stays, used, calls, order)
    ns = result.times(graph.moments.dur.astype(np.float64), graph.waits.ns)[1]
    src, dst = (new[column][order].astype(np.int32) for column in (src, dst))
    return (
        result,
        replace(
            whole,
            moments=Moments(moments.at[stays], moments.event[stays], moments.line[stays], moments.dur[stays]),
            waits=Waits(src, dst, ns, np.zeros(len(src), np.int32)),
            marks=new[whole.marks[[0, -1]]] if len(whole.marks) else whole.marks,
            tracks=(),
        ),
        Exchanges(exchanges.part, new[exchanges.begin], new[exchanges.end], call),
    )


def _ended(graph: Graph, exchanges: Exchanges) -> Graph:
    """With a last moment at which all work of the device that is no exchange is done; as it was where there is none."""
    moments, waits, n = graph.moments, graph.waits, len(graph.moments.at)
    device = moments.line < 0
    device[exchanges.begin[exchanges.call < 0]] = False
    works = np.flatnonzero(device).astype(np.int32)
    if not len(works):
        return graph
    none, last = np.zeros(len(works), np.int32), np.int32(-1)
    return replace(
        graph,
        moments=Moments(
            np.append(moments.at, (moments.at + moments.dur)[works].max()),
            np.append(moments.event, last),
            np.append(moments.line, last),
            np.append(moments.dur, 0),
        ),
        waits=Waits(
            np.append(waits.src, works),
            np.append(waits.dst, none + np.int32(n)),
            np.append(waits.ns, np.zeros(len(works))),
            np.append(waits.kind, none),
        ),
    )


def _chosen(graph: Graph, exchanges: Exchanges) -> tuple[Mask, Mask]:
    """Moments that are kept, and those that these depend on."""
    moments, waits, marks = graph.moments, graph.waits, graph.marks
    at, line, n = moments.at, moments.line, len(moments.at)
    kept, last = np.zeros(n, bool), np.full(int(line.max(initial=-1)) + 2, -1)
    kept[exchanges.begin] = kept[exchanges.end] = True
    kept[-1:] = True  # where the work of the device is done
    last[line] = np.arange(n)
    kept[marks[[0, -1]] if len(marks) else last[:-1]] = True  # without steps a recording ends with its threads
    wanted = _leads_to(graph, kept)
    entries = np.bincount(waits.dst, minlength=n)
    # Where a thread awaits something: all that it launches from there on would wait for what led there.
    kept |= (entries == 0) | ((entries > 1) & (line >= 0))
    # A transfer that ends after what waits for it has begun was no wait: which, the other ranks decide.
    device = exchanges.begin[exchanges.call < 0]
    until = np.full(n, np.iinfo(np.int64).min)
    until[device] = at[device] + np.maximum(moments.dur[device] - 1, 0)
    kept[waits.dst[at[waits.dst] <= until[waits.src]]] = True
    if len(marks):  # what may come before the first step of another rank, where the path is cut
        early = wanted & ~_behind(graph, int(marks[0]))
        kept |= early
        kept[waits.dst[early[waits.src]]] = True
    return kept & wanted, wanted


def _leads_to(graph: Graph, ends: Mask) -> Mask:
    """Of each moment: does any of some others wait for it, or is it one?"""
    none, still = np.zeros(len(ends)), Replay(np.zeros(len(ends)), np.zeros(len(ends), np.int64))
    return np.isfinite(latest(graph, still, none, np.zeros(len(graph.waits.src)), np.flatnonzero(ends), 0.0))


def _behind(graph: Graph, mark: int) -> Mask:
    """Of each moment: does it wait for a certain one, or is it that?"""
    at = np.zeros(len(graph.moments.at), np.int64)
    at[mark] = 1
    only = replace(graph, moments=replace(graph.moments, at=at))
    return solve(only, np.zeros(len(at)), (graph.waits.dst == mark).astype(np.float64)).at > 0
