"""Sets of half-open time intervals: union, intersection, difference, coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64

import numpy as np

from visualprof.reader.native import INT64, function
from visualprof.reader.trace import Ints, Mask
from visualprof.views.measure.columns.groups import Groups

INT64_LIMITS = np.iinfo(np.int64)


def union(start: Ints, end: Ints) -> Ints:
    """Return disjoint intervals that cover the same time.

    Args:
        start: (n,) ns, in any order; intervals may nest and touch.
        end: (n,) ns.

    Returns:
        (m, 2) ns, ascending and disjoint; touching intervals are joined, empty ones dropped.

    Raises:
        ValueError: An interval ends before it starts.
    """
    if (end < start).any():
        raise ValueError("an interval ends before it starts")
    native = function("vp_join", c_int64, INT64, INT64, c_int64, INT64)
    if native is None:
        return _union_fallback(start, end)
    spans = np.empty((len(start), 2), np.int64)
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    count: int = native(start, end, len(start), spans)
    return _merge_sorted(spans[:count])


def unions_by_group(groups: Groups, start: Ints, end: Ints) -> list[Ints]:
    """Return the union of the intervals of each group.

    Args:
        groups: Groups of the n intervals.
        start: (n,) ns.
        end: (n,) ns; not before `start`.
    """
    native = _native_join_groups()
    if native is None:
        return [_union_fallback(start[rows], end[rows]) for rows in groups.members()]
    spans, first, count = _join_in_groups(native, groups.ids, start, end, groups.count)
    return [
        _merge_sorted(spans[offset : offset + size])
        for offset, size in zip(first.tolist(), count.tolist(), strict=True)
    ]


def _native_join_groups() -> Callable[..., None] | None:
    """Return the native function that joins intervals per group, `None` if it is not available."""
    return function("vp_join_groups", None, INT64, INT64, INT64, c_int64, INT64, INT64, INT64)


def _join_in_groups(
    native: Callable[..., None], group_ids: Ints, start: Ints, end: Ints, sizes: Ints
) -> tuple[Ints, Ints, Ints]:
    """Join each interval with the preceding ones of its group that it overlaps.

    Args:
        native: The native function.
        group_ids: Group of each interval.
        start: ns.
        end: ns.
        sizes: (g,) number of intervals of each group.

    Returns:
        The joined intervals, and the first one and the number of them per group.
    """
    spans, first, count = np.empty((len(start), 2), np.int64), np.cumsum(sizes) - sizes, np.zeros(len(sizes), np.int64)
    group_ids, start, end = (np.ascontiguousarray(column, np.int64) for column in (group_ids, start, end))
    native(group_ids, start, end, len(start), first, count, spans)
    return spans, first, count


def _merge_sorted(spans: Ints) -> Ints:
    """Return the union of intervals (n, 2); the input may be overwritten."""
    native = function("vp_union", c_int64, INT64, c_int64, INT64)
    if native is None:
        return _union_fallback(spans[:, 0], spans[:, 1])
    count: int = native(spans, len(spans), np.empty_like(spans))
    return (
        spans[:count] if 2 * count > len(spans) else np.array(spans[:count])
    )  # a copy frees the memory of the many input intervals


def _union_fallback(start: Ints, end: Ints) -> Ints:
    """Return the union without native code."""
    if not len(start):
        return np.zeros((0, 2), np.int64)
    if (
        start[1:] < start[:-1]
    ).any():  # sorting both columns is enough: where all earlier intervals have ended, their ends are the first ones
        start, reach = np.sort(start, kind="stable"), np.sort(end, kind="stable")
    else:
        reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append(True, start[1:] > reach[:-1]))
    spans = np.stack((start[first], reach[np.append(first[1:], len(start)) - 1]), axis=1)
    is_not_empty = spans[:, 1] > spans[:, 0]
    return spans if is_not_empty.all() else spans[is_not_empty]


def merge(*sets: Ints) -> Ints:
    """Return the union of sets of intervals, each (n, 2) ns, in any order."""
    return _merge_sorted(np.concatenate(sets)) if sets else np.zeros((0, 2), np.int64)


def span_length(spans: Ints) -> int:
    """Return the nanoseconds that disjoint intervals (n, 2) cover."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def span_lengths_by_group(group_ids: Ints, start: Ints, end: Ints, count: int) -> Ints:
    """Return the nanoseconds that the intervals of each group cover, 0 for groups without intervals.

    Args:
        group_ids: (n,) group of each interval, from 0.
        start: (n,) ns.
        end: (n,) ns.
        count: Number of groups.

    Returns:
        (count,) ns.
    """
    native = _native_join_groups()
    if native is None:
        return _span_lengths_fallback(group_ids, start, end, count)
    order = np.argsort(start, kind="stable")
    sizes = np.bincount(group_ids, minlength=count)
    spans, first, joined_counts = _join_in_groups(native, group_ids[order], start[order], end[order], sizes)
    group_ids = np.repeat(np.arange(count), joined_counts)
    joined = spans[
        np.arange(len(group_ids)) + np.repeat(first - np.cumsum(joined_counts) + joined_counts, joined_counts)
    ]
    return np.bincount(group_ids, joined[:, 1] - joined[:, 0], count).astype(np.int64)


