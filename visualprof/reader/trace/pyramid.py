"""Levels of detail of a timeline, built once, so that drawing a window costs the same for any number of events.

A lane is one line of one track (track, depth). Events of a lane do not overlap. Level k has buckets of 2**k ns. An
entry of level k represents all events of a lane that start in one bucket. It lasts from the first start to the last
end, and has their number and the longest of them. Every second level is stored if it saves space, built from the
previous one.
"""

from __future__ import annotations

from ctypes import c_int64
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.native import INT32, INT64, UINT8, function
from visualprof.reader.trace.order import group_rows
from visualprof.reader.trace.types import Bytes, Ids, Ints

LEVEL_STEP = 2
MAX_SIZE_RATIO = 0.7  # a level is stored if it has at most this share of the previous level's entries


class Pyramid(msgspec.Struct, frozen=True):
    """All levels as columns.

    Attributes:
        lane_track: (lanes,) track of each lane.
        lane_depth: (lanes,) line of each lane.
        lane_of_track: (tracks + 1,) slice of each track in the lanes.
        order: (n,) event rows by (lane, ts): the level of single events.
        order_first: (lanes + 1,) slice of each lane in `order`.
        exponent: (levels,) exponent k of each level.
        start: (entries,) ns since the first event.
        end: (entries,) ns since the first event.
        count: (entries,) number of events that start in the bucket.
        longest: (entries,) row of the longest event.
        first: (levels, lanes + 1) slice of each lane in the entries.
    """

    lane_track: Ids
    lane_depth: NDArray[np.uint16]
    lane_of_track: Ints
    order: Ids
    order_first: Ints
    exponent: Ints
    start: Ints
    end: Ints
    count: Ids
    longest: Ids
    first: Ints


class _Entries(NamedTuple):
    """Entries of one or more levels, as in `Pyramid`."""

    start: Ints
    end: Ints
    number: Ids
    longest: Ids
    first: Ints


class _Rows(NamedTuple):
    """Event columns and event rows by lane: the input of the native and the Python implementation."""

    ts: Ints
    end: Ints
    dur: Ints
    order: Ids
    first: Ints
    origin: int


def build_pyramid(ts: Ints, end: Ints, dur: Ints, depth: NDArray[np.uint16], tracks: Ints) -> Pyramid:
    """Build the levels of events sorted by (track, ts).

    Args:
        ts: (n,) start in ns.
        end: (n,) end in ns.
        dur: (n,) duration in ns, -1 for an instant.
        depth: (n,) line of each event.
        tracks: (tracks + 1,) slice of each track.
    """
    filled = np.flatnonzero(np.diff(tracks))
    deepest = np.zeros(len(tracks) - 1, np.int64)
    if len(filled):
        deepest[filled] = np.maximum.reduceat(depth, tracks[filled]).astype(np.int64) + 1
    lane_of_track = np.concatenate(([0], np.cumsum(deepest)))
    lanes = int(lane_of_track[-1])
    order, first = group_rows(np.repeat(lane_of_track[:-1].astype(np.int32), np.diff(tracks)) + depth, lanes)
    origin, until = (int(ts.min()), int(end.max())) if len(ts) else (0, 0)
    rows = _Rows(ts, end, dur, order.astype(np.int32), first, origin)
    split_exponents, counts = _bucket_exponents(rows)
    exponents, sizes = _choose_levels(counts, max(0, until - origin).bit_length(), lanes)
    lane_track = np.repeat(np.arange(len(deepest)), deepest)
    return Pyramid(
        lane_track.astype(np.int32),
        (np.arange(lanes) - lane_of_track[:-1][lane_track]).astype(np.uint16),
        lane_of_track,
        rows.order,
        first,
        np.array(exponents, np.int64),
        *_build_levels(rows, split_exponents, exponents, sizes),
    )


