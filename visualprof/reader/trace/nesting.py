"""Which event encloses which, and on which line of a track each one is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace.types import Ids, Ints, Mask, Rows


def nest(ts: Ints, end: Ints, bounds: list[tuple[int, int]]) -> tuple[Ids, NDArray[np.uint16]]:
    """Parent and depth of every event.

    Args:
        ts, end: (n,) ns, each track contiguous and sorted by (ts, -end). An instant has end == ts.
        bounds: [first, last) of every track.

    Returns:
        parent: (n,) row of the innermost event of the track that contains it whole, -1 for none.
        depth: (n,) a line of the track on which it overlaps no other event, below its parent's.
    """
    n = len(ts)
    depth = np.zeros(n, np.int64)
    closed = np.maximum(end, ts + 1)  # an instant stays open for 1 ns, so that it nests under what starts with it
    for first, last in bounds:
        ended = np.searchsorted(np.sort(closed[first:last]), ts[first:last], side="right")
        depth[first:last] = np.arange(last - first) - ended
    parent = _last_above(depth)
    inside = parent < 0
    inside |= (ts[parent] <= ts) & (closed[parent] >= closed) & (depth[parent] == depth - 1)
    if not inside.all():
        wrong = np.flatnonzero(~inside)
        for first, last in bounds:
            if np.searchsorted(wrong, last) > np.searchsorted(wrong, first):
                _nest_overlapping(ts, closed, first, last, parent, depth)
    return parent.astype(np.int32), np.minimum(depth, 65535).astype(np.uint16)


def _last_above(depth: Ints) -> Ints:
    """For each event the last earlier one that is one level up, -1 at level 0."""
    n = len(depth)
    position = np.arange(n, dtype=np.int64)
    keys = np.sort(depth * n + position)
    wanted = (depth - 1) * n + position
    place = np.searchsorted(keys, wanted, side="right") - 1
    return np.where(depth > 0, keys[np.maximum(place, 0)] % max(n, 1), -1)


def _nest_overlapping(ts: Ints, end: Ints, first: int, last: int, parent: Ints, depth: Ints) -> None:
    """The same for a track on which events overlap without containing one another (2 us an event)."""
    open_events: list[int] = []
    lanes: list[int] = []  # lane of each open event
    starts, ends = ts[first:last].tolist(), end[first:last].tolist()
    for i, (start, stop) in enumerate(zip(starts, ends, strict=True)):
        keep = [k for k, j in enumerate(open_events) if ends[j] > start]
        if len(keep) < len(open_events):
            open_events, lanes = [open_events[k] for k in keep], [lanes[k] for k in keep]
        holders = [k for k, j in enumerate(open_events) if ends[j] >= stop]
        above = holders[-1] if holders else -1
        lane = lanes[above] + 1 if holders else 0
        taken = set(lanes)
        while lane in taken:
            lane += 1
        parent[first + i] = first + open_events[above] if holders else -1
        depth[first + i] = lane
        open_events.append(i)
        lanes.append(lane)


def nearest_ancestor(parent: Ids, wanted: Mask, rows: Rows) -> Ids:
    """For each row the nearest event at or above it for which `wanted` holds, -1 for none.

    Args:
        parent: (n,) parent of every event. wanted: (n,). rows: (m,) event rows; -1 stays -1.
    """
    at = rows.astype(np.int32)
    if not len(parent):
        return at
    climbing = np.flatnonzero((at >= 0) & ~wanted[at])
    while len(climbing):
        at[climbing] = parent[at[climbing]]
        events = at[climbing]
        climbing = climbing[(events >= 0) & ~wanted[events]]
    return at


def innermost_at(ts: Ints, end: Ints, parent: Ids, first: int, last: int, times: Ints) -> Ids:
    """For each time the innermost event of the track [first, last) that covers it, -1 for none."""
    at = (np.searchsorted(ts[first:last], times, side="right") - 1 + first).astype(np.int32)
    at[at < first] = -1
    climbing = np.flatnonzero((at >= 0) & (end[at] < times))
    while len(climbing):
        at[climbing] = parent[at[climbing]]
        events = at[climbing]
        climbing = climbing[(events >= 0) & (end[events] < times[climbing])]
    return at


def innermost_of_tracks(
    ts: Ints, end: Ints, parent: Ids, bounds: Sequence[tuple[int, int]], track: Ids, times: Ints
) -> Ids:
    """Innermost event of a track at a time, for many (track, time)."""
    events = np.full(len(times), -1, np.int32)
    used: list[int] = np.unique(track[track >= 0]).tolist()
    for t in used:
        first, last = bounds[t]
        if last > first:
            places = np.flatnonzero(track == t)
            events[places] = innermost_at(ts, end, parent, first, last, times[places])
    return events