def _span_lengths_fallback(group_ids: Ints, start: Ints, end: Ints, count: int) -> Ints:
    """Return what `span_lengths_by_group` returns, without native code."""
    sort_key = group_ids.astype(np.uint16) if count <= 1 << 16 else group_ids  # numpy sorts 16-bit keys by counting
    by_start, by_end = np.lexsort((start, sort_key)), np.lexsort((end, sort_key))
    group_ids, start, end = group_ids[by_start], start[by_start], end[by_end]
    if not len(group_ids):
        return np.zeros(count, np.int64)
    first = np.flatnonzero(np.append(True, group_ids[1:] != group_ids[:-1]))
    # Before a gap as many intervals have ended as have started, so a group covers its whole span minus its gaps.
    gap = np.maximum(start[1:] - end[:-1], 0)
    gap[first[1:] - 1] = 0
    lengths = -np.bincount(group_ids[1:], gap, count).astype(np.int64)
    lengths[group_ids[first]] += end[np.append(first[1:], len(group_ids)) - 1] - start[first]
    return lengths


def intersect(a: Ints, b: Ints) -> Ints:
    """Return the time in both of two disjoint ascending sets (n, 2), (m, 2)."""
    return _merge_sorted(_overlaps(a, b))


def subtract(a: Ints, b: Ints) -> Ints:
    """Return the time in `a` but not in `b`; both disjoint and ascending, (n, 2) and (m, 2)."""
    if not len(a) or not len(b):
        return a
    return intersect(a, np.concatenate(([INT64_LIMITS.min], b.ravel(), [INT64_LIMITS.max])).reshape(-1, 2))


def split_at(spans: Ints, borders: Ints) -> Ints:
    """Split disjoint intervals (n, 2) at some times (m,)."""
    edges = np.concatenate(([INT64_LIMITS.min], np.sort(borders, axis=None), [INT64_LIMITS.max]))
    return _overlaps(spans, np.stack((edges[:-1], edges[1:]), axis=1))


def _overlaps(a: Ints, b: Ints) -> Ints:
    """Return each overlap (k, 2) of an interval of `a` with one of `b`; both sets are disjoint and ascending."""
    native = function("vp_overlaps", c_int64, INT64, c_int64, INT64, c_int64, INT64)
    if native:
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        shared = np.empty((len(a) + len(b), 2), np.int64)
        count: int = native(a, len(a), b, len(b), shared)
        return shared[:count]
    if len(a) > len(b):
        a, b = b, a
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    counts = np.maximum(np.searchsorted(b[:, 0], a[:, 1]) - first, 0)
    rows = np.repeat(np.arange(len(a)), counts)
    other_rows = np.arange(len(rows)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    start, end = np.maximum(a[rows, 0], b[other_rows, 0]), np.minimum(a[rows, 1], b[other_rows, 1])
    not_empty = np.flatnonzero(end > start)
    return np.stack((start[not_empty], end[not_empty]), axis=1)


def covered_ns(spans: Ints, start: Ints, end: Ints) -> Ints:
    """Return the nanoseconds of each window that disjoint ascending intervals cover.

    Args:
        spans: (n, 2) ns.
        start: (m,) ns.
        end: (m,) ns.

    Returns:
        (m,) ns.
    """
    if not len(spans):
        return np.zeros(len(start), np.int64)
    edges, cumulative = np.ascontiguousarray(spans).ravel(), np.zeros(len(spans) + 1, np.int64)
    np.cumsum(spans[:, 1] - spans[:, 0], out=cumulative[1:])
    native = function("vp_covered", None, INT64, INT64, c_int64, INT64, INT64, c_int64, INT64)
    if native:
        start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
        covered = np.empty(len(start), np.int64)
        native(edges, cumulative, len(spans), start, end, len(start), covered)
        return covered
    times = np.stack((start, end))
    edge_index = np.searchsorted(edges, times, side="right")  # odd: inside an interval, after its start
    covered_before = cumulative[edge_index >> 1] + np.where(edge_index & 1, times - edges[edge_index - 1], 0)
    return covered_before[1] - covered_before[0]


def positions(times: Ints, keys: Ints, *, after_equal: bool = False) -> Ints:
    """Return what `np.searchsorted` returns, faster for many nearly sorted keys.

    Args:
        times: (n,) ns, ascending.
        keys: (m,) ns.
        after_equal: Count the times that are equal to the key as well, not only earlier ones.
    """
    native = function("vp_search", None, INT64, c_int64, INT64, c_int64, c_int32, INT64)
    if native is None:
        return np.searchsorted(times, keys, side="right" if after_equal else "left")
    times, keys = np.ascontiguousarray(times, np.int64), np.ascontiguousarray(keys, np.int64)
    index = np.empty(len(keys), np.int64)
    native(times, len(times), keys, len(keys), after_equal, index)
    return index


def contains_times(spans: Ints, times: Ints) -> Mask:
    """Return, per time, whether it is inside one of some disjoint ascending intervals (n, 2)."""
    return np.searchsorted(spans.ravel(), times, side="right") % 2 == 1


def containing_set(sets: Sequence[Ints], times: Ints) -> Ints:
    """Return, per time (n,), the index of the set that covers it, -1 for none.

    The sets (m, 2) are all disjoint and ascending.
    """
    spans = np.concatenate((np.zeros((1, 2), np.int64), *sets))  # the first interval is for times before all others
    set_ids = np.repeat(np.arange(-1, len(sets)), [1, *map(len, sets)])
    spans[0] = INT64_LIMITS.min
    order = np.argsort(spans[:, 0], kind="stable")
    start, end, set_ids = spans[order, 0], spans[order, 1], set_ids[order]
    position = np.searchsorted(start, times, side="right") - 1
    return np.where(times < end[position], set_ids[position], -1)
