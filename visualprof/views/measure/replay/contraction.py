"""A graph of waits with only some of its moments: the same times of these, from a hundredth of the waits."""

from __future__ import annotations

from ctypes import c_int64

import msgspec
import numpy as np

from visualprof.reader.native import FLOAT64, INT32, INT64, UINT8, function
from visualprof.reader.trace import Bytes, Floats, Ids
from visualprof.views.measure.replay.graph import Dependencies

MAX_INCOMING = 3  # ways to a moment that is not kept


class Shortcuts(msgspec.Struct, frozen=True):
    """The longest ways from kept moments to the next ones, (m,) by dst.

    src, dst: places among all moments. ns: from the end of the work of src to dst. made: (m, parts) what that is of.
    """

    src: Ids
    dst: Ids
    delay_ns: Floats
    breakdown_ns: Floats


class Contraction(msgspec.Struct, frozen=True):
    """What of a graph stays. kept: (n,) 1 for these moments. count: of the ways between them. parts: kinds of time.

    work: (n,) the part that a moment's work is of, -1 for none. The kind of a wait is its part.
    """

    edges: Dependencies
    work_part: Ids
    part_count: int
    is_retained: Bytes
    shortcut_count: int

    def shortcuts(self, dur: Floats, ns: Floats, with_breakdown: bool = False) -> Shortcuts:
        """The ways with some times of the moments' work and of the waits, in the same order for all times."""
        return _contracted(
            self, np.array(self.is_retained), self.shortcut_count, dur, ns, self.part_count if with_breakdown else 0
        )[1]


def contract(waits: Dependencies, work: Ids, parts: int, kept: Bytes) -> Contraction:
    """Keeps some moments, and those that more than `MOST` ways lead to, so that there are few ways in all."""
    kept = np.array(kept)
    whole = Contraction(waits, work, parts, kept, 0)
    count, _ = _contracted(whole, kept, 0, np.zeros(len(work)), waits.delay_ns, 0)
    return Contraction(waits, work, parts, kept, count)


def _contracted(
    what: Contraction, kept: Bytes, room: int, dur: Floats, ns: Floats, parts: int
) -> tuple[int, Shortcuts]:
    """How many ways there are, and those that there is room for. kept: is written."""
    waits, n = what.edges, len(what.work_part)
    out = Shortcuts(np.zeros(room, np.int32), np.zeros(room, np.int32), np.zeros(room), np.zeros((room, parts)))
    columns = (INT64, INT32, FLOAT64, FLOAT64, INT32, INT32)
    native = function(
        "vp_contract", c_int64, *columns, c_int64, c_int64, c_int64, UINT8, c_int64, INT32, INT32, FLOAT64, FLOAT64
    )
    if not native:
        return _twin(what, kept, room, dur, ns, parts, out)
    ns, dur = np.ascontiguousarray(ns), np.ascontiguousarray(dur)
    given = (waits.first_edges(n), waits.src, ns, dur, waits.kind, what.work_part, n, parts, MAX_INCOMING, kept, room)
    count = native(*given, out.src, out.dst, out.delay_ns, out.breakdown_ns)
    if count < 0:
        raise MemoryError
    return count, out


def _twin(
    what: Contraction, kept: Bytes, room: int, dur: Floats, ns: Floats, parts: int, out: Shortcuts
) -> tuple[int, Shortcuts]:
    waits, count = what.edges, 0
    first, src, kind, work = (
        column.tolist() for column in (waits.first_edges(len(kept)), waits.src, waits.kind, what.work_part)
    )
    times, lengths, stays = ns.tolist(), dur.tolist(), [bool(one) for one in kept]
    nothing: Floats = np.zeros(parts)
    ways: list[dict[int, tuple[float, Floats]]] = []
    for node in range(len(work)):
        found: dict[int, tuple[float, Floats]] = {}
        for edge in range(first[node], first[node + 1]):
            before: int = src[edge]
            known = {before: (0.0, nothing)} if stays[before] else ways[before]
            for origin, (taken, made) in known.items():
                spent = (0 if stays[before] else lengths[before]) + taken + times[edge]
                if origin in found and not spent > found[origin][0]:
                    continue
                whole = np.array(made)
                if parts:
                    whole[kind[edge]] += times[edge]
                    if not stays[before] and work[before] >= 0:
                        whole[work[before]] += lengths[before]
                found[origin] = (spent, whole)
        ways.append(found)
        stays[node] = stays[node] or len(found) > MAX_INCOMING
        if stays[node]:
            for origin, (spent, made) in found.items():
                if count < room:
                    out.src[count], out.dst[count], out.delay_ns[count], out.breakdown_ns[count] = (
                        origin,
                        node,
                        spent,
                        made,
                    )
                count += 1
    kept[:] = stays
    return count, out
