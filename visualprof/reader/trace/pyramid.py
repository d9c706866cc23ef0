"""Levels of detail of a timeline, built once: what a window shows costs the same for any number of events.

A lane is one line of one track (track, depth); on a lane no two events overlap. Level k has buckets of 2**k ns; an
entry of it stands for all events of a lane that start in one bucket: from the first start to the last end, with
their number and the longest of them. Every second level is stored if it saves something, each made from the one before.
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
MAX_SIZE_RATIO = 0.7  # a level is stored when it has at most this share of the entries of the one before


class Pyramid(msgspec.Struct, frozen=True):
    """All levels as columns.

    lane_track, lane_depth: (lanes,) track and line of each lane. lane_of_track: (tracks + 1,) slice of lanes.
    order: (n,) rows of events by (lane, ts): the level of single events. order_first: (lanes + 1,) slice of each lane.
    exponent: (levels,). start, end: (entries,) ns since the first event. count: events that start in the bucket.
    longest: row of the longest. first: (levels, lanes + 1) slice of each lane in the entries.
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
    start: Ints
    end: Ints
    number: Ids
    longest: Ids
    first: Ints


class _Rows(NamedTuple):
    """Columns of the events, and their rows by lane: what both ways to the levels need."""

    ts: Ints
    end: Ints
    dur: Ints
    order: Ids
    first: Ints
    origin: int


def build_pyramid(ts: Ints, end: Ints, dur: Ints, depth: NDArray[np.uint16], tracks: Ints) -> Pyramid:
    """The levels of events sorted by (track, ts).

    Args: ts, end, dur (-1 instant), depth: (n,). tracks: (tracks + 1,) slice of each track.
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
    """From which exponent on each row shares the bucket of the one before it on its lane, and how many rows have each.

    Of the first row of a lane it is 65, which is none.
    """
    native = function("vp_apart", None, INT64, c_int64, INT32, INT64, c_int64, UINT8, INT64)
    exponents, counts = np.empty(len(rows.order), np.uint8), np.empty(66, np.int64)
    if native:
        native(rows.ts, rows.origin, rows.order, rows.first, len(rows.first) - 1, exponents, counts)
        return exponents, counts
    start = rows.ts[rows.order] - rows.origin
    start[1:] ^= start[:-1].copy()
    start &= ~(start >> 1)  # keeps the highest bit and lets no rounding carry into it
    exponents[:] = np.frexp(start.astype(np.float64))[1]
    exponents[rows.first[:-1][np.diff(rows.first) > 0]] = 65
    return exponents, np.bincount(exponents, minlength=66)


def _choose_levels(counts: Ints, top: int, lanes: int) -> tuple[list[int], list[int]]:
    """Exponents of the levels that are stored, and their numbers of entries."""
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
    """The entries of all levels one after the other, and the lanes' slices of them."""
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
    """The entries of the next level, each from those of `first` to the next of them."""
    return _Entries(
        entries.start[first],
        np.maximum.reduceat(entries.end, first),
        np.add.reduceat(entries.number, first),
        entries.longest[index_of_longest(dur[entries.longest], first)],
        np.searchsorted(first, entries.first),
    )


def index_of_longest(duration: Ints, first: Ints) -> Ints:
    """Place of the longest in each group of consecutive entries; `first` are the groups' heads."""
    size = np.diff(np.append(first, len(duration)))
    maximum = np.repeat(np.maximum.reduceat(duration, first), size)
    indices = np.where(duration == maximum, np.arange(len(duration)), len(duration))
    return np.minimum.reduceat(indices, first)
