"""Sets of half-open time intervals: union, intersection, difference, coverage."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ints, Mask

EVER = np.iinfo(np.int64)


def union(start: Ints, end: Ints) -> Ints:
    """Disjoint intervals that cover the same time.

    Args: start, end: (n,) ns, any order, may nest and touch.
    Returns: (m, 2) ns, ascending, disjoint; touching ones are joined, empty ones dropped.
    Raises: ValueError: an end precedes its start.
    """
    if (end < start).any():
        raise ValueError("an interval ends before it starts")
    some = end > start
    if not some.all():
        rows = np.flatnonzero(some)
        start, end = start[rows], end[rows]
    if not len(start):
        return np.zeros((0, 2), np.int64)
    if (start[1:] < start[:-1]).any():  # where all before a start have ended, these are the first so many ends
        start, reach = np.sort(start, kind="stable"), np.sort(end, kind="stable")
    else:
        reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return np.stack((start[first], reach[np.append(first[1:], len(start)) - 1]), axis=1)


def merge(*sets: Ints) -> Ints:
    """Union of sets of intervals, each (n, 2) ns, any order."""
    both = np.concatenate(sets) if sets else np.zeros((0, 2), np.int64)
    return union(both[:, 0], both[:, 1])


def length(spans: Ints) -> int:
    """Nanoseconds covered by disjoint intervals (n, 2)."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def lengths(of: Ints, start: Ints, end: Ints, count: int) -> Ints:
    """Nanoseconds covered by the intervals of each group, 0 where it has none.

    Args: of: (n,) group of each interval, from 0. start, end: (n,) ns. count: groups. Returns: (count,) ns.
    """
    small = of.astype(np.uint16) if count <= 1 << 16 else of  # of 16 bits numpy sorts by counting
    by_start, by_end = np.lexsort((start, small)), np.lexsort((end, small))
    of, start, end = of[by_start], start[by_start], end[by_end]
    if not len(of):
        return np.zeros(count, np.int64)
    first = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    # Before a gap as many have ended as have started: a group covers what it spans less its gaps.
    gap = np.maximum(start[1:] - end[:-1], 0)
    gap[first[1:] - 1] = 0
    out = -np.bincount(of[1:], gap, count).astype(np.int64)
    out[of[first]] += end[np.append(first[1:], len(of)) - 1] - start[first]
    return out


def intersect(a: Ints, b: Ints) -> Ints:
    """Time in both of two disjoint ascending sets (n, 2), (m, 2)."""
    return union(*_overlaps(a, b))


def subtract(a: Ints, b: Ints) -> Ints:
    """Time in `a` and not in `b`; both disjoint ascending (n, 2), (m, 2)."""
    if not len(a) or not len(b):
        return a
    return intersect(a, np.stack((np.append(EVER.min, b[:, 1]), np.append(b[:, 0], EVER.max)), axis=1))


def pieces(spans: Ints, borders: Ints) -> Ints:
    """Disjoint intervals (n, 2) cut wherever one of some times (m,) lies in them."""
    edges = np.concatenate(([EVER.min], np.sort(borders, axis=None), [EVER.max]))
    start, end = _overlaps(spans, np.stack((edges[:-1], edges[1:]), axis=1))
    some = end > start
    return np.stack((start[some], end[some]), axis=1)


def _overlaps(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Start and end of each part that an interval of `a` shares with one of `b`, which are disjoint and ascending."""
    if len(a) > len(b):
        a, b = b, a
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    count = np.maximum(np.searchsorted(b[:, 0], a[:, 1]) - first, 0)
    of = np.repeat(np.arange(len(a)), count)
    other = np.arange(len(of)) + np.repeat(first - np.cumsum(count) + count, count)
    return np.maximum(a[of, 0], b[other, 0]), np.minimum(a[of, 1], b[other, 1])


def covered(spans: Ints, start: Ints, end: Ints) -> Ints:
    """Nanoseconds of each window that disjoint ascending intervals cover.

    Args: spans: (n, 2) ns. start, end: (m,) ns. Returns: (m,) ns.
    """
    return _before(spans, end) - _before(spans, start)


def _before(spans: Ints, times: Ints) -> Ints:
    """Nanoseconds covered before each time."""
    if not len(spans):
        return np.zeros(len(times), np.int64)
    total = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0])))
    place = np.searchsorted(spans[:, 0], times, side="right") - 1
    at = np.maximum(place, 0)
    partial = np.minimum(times, spans[at, 1]) - spans[at, 0]
    return np.where(place < 0, 0, total[at] + partial)


def covers(spans: Ints, times: Ints) -> Mask:
    """Of each time: does it lie in one of disjoint ascending intervals (n, 2)?"""
    if not len(spans):
        return np.zeros(len(times), bool)
    place = np.searchsorted(spans[:, 0], times, side="right") - 1
    return (place >= 0) & (times < spans[np.maximum(place, 0), 1])
