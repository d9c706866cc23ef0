"""Level-of-detail tiles of a timeline: what a window shows at one bucket a pixel, for any number of events.

A lane is one line of one track (track, depth); on a lane no two events overlap. Level k has buckets of 2**k ns; a
tile is TILE_BUCKETS of them. An entry of a tile stands for all events of a lane that start in one bucket: from the
first start to the last end, with their number and the longest of them. Every second level is stored, each made from the
one before; a tile merges at most four stored entries into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Ids, Ints, Trace, TrackKind

TILE_BUCKETS = 256
LEVEL_STEP = 2
WORTH = 0.7  # a level is stored when it has at most this share of the entries of the one before


@dataclass(frozen=True)
class Level:
    """Entries of one level, sorted by (lane, start).

    start, end: ns since the trace's first event. count: events that start in the bucket. longest: row of the longest.
    first: (lanes + 1,) slice of each lane.
    """

    exponent: int
    start: Ints
    end: Ints
    count: NDArray[np.int32]
    longest: Ids
    first: Ints


@dataclass(frozen=True)
class Pyramid:
    """lane_track, lane_depth: (lanes,) track and line of each lane; lane_of_track: (tracks + 1,) slice of lanes."""

    origin: int
    duration: int
    lane_track: Ids
    lane_depth: NDArray[np.uint16]
    lane_of_track: Ints
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Tile:
    """Columns of one tile, all (n,): see Level. count is 0 for an event that began before the tile."""

    lane: Ids
    start: Ints
    end: Ints
    count: NDArray[np.int32]
    longest: Ids


def build_pyramid(trace: Trace) -> Pyramid:
    """All levels of a trace, from single events up to one bucket for the whole."""
    events = trace.events
    origin, until = trace.span_ns
    depth = events.depth.astype(np.int64)
    counts = np.array([t.count for t in trace.tracks] or [0])
    deepest = np.zeros(max(1, len(trace.tracks)), np.int64)
    if len(events):
        np.maximum.at(deepest, events.track, depth + 1)
    lane_of_track = np.concatenate(([0], np.cumsum(np.where(counts > 0, deepest, 0))))
    lane = (lane_of_track[:-1][events.track] + depth) if len(events) else np.zeros(0, np.int64)
    order = np.argsort(lane.astype(np.uint16) if lane_of_track[-1] < 65536 else lane, kind="stable")
    lanes = int(lane_of_track[-1])
    base = Level(
        0, events.ts[order] - origin, events.end[order] - origin, np.ones(len(order), np.int32), order.astype(np.int32),
        np.searchsorted(lane[order], np.arange(lanes + 1)),
    )  # fmt: skip
    levels = [base]
    last, top = base, max(0, int(until - origin)).bit_length()
    for exponent in range(LEVEL_STEP, top + LEVEL_STEP, LEVEL_STEP):
        merged = _merge(last, exponent, events.dur)
        if len(merged.start) <= WORTH * len(levels[-1].start) or exponent >= top:
            levels.append(merged)
        last = merged
    track_of = np.repeat(np.arange(len(trace.tracks)), np.diff(lane_of_track)[: len(trace.tracks)])
    depth_of = np.arange(lanes) - lane_of_track[:-1][track_of]
    return Pyramid(origin, int(until - origin), track_of.astype(np.int32), depth_of.astype(np.uint16), lane_of_track, tuple(levels))


def tile(pyramid: Pyramid, tracks: range, exponent: int, index: int, duration: Ints) -> Tile:
    """One tile of some neighbouring tracks.

    Args:
        tracks: rows of the trace's tracks.
        exponent: level; buckets of 2**exponent ns. index: tiles since the trace's first event.
        duration: (n,) ns of every event of the trace, to tell the longest of merged entries.
    """
    level = next(lv for lv in reversed(pyramid.levels) if lv.exponent <= exponent)
    low, high = index * TILE_BUCKETS << exponent, (index + 1) * TILE_BUCKETS << exponent
    lanes = range(int(pyramid.lane_of_track[tracks.start]), int(pyramid.lane_of_track[tracks.stop]))
    rows: list[NDArray[np.int64]] = []
    owners: list[int] = []
    held: list[int] = []
    for lane in lanes:  # at most some hundred; 8 us each
        first, last = int(level.first[lane]), int(level.first[lane + 1])
        starts = level.start[first:last]
        a, b = first + int(np.searchsorted(starts, low)), first + int(np.searchsorted(starts, high))
        before = a > first and level.end[a - 1] > low
        held.append(int(before))
        rows.append(np.arange(a - before, b))
        owners.append(lane)
    at = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    lane = np.repeat(np.array(owners, np.int32), [len(r) for r in rows]) if rows else np.zeros(0, np.int32)
    count = level.count[at].copy()
    heads = np.cumsum([0] + [len(r) for r in rows])[:-1][np.array(held, bool)] if rows else np.zeros(0, np.int64)
    count[heads] = 0
    found = Tile(lane, level.start[at], level.end[at], count, level.longest[at])
    return found if level.exponent == exponent or not len(at) else _coarser(found, exponent, duration)


def counter_buckets(ts: Ints, value: NDArray[np.float64], low: int, exponent: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Samples of a counter in a tile: bucket of each group of samples, and (n, 3) smallest, largest and last value.

    Args: ts: (n,) ns ascending from `low` on, inside the tile.
    """
    if not len(ts):
        return np.zeros(0, np.int32), np.zeros((0, 3))
    bucket = ((ts - low) >> exponent).astype(np.int32)
    first = np.flatnonzero(np.concatenate(([True], bucket[1:] != bucket[:-1])))
    last = np.append(first[1:], len(ts)) - 1
    return bucket[first], np.stack((np.minimum.reduceat(value, first), np.maximum.reduceat(value, first), value[last]), axis=1)


