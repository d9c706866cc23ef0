"""Levels of detail of a timeline, built once: what a window shows costs the same for any number of events.

A lane is one line of one track (track, depth); on a lane no two events overlap. Level k has buckets of 2**k ns; an
entry of it stands for all events of a lane that start in one bucket: from the first start to the last end, with
their number and the longest of them. Every second level is stored if it saves something, each made from the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace.types import Ids, Ints

LEVEL_STEP = 2
WORTH = 0.7  # a level is stored when it has at most this share of the entries of the one before


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


class _Level(NamedTuple):
    start: Ints
    end: Ints
    number: Ids
    longest: Ids
    first: Ints


def build_pyramid(ts: Ints, dur: Ints, depth: NDArray[np.uint16], track: Ids, tracks: int) -> Pyramid:
    """The levels of events sorted by (track, ts); 0.1 s for a million.

    Args: ts, dur (-1 instant), depth, track: (n,). tracks: number of tracks.
    """
    deepest = np.zeros(tracks, np.int64)
    np.maximum.at(deepest, track, depth.astype(np.int64) + 1)
    lane_of_track = np.concatenate(([0], np.cumsum(deepest)))
    lanes = int(lane_of_track[-1])
    lane = lane_of_track[:-1][track] + depth if tracks else np.zeros(0, np.int64)
    order = np.argsort(lane.astype(np.uint16) if lanes < 65536 else lane, kind="stable").astype(np.int32)
    order_first = np.searchsorted(lane[order], np.arange(lanes + 1))
    end = ts + np.maximum(dur, 0)
    origin, until = (int(ts.min()), int(end.max())) if len(ts) else (0, 0)
    last = _Level(ts[order] - origin, end[order] - origin, np.ones(len(order), np.int32), order, order_first)
    stored: list[tuple[int, _Level]] = []
    kept, top = len(order), max(0, until - origin).bit_length()
    for exponent in range(LEVEL_STEP, top + LEVEL_STEP, LEVEL_STEP):
        last = _merge(last, exponent, dur)
        if len(last.start) <= WORTH * kept or (exponent >= top and kept > lanes):
            stored.append((exponent, last))
            kept = len(last.start)
    lane_track = np.repeat(np.arange(tracks), deepest)
    return Pyramid(
        lane_track.astype(np.int32),
        (np.arange(lanes) - lane_of_track[:-1][lane_track]).astype(np.uint16),
        lane_of_track,
        order,
        order_first,
        np.array([e for e, _ in stored], np.int64),
        *_joined([level for _, level in stored], lanes),
    )


def _joined(levels: Sequence[_Level], lanes: int) -> tuple[Ints, Ints, Ids, Ids, Ints]:
    """The entries of all levels one after the other, and the lanes' slices of them."""
    if not levels:
        none = np.zeros(0, np.int64)
        return none, none, np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, lanes + 1), np.int64)
    offsets = np.cumsum([0] + [len(level.start) for level in levels])[:-1]
    start, end, count, longest = (np.concatenate(column) for column in list(zip(*levels, strict=True))[:4])
    return (
        start,
        end,
        count.astype(np.int32),
        longest,
        np.stack([lv.first + o for lv, o in zip(levels, offsets, strict=True)]),
    )


def _merge(level: _Level, exponent: int, duration: Ints) -> _Level:
    """The next level: entries of a lane that start in the same bucket become one."""
    if not len(level.start):
        return level
    bucket = level.start >> exponent
    new = np.empty(len(bucket), bool)
    new[0] = True
    np.not_equal(bucket[1:], bucket[:-1], out=new[1:])
    heads = level.first[:-1]
    new[heads[heads < len(new)]] = True
    first = np.flatnonzero(new)
    if len(first) == len(bucket):
        return level
    return _Level(
        level.start[first],
        np.maximum.reduceat(level.end, first),
        np.add.reduceat(level.number, first),
        level.longest[place_of_longest(duration[level.longest], first)],
        np.searchsorted(first, level.first),
    )


def place_of_longest(duration: Ints, first: Ints) -> Ints:
    """Place of the longest in each group of consecutive entries; `first` are the groups' heads."""
    size = np.diff(np.append(first, len(duration)))
    most = np.repeat(np.maximum.reduceat(duration, first), size)
    places = np.where(duration == most, np.arange(len(duration)), len(duration))
    return np.minimum.reduceat(places, first)
