"""Sets of half-open time intervals: union, intersection, difference, coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int64

import numpy as np

from visualprof.reader.native import INT64, function
from visualprof.reader.trace import Ints, Mask
from visualprof.views.measure.groups import Groups

INT64_LIMITS = np.iinfo(np.int64)


def union(start: Ints, end: Ints) -> Ints:
    """Disjoint intervals that cover the same time.

    Args: start, end: (n,) ns, any order, may nest and touch.
    Returns: (m, 2) ns, ascending, disjoint; touching ones are joined, empty ones dropped.
    Raises: ValueError: an end precedes its start.
    """
    if (end < start).any():
        raise ValueError("an interval ends before it starts")
    native = function("vp_join", c_int64, INT64, INT64, c_int64, INT64)
    if native is None:
        return _union(start, end)
    spans = np.empty((len(start), 2), np.int64)
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    count: int = native(start, end, len(start), spans)
    return _united(spans[:count])


def unions_by_group(groups: Groups, start: Ints, end: Ints) -> list[Ints]:
    """The union of the intervals of each group; start, end: (n,) ns, no end before its start."""
    native = _join_groups()
    if native is None:
        return [_union(start[of], end[of]) for of in groups.members()]
    spans, first, count = _joined(native, groups.ids, start, end, groups.count)
    return [_united(spans[a : a + n]) for a, n in zip(first.tolist(), count.tolist(), strict=True)]


def _join_groups() -> Callable[..., None] | None:
    return function("vp_join_groups", None, INT64, INT64, INT64, c_int64, INT64, INT64, INT64)


def _joined(native: Callable[..., None], of: Ints, start: Ints, end: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Intervals joined to those before them in their group, the first one and the number of each group.

    Args: rows: (g,) intervals of each group.
    """
    spans, first, count = np.empty((len(start), 2), np.int64), np.cumsum(rows) - rows, np.zeros(len(rows), np.int64)
    of, start, end = (np.ascontiguousarray(column, np.int64) for column in (of, start, end))
    native(of, start, end, len(start), first, count, spans)
    return spans, first, count


def _united(spans: Ints) -> Ints:
    """The union of intervals (n, 2) that may be written over."""
    native = function("vp_union", c_int64, INT64, c_int64, INT64)
    if native is None:
        return _union(spans[:, 0], spans[:, 1])
    count: int = native(spans, len(spans), np.empty_like(spans))
    return spans[:count] if 2 * count > len(spans) else np.array(spans[:count])  # few do not hold the room of many


def _union(start: Ints, end: Ints) -> Ints:
    """As `union` does it without a compiler."""
    if not len(start):
        return np.zeros((0, 2), np.int64)
    if (start[1:] < start[:-1]).any():  # where all before a start have ended, these are the first so many ends
        start, reach = np.sort(start, kind="stable"), np.sort(end, kind="stable")
    else:
        reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append(True, start[1:] > reach[:-1]))
    spans = np.stack((start[first], reach[np.append(first[1:], len(start)) - 1]), axis=1)
    some = spans[:, 1] > spans[:, 0]
    return spans if some.all() else spans[some]


def merge(*sets: Ints) -> Ints:
    """Union of sets of intervals, each (n, 2) ns, any order."""
    return _united(np.concatenate(sets)) if sets else np.zeros((0, 2), np.int64)