def _merge(level: Level, exponent: int, duration: Ints) -> Level:
    """The next level: entries of a lane that start in the same bucket become one."""
    if not len(level.start):
        return Level(exponent, level.start, level.end, level.count, level.longest, level.first)
    bucket = level.start >> exponent
    new = np.empty(len(bucket), bool)
    new[0] = True
    np.not_equal(bucket[1:], bucket[:-1], out=new[1:])
    heads = level.first[:-1]
    new[heads[heads < len(new)]] = True
    first = np.flatnonzero(new)
    longest = level.longest if len(first) == len(bucket) else level.longest[_longest(duration[level.longest], first)]
    return Level(
        exponent, level.start[first], np.maximum.reduceat(level.end, first), np.add.reduceat(level.count, first), longest,
        np.searchsorted(first, level.first),
    )  # fmt: skip


def _coarser(entries: Tile, exponent: int, duration: Ints) -> Tile:
    """The entries of a tile merged to its own buckets; what began before the tile stays apart."""
    bucket = np.where(entries.count > 0, entries.start >> exponent, -1)
    first = np.flatnonzero(np.concatenate(([True], (bucket[1:] != bucket[:-1]) | (entries.lane[1:] != entries.lane[:-1]))))
    longest = entries.longest[_longest(duration[entries.longest], first)]
    return Tile(entries.lane[first], entries.start[first], np.maximum.reduceat(entries.end, first), np.add.reduceat(entries.count, first), longest)


def _longest(duration: Ints, first: Ints) -> Ints:
    """Place of the longest in each group; `first` are the groups' heads."""
    size = np.diff(np.append(first, len(duration)))
    most = np.repeat(np.maximum.reduceat(duration, first), size)
    places = np.where(duration == most, np.arange(len(duration)), len(duration))
    return np.minimum.reduceat(places, first)


def to_arrays(pyramid: Pyramid) -> dict[str, NDArray[np.generic]]:
    """The pyramid as named columns, to be stored."""
    out: dict[str, NDArray[np.generic]] = {
        "head": np.array([pyramid.origin, pyramid.duration, *(lv.exponent for lv in pyramid.levels)], np.int64),
        "lane_track": pyramid.lane_track, "lane_depth": pyramid.lane_depth, "lane_of_track": pyramid.lane_of_track,
    }  # fmt: skip
    for i, level in enumerate(pyramid.levels):
        out |= {f"{i}.{name}": getattr(level, name) for name in ("start", "end", "count", "longest", "first")}
    return out


def from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> Pyramid:
    """The pyramid that `to_arrays` gave."""
    origin, duration, *exponents = (int(v) for v in arrays["head"])
    levels = tuple(
        Level(e, *(arrays[f"{i}.{name}"] for name in ("start", "end", "count", "longest", "first")))  # type: ignore[arg-type]
        for i, e in enumerate(exponents)
    )
    return Pyramid(origin, duration, arrays["lane_track"], arrays["lane_depth"], arrays["lane_of_track"], levels)  # type: ignore[arg-type]


def on_timeline(trace: Trace) -> list[int]:
    """Tracks with events, in the order in which they are shown."""
    rank = {TrackKind.THREAD: 0, TrackKind.GPU_ANNOTATION: 1, TrackKind.STREAM: 2, TrackKind.COUNTER: 3}
    shown = [i for i, t in enumerate(trace.tracks) if t.count]
    return sorted(shown, key=lambda i: (rank[trace.tracks[i].kind], trace.tracks[i].device, trace.tracks[i].order, i))
