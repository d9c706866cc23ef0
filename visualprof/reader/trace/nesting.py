"""Which event encloses which, and on which line of a track each one is drawn."""

from __future__ import annotations

from bisect import bisect_left, insort
from ctypes import c_int, c_int64
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.native import INT32, INT64, UINT8, UINT16, function
from visualprof.reader.trace.order import grouped
from visualprof.reader.trace.types import Ids, Ints, Mask, Rows

FEW = 64  # steps up that are taken one by one: deeper stacks are rare


def nest(ts: Ints, end: Ints, first: Ints) -> tuple[Ids, NDArray[np.uint16]]:
    """Parent and depth of every event.

    Args:
        ts, end: (n,) ns, each track contiguous and sorted by (ts, -end). An instant has end == ts.
        first: (tracks + 1,) slice of each track.

    Returns:
        parent: (n,) row of the innermost event of the track that contains it whole, -1 for none.
        depth: (n,) a line of the track on which it overlaps no other event, below its parent's; 65,535 takes the rest.
    """
    parent, depth = np.empty(len(ts), np.int32), np.empty(len(ts), np.uint16)
    closed = np.maximum(end, ts + 1)  # an instant stays open for 1 ns, so that it nests under what starts with it
    native = function("vp_nest", c_int, INT64, INT64, INT64, c_int64, INT32, UINT16)
    if native and not native(ts, closed, first, len(first) - 1, parent, depth):
        return parent, depth
    return _nest(ts, closed, first)


def _nest(ts: Ints, closed: Ints, first: Ints) -> tuple[Ids, NDArray[np.uint16]]:
    """As `nest`, of events that are open until `closed`."""
    depth = np.zeros(len(ts), np.int64)
    bounds: list[tuple[int, int]] = list(pairwise(first.tolist()))
    for low, high in bounds:
        ended = np.searchsorted(np.sort(closed[low:high]), ts[low:high], side="right")
        depth[low:high] = np.arange(high - low) - ended
    parent = _last_above(depth)
    inside = parent < 0
    inside |= (ts[parent] <= ts) & (closed[parent] >= closed) & (depth[parent] == depth - 1)
    if not inside.all():
        wrong = np.flatnonzero(~inside)
        for low, high in bounds:
            if np.searchsorted(wrong, high) > np.searchsorted(wrong, low):
                _nest_overlapping(ts, closed, low, high, parent, depth)
    return parent.astype(np.int32), np.minimum(depth, 65535).astype(np.uint16)


def _last_above(depth: Ints) -> Ints:
    """For each event the last earlier one that is one level up, -1 at level 0."""
    n = len(depth)
    position = np.arange(n, dtype=np.int64)
    keys = np.sort(depth * n + position)
    wanted = (depth - 1) * n + position
    place = np.searchsorted(keys, wanted, side="right") - 1
    return np.where(depth > 0, keys[np.maximum(place, 0)] % max(n, 1), -1)


def _nest_overlapping(ts: Ints, closed: Ints, first: int, last: int, parent: Ints, depth: Ints) -> None:
    """The same for a track on which events overlap without containing one another (1 us an event)."""
    starts, ends = ts[first:last].tolist(), closed[first:last].tolist()
    parents, lanes = list[int](), list[int]()
    taken: list[tuple[int, int]] = []  # a heap of when lanes become free
    free: list[int] = []  # lanes that are, ascending
    above = -1
    for start, stop in zip(starts, ends, strict=True):
        while taken and taken[0][0] <= start:
            insort(free, heappop(taken)[1])
        while above >= 0 and ends[above] < stop:  # nor will it enclose anything later
            above = parents[above]
        place = bisect_left(free, lanes[above] + 1 if above >= 0 else 0)
        lane = free.pop(place) if place < len(free) else len(free) + len(taken)
        heappush(taken, (stop, lane))
        parents.append(above)
        lanes.append(lane)
        above = len(parents) - 1
    own = np.array(parents, np.int64)
    parent[first:last] = np.where(own >= 0, own + first, -1)
    depth[first:last] = lanes


def nearest_ancestor(parent: Ids, wanted: Mask, rows: Rows) -> Ids:
    """For each row the nearest event at or above it for which `wanted` holds, -1 for none.

    Args:
        parent: (n,) parent of every event. wanted: (n,). rows: (m,) event rows; -1 stays -1.
    """
    at = rows.astype(np.int32)
    if not len(parent):
        return at
    native = function("vp_nearest", None, INT32, UINT8, c_int64, INT32)
    if native and len(at) > len(parent) >> 4:
        nearest = np.full(len(parent) + 1, -1, np.int32)  # the last one for -1
        native(np.ascontiguousarray(parent), wanted.view(np.uint8), len(parent), nearest)
        return nearest[at]
    climbing = np.flatnonzero((at >= 0) & ~wanted[at])
    for _ in range(FEW):
        if not len(climbing):
            return at
        at[climbing] = parent[at[climbing]]
        events = at[climbing]
        climbing = climbing[(events >= 0) & ~wanted[events]]
    above = np.where(wanted, np.arange(len(parent), dtype=np.int32), parent)
    while not np.array_equal(above, further := _beyond(above, above)):  # each round looks twice as far
        above = further
    at[climbing] = above[at[climbing]]
    return at


def _beyond(to: Ids, then: Ids) -> Ids:
    """Of each event where two ways in turn lead it, -1 once one leads nowhere."""
    return np.where(to >= 0, then[to], np.int32(-1))


def innermost_at(ts: Ints, end: Ints, parent: Ids, first: int, last: int, times: Ints) -> Ids:
    """For each time the innermost event of the track [first, last) that covers it, -1 for none."""
    return innermost_of_tracks(ts, end, parent, np.array([first, last]), np.zeros(len(times), np.int32), times)


def innermost_of_tracks(ts: Ints, end: Ints, parent: Ids, first: Ints, track: Ids, times: Ints) -> Ids:
    """Innermost event of a track at a time, -1 for none, for many (track, time); of the track -1 there is none.

    Args: ts, end, parent: (n,) of the events. first: (tracks + 1,) slice of each track. track, times: (m,).
    """
    at = np.full(len(times), -1, np.int32)
    order, groups = grouped(track + np.int32(1), len(first))
    slices: list[int] = groups.tolist()
    used: list[int] = np.flatnonzero(np.diff(groups[1:])).tolist()
    for t in used:
        low, high = first[t], first[t + 1]
        rows = order[slices[t + 1] : slices[t + 2]]
        place = np.searchsorted(ts[low:high], times[rows], side="right") - 1
        at[rows] = np.where(place >= 0, low + place, -1)
    _climb_to_cover(end, parent, at, times)
    return at


def _climb_to_cover(end: Ints, parent: Ids, at: Ids, times: Ints) -> None:
    """Replaces events by the nearest at or above them that last until the times. Those above never end earlier."""
    climbing = np.flatnonzero((at >= 0) & (end[at] < times)) if len(end) else np.zeros(0, np.int64)
    for _ in range(FEW):
        if not len(climbing):
            return
        at[climbing] = parent[at[climbing]]
        events = at[climbing]
        climbing = climbing[(events >= 0) & (end[events] < times[climbing])]
    above = [parent]  # of each event the one 1, 2, 4, ... above it
    while above[-1].max() >= 0:
        above.append(_beyond(above[-1], above[-1]))
    for up in reversed(above):
        events = up[at[climbing]]
        short = (events >= 0) & (end[events] < times[climbing])
        at[climbing[short]] = events[short]
    at[climbing] = parent[at[climbing]]
