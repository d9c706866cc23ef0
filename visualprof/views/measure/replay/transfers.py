"""The moments of a rank in which it exchanges data with others."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.collectives import Collectives
from visualprof.views.measure.replay.graph import KINDS, Graph

Times = tuple[Floats, Floats]  # (n,) ns of the moments' work and (e,) ns of the waits


class Exchanges(msgspec.Struct, frozen=True):
    """Parts of collectives in which a rank exchanges data, (p,).

    part: places in `Collectives`. begin, end: moments of a thread's call; of a device both are its work. call: the wait
    of a thread's call for itself, -1 of a device.
    """

    part: Ints
    begin: Ints
    end: Ints
    call: Ints

    def only(self, chosen: Mask) -> Exchanges:
        """Some of them."""
        return Exchanges(self.part[chosen], self.begin[chosen], self.end[chosen], self.call[chosen])

    def without(self, times: Times) -> Times:
        """Times with collectives that take none."""
        return self.kept(times, (np.zeros_like(times[0]), np.zeros_like(times[1])))

    def kept(self, times: Times, own: Times) -> Times:
        """Times of which those of collectives are others."""
        out = np.array(times[0]), np.array(times[1])
        work, calls = self.begin[self.call < 0], self.call[self.call >= 0]
        out[0][work], out[1][calls] = own[0][work], own[1][calls]
        return out

    def longer(self, times: Times, usual: Times) -> Floats:
        """How many times as long as usual each takes, (p,)."""
        now, before = (np.array(one[0][self.begin]) for one in (times, usual))
        host = self.call >= 0
        now[host], before[host] = times[1][self.call[host]], usual[1][self.call[host]]
        return np.where(before > 0, now / np.maximum(before, 1), 1.0)


def exchanges_of(graph: Graph, calls: Collectives) -> Exchanges:
    """The parts in which data is exchanged and that are moments of the graph."""
    part = np.flatnonzero(calls.exchanges)
    row = calls.row[part]
    event, nodes = graph.moments.event, np.flatnonzero(graph.moments.event >= 0)
    first, last = (np.full(int(max(row.max(initial=0), event.max(initial=0))) + 1, -1) for _ in range(2))
    first[event[nodes[::-1]]] = nodes[::-1]
    last[event[nodes]] = nodes
    called = np.full(len(graph.moments.at) + 1, -1)
    own = np.flatnonzero(graph.waits.kind == KINDS.index("call"))
    called[graph.waits.dst[own]] = own
    begin, end = first[row], last[row]
    on_device = (begin >= 0) & (graph.moments.line[begin] < 0)
    call = np.where(on_device, -1, called[end])
    return Exchanges(part, begin, end, call).only(on_device | (call >= 0))