def _bucket_exponents(rows: _Rows) -> tuple[Bytes, Ints]:
    """Return for each row the exponent from which it shares the bucket of its predecessor on the lane, and a histogram.

    The first row of a lane has 65, which no level reaches.
    """
    native = function("vp_bucket_exponents", None, INT64, c_int64, INT32, INT64, c_int64, UINT8, INT64)
    exponents, counts = np.empty(len(rows.order), np.uint8), np.empty(66, np.int64)
    if native:
        native(rows.ts, rows.origin, rows.order, rows.first, len(rows.first) - 1, exponents, counts)
        return exponents, counts
    start = rows.ts[rows.order] - rows.origin
    start[1:] ^= start[:-1].copy()
    start &= ~(start >> 1)  # keeps the highest bit, so that rounding cannot carry into it
    exponents[:] = np.frexp(start.astype(np.float64))[1]
    exponents[rows.first[:-1][np.diff(rows.first) > 0]] = 65
    return exponents, np.bincount(exponents, minlength=66)


def _choose_levels(counts: Ints, top: int, lanes: int) -> tuple[list[int], list[int]]:
    """Return the exponents of the levels to store, and their numbers of entries."""
    previous_size = int(counts.sum())
    exponents, sizes = list[int](), list[int]()
    for exponent in range(LEVEL_STEP, top + LEVEL_STEP, LEVEL_STEP):
        size = int(counts[exponent + 1 :].sum())
        if size <= MAX_SIZE_RATIO * previous_size or (exponent >= top and previous_size > lanes):
            exponents.append(exponent)
            sizes.append(size)
            previous_size = size
    return exponents, sizes


def _build_levels(rows: _Rows, split_exponents: Bytes, exponents: list[int], sizes: list[int]) -> _Entries:
    """Return the entries of all levels, concatenated, and the slices of the lanes."""
    levels, lanes = len(sizes), len(rows.first) - 1
    start, end = np.zeros((2, sum(sizes)), np.int64)
    number, longest = np.zeros((2, sum(sizes)), np.int32)
    target = _Entries(start, end, number, longest, np.zeros((levels, lanes + 1), np.int64))
    exponent, offset = np.array(exponents, np.int64), np.cumsum([0, *sizes])[:-1]
    columns = INT64, INT64, INT64, UINT8, INT32, INT64
    native = function("vp_levels", None, *columns, *[c_int64] * 2, INT64, c_int64, *[INT64] * 3, INT32, INT32, INT64)
    if native:
        native(*rows[:3], split_exponents, *rows[3:5], lanes, rows.origin, exponent, levels, offset, *target)
        return target
    start = rows.ts[rows.order] - rows.origin
    entries = _Entries(start, rows.end[rows.order] - rows.origin, np.ones_like(rows.order), rows.order, rows.first)
    for level, (low, size) in enumerate(zip(offset.tolist(), sizes, strict=True)):
        heads = np.flatnonzero(split_exponents > exponents[level])
        split_exponents, entries = split_exponents[heads], _merge_entries(entries, heads, rows.dur)
        for column, values in zip(target[:4], entries[:4], strict=True):
            column[low : low + size] = values
        target.first[level] = entries.first + low
    return target


def _merge_entries(entries: _Entries, first: Ints, dur: Ints) -> _Entries:
    """Return the entries of the next level; each merges the entries from one head in `first` to the next."""
    return _Entries(
        entries.start[first],
        np.maximum.reduceat(entries.end, first),
        np.add.reduceat(entries.number, first),
        entries.longest[index_of_longest(dur[entries.longest], first)],
        np.searchsorted(first, entries.first),
    )


def index_of_longest(duration: Ints, first: Ints) -> Ints:
    """Return the index of the longest entry in each group of consecutive entries.

    `first` has the heads of the groups.
    """
    size = np.diff(np.append(first, len(duration)))
    maximum = np.repeat(np.maximum.reduceat(duration, first), size)
    indices = np.where(duration == maximum, np.arange(len(duration)), len(duration))
    return np.minimum.reduceat(indices, first)
