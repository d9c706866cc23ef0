"""Nesting of events, and the line of a track on which each event is drawn."""

from __future__ import annotations

from bisect import bisect_left, insort
from ctypes import c_int, c_int64
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.native import INT32, INT64, UINT8, UINT16, function
from visualprof.reader.trace.order import group_rows
from visualprof.reader.trace.types import Ids, Ints, Mask, Rows

MAX_SINGLE_STEPS = 64  # levels climbed one at a time; deeper stacks are rare


def nest(ts: Ints, end: Ints, first: Ints) -> tuple[Ids, NDArray[np.uint16]]:
    """Return parent and depth of every event.

    Args:
        ts: (n,) start in ns; each track is contiguous and sorted by (ts, -end).
        end: (n,) end in ns; an instant has end == ts.
        first: (tracks + 1,) slice of each track.

    Returns:
        parent: (n,) row of the innermost event of the track that fully contains the event, -1 for none.
        depth: (n,) a line of the track, below the parent's, on which no other event overlaps. Line 65,535 takes the
            rest.
    """
    parent, depth = np.empty(len(ts), np.int32), np.empty(len(ts), np.uint16)
    # An instant stays open for 1 ns, so that it nests under an event that starts with it
    closed = np.maximum(end, ts + 1)
    native = function("vp_nest", c_int, INT64, INT64, INT64, c_int64, INT32, UINT16)
    if native and not native(ts, closed, first, len(first) - 1, parent, depth):
        return parent, depth
    return _nest(ts, closed, first)


def _nest(ts: Ints, closed: Ints, first: Ints) -> tuple[Ids, NDArray[np.uint16]]:
    """Pure-Python fallback of `nest`; events are open until `closed`."""
    depth = np.zeros(len(ts), np.int64)
    bounds: list[tuple[int, int]] = list(pairwise(first.tolist()))
    for low, high in bounds:
        ended_count = np.searchsorted(np.sort(closed[low:high]), ts[low:high], side="right")
        depth[low:high] = np.arange(high - low) - ended_count
    parent = _last_one_level_up(depth)
    is_nested = parent < 0
    is_nested |= (ts[parent] <= ts) & (closed[parent] >= closed) & (depth[parent] == depth - 1)
    if not is_nested.all():
        failed = np.flatnonzero(~is_nested)
        for low, high in bounds:
            if np.searchsorted(failed, high) > np.searchsorted(failed, low):
                _nest_overlapping(ts, closed, low, high, parent, depth)
    return parent.astype(np.int32), np.minimum(depth, 65535).astype(np.uint16)


def _last_one_level_up(depth: Ints) -> Ints:
    """Return for each event the last earlier event one level up, -1 at level 0."""
    n = len(depth)
    position = np.arange(n, dtype=np.int64)
    keys = np.sort(depth * n + position)
    wanted = (depth - 1) * n + position
    index = np.searchsorted(keys, wanted, side="right") - 1
    return np.where(depth > 0, keys[np.maximum(index, 0)] % max(n, 1), -1)


def _nest_overlapping(ts: Ints, closed: Ints, first: int, last: int, parent: Ints, depth: Ints) -> None:
    """Nest a track on which events overlap without containing one another (1 us per event)."""
    starts, ends = ts[first:last].tolist(), closed[first:last].tolist()
    parents, lanes = list[int](), list[int]()
    busy: list[tuple[int, int]] = []  # a heap of the times at which lanes become free
    free_lanes: list[int] = []  # free lanes, ascending
    enclosing = -1
    for start, stop in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            insort(free_lanes, heappop(busy)[1])
        while enclosing >= 0 and ends[enclosing] < stop:  # it cannot enclose later events either
            enclosing = parents[enclosing]
        free_index = bisect_left(free_lanes, lanes[enclosing] + 1 if enclosing >= 0 else 0)
        lane = free_lanes.pop(free_index) if free_index < len(free_lanes) else len(free_lanes) + len(busy)
        heappush(busy, (stop, lane))
        parents.append(enclosing)
        lanes.append(lane)
        enclosing = len(parents) - 1
    local_parent = np.array(parents, np.int64)
    parent[first:last] = np.where(local_parent >= 0, local_parent + first, -1)
    depth[first:last] = lanes