def span_length(spans: Ints) -> int:
    """Nanoseconds covered by disjoint intervals (n, 2)."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def span_lengths_by_group(of: Ints, start: Ints, end: Ints, count: int) -> Ints:
    """Nanoseconds covered by the intervals of each group, 0 where it has none.

    Args: of: (n,) group of each interval, from 0. start, end: (n,) ns. count: groups. Returns: (count,) ns.
    """
    native = _join_groups()
    if native is None:
        return _lengths(of, start, end, count)
    order = np.argsort(start, kind="stable")
    rows = np.bincount(of, minlength=count)
    spans, first, pieces = _joined(native, of[order], start[order], end[order], rows)
    of = np.repeat(np.arange(count), pieces)
    shown = spans[np.arange(len(of)) + np.repeat(first - np.cumsum(pieces) + pieces, pieces)]
    return np.bincount(of, shown[:, 1] - shown[:, 0], count).astype(np.int64)


def _lengths(of: Ints, start: Ints, end: Ints, count: int) -> Ints:
    """As `lengths` does it without a compiler."""
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
    return _united(_overlaps(a, b))


def subtract(a: Ints, b: Ints) -> Ints:
    """Time in `a` and not in `b`; both disjoint ascending (n, 2), (m, 2)."""
    if not len(a) or not len(b):
        return a
    return intersect(a, np.concatenate(([INT64_LIMITS.min], b.ravel(), [INT64_LIMITS.max])).reshape(-1, 2))


def split_at(spans: Ints, borders: Ints) -> Ints:
    """Disjoint intervals (n, 2) cut wherever one of some times (m,) lies in them."""
    edges = np.concatenate(([INT64_LIMITS.min], np.sort(borders, axis=None), [INT64_LIMITS.max]))
    return _overlaps(spans, np.stack((edges[:-1], edges[1:]), axis=1))


def _overlaps(a: Ints, b: Ints) -> Ints:
    """Each part (k, 2) that an interval of `a` shares with one of `b`, which are disjoint and ascending."""
    native = function("vp_overlaps", c_int64, INT64, c_int64, INT64, c_int64, INT64)
    if native:
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        shared = np.empty((len(a) + len(b), 2), np.int64)
        found: int = native(a, len(a), b, len(b), shared)
        return shared[:found]
    if len(a) > len(b):
        a, b = b, a
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    count = np.maximum(np.searchsorted(b[:, 0], a[:, 1]) - first, 0)
    of = np.repeat(np.arange(len(a)), count)
    other = np.arange(len(of)) + np.repeat(first - np.cumsum(count) + count, count)
    start, end = np.maximum(a[of, 0], b[other, 0]), np.minimum(a[of, 1], b[other, 1])
    some = np.flatnonzero(end > start)
    return np.stack((start[some], end[some]), axis=1)


def covered_ns(spans: Ints, start: Ints, end: Ints) -> Ints:
    """Nanoseconds of each window that disjoint ascending intervals cover.

    Args: spans: (n, 2) ns. start, end: (m,) ns. Returns: (m,) ns.
    """
    if not len(spans):
        return np.zeros(len(start), np.int64)
    edges, total = spans.ravel(), np.zeros(len(spans) + 1, np.int64)
    np.cumsum(spans[:, 1] - spans[:, 0], out=total[1:])
    times = np.stack((start, end))
    place = np.searchsorted(edges, times, side="right")  # odd: in an interval, behind its start
    before = total[place >> 1] + np.where(place & 1, times - edges[place - 1], 0)
    return before[1] - before[0]


def contains_times(spans: Ints, times: Ints) -> Mask:
    """Of each time: does it lie in one of disjoint ascending intervals (n, 2)?"""
    return np.searchsorted(spans.ravel(), times, side="right") % 2 == 1


def containing_set(sets: Sequence[Ints], times: Ints) -> Ints:
    """Of each time (n,) the number of the set that covers it, -1 for none; all disjoint, ascending, (m, 2) each."""
    spans = np.concatenate((np.zeros((1, 2), np.int64), *sets))  # the first for times before all
    of = np.repeat(np.arange(-1, len(sets)), [1, *map(len, sets)])
    spans[0] = INT64_LIMITS.min
    order = np.argsort(spans[:, 0], kind="stable")
    start, end, of = spans[order, 0], spans[order, 1], of[order]
    place = np.searchsorted(start, times, side="right") - 1
    return np.where(times < end[place], of[place], -1)