def nearest_ancestor(parent: Ids, wanted: Mask, rows: Rows) -> Ids:
    """Return for each row the nearest event at or above it for which `wanted` holds, -1 for none.

    Args:
        parent: (n,) parent of every event.
        wanted: (n,) mask of the events.
        rows: (m,) event rows; -1 stays -1.
    """
    at = rows.astype(np.int32)
    if not len(parent):
        return at
    native = function("vp_nearest", None, INT32, UINT8, c_int64, INT32)
    if native and len(at) > len(parent) >> 4:
        nearest = np.empty(len(parent) + 1, np.int32)
        nearest[-1] = -1  # of row -1
        native(np.ascontiguousarray(parent), wanted.view(np.uint8), len(parent), nearest)
        return nearest[at]
    climbing = np.flatnonzero((at >= 0) & ~wanted[at])
    for _ in range(MAX_SINGLE_STEPS):
        if not len(climbing):
            return at
        at[climbing] = parent[at[climbing]]
        events = at[climbing]
        climbing = climbing[(events >= 0) & ~wanted[events]]
    jump = np.where(wanted, np.arange(len(parent), dtype=np.int32), parent)
    while not np.array_equal(jump, doubled := _compose_jumps(jump, jump)):  # each round doubles the distance
        jump = doubled
    at[climbing] = jump[at[climbing]]
    return at


def _compose_jumps(first_jump: Ids, second_jump: Ids) -> Ids:
    """Return for each event the target of two jumps in a row, -1 if one has no target."""
    return np.where(first_jump >= 0, second_jump[first_jump], np.int32(-1))


def innermost_at(ts: Ints, end: Ints, parent: Ids, first: int, last: int, times: Ints) -> Ids:
    """Return for each time the innermost event of the track [first, last) that covers it, -1 for none."""
    return innermost_on_tracks(ts, end, parent, np.array([first, last]), np.zeros(len(times), np.int32), times)


def innermost_on_tracks(ts: Ints, end: Ints, parent: Ids, first: Ints, track: Ids, times: Ints) -> Ids:
    """Return the innermost event at each (track, time), -1 for none or for track -1.

    Args:
        ts: (n,) start of the events in ns.
        end: (n,) end of the events in ns.
        parent: (n,) parent of the events.
        first: (tracks + 1,) slice of each track.
        track: (m,) tracks.
        times: (m,) times in ns.
    """
    innermost = np.full(len(times), -1, np.int32)
    order, groups = group_rows(track + np.int32(1), len(first))
    slices: list[int] = groups.tolist()
    used_tracks: list[int] = np.flatnonzero(np.diff(groups[1:])).tolist()
    for t in used_tracks:
        low, high = first[t], first[t + 1]
        rows = order[slices[t + 1] : slices[t + 2]]
        index = np.searchsorted(ts[low:high], times[rows], side="right") - 1
        innermost[rows] = np.where(index >= 0, low + index, -1)
    _climb_to_cover(end, parent, innermost, times)
    return innermost


def _climb_to_cover(end: Ints, parent: Ids, rows: Ids, times: Ints) -> None:
    """Replace events by the nearest event at or above them that lasts until the times. Ancestors never end earlier."""
    climbing = np.flatnonzero((rows >= 0) & (end[rows] < times)) if len(end) else np.zeros(0, np.int64)
    for _ in range(MAX_SINGLE_STEPS):
        if not len(climbing):
            return
        rows[climbing] = parent[rows[climbing]]
        events = rows[climbing]
        climbing = climbing[(events >= 0) & (end[events] < times[climbing])]
    jumps = [parent]  # ancestors of each event at distances 1, 2, 4, ...
    while jumps[-1].max() >= 0:
        jumps.append(_compose_jumps(jumps[-1], jumps[-1]))
    for jump in reversed(jumps):
        events = jump[rows[climbing]]
        short = (events >= 0) & (end[events] < times[climbing])
        rows[climbing[short]] = events[short]
    rows[climbing] = parent[rows[climbing]]
