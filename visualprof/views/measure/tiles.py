"""Tiles of a timeline: what a window shows at one bucket a pixel, cut from the trace's pyramid."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Ids, Ints, Rows, Trace, TrackKind
from visualprof.reader.trace.pyramid import index_of_longest
from visualprof.views.measure.counter_tracks import CounterTrack
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.replay.path_pieces import PathPieces

TILE_BUCKETS = 256
MAX_GROUP_LANES = 10
TILE_MAGIC, COUNTER_MAGIC = 0x31545056, 0x31435056  # "VPT1", "VPC1"


class Tile(msgspec.Struct, frozen=True):
    """Columns of one tile, all (n,), by (lane, start).

    lane: of the pyramid. start, end: ns since the trace's first event. count: events that start in the bucket, 0 for
    one that began before the tile. longest: row of the longest of them.
    """

    lane: Ids
    start: Ints
    end: Ints
    count: Ids
    longest_event: Ids


def cut_tile(trace: Trace, tracks: range, exponent: int, index: int) -> Tile:
    """One tile of some neighbouring tracks.

    Args:
        tracks: rows of the trace's tracks.
        exponent: level; buckets of 2**exponent ns, TILE_BUCKETS of them a tile. index: tiles since the first event.
    """
    pyramid = trace.pyramid
    level = int(np.searchsorted(pyramid.exponent, exponent, side="right")) - 1
    low, high = index * TILE_BUCKETS << exponent, (index + 1) * TILE_BUCKETS << exponent
    first_lane, last_lane = int(pyramid.lane_of_track[tracks.start]), int(pyramid.lane_of_track[tracks.stop])
    slices = pyramid.order_first if level < 0 else pyramid.first[level]
    cut = _cut_events if level < 0 else _cut_entries
    parts = [
        cut(trace, lane, int(slices[lane]), int(slices[lane + 1]), low, high) for lane in range(first_lane, last_lane)
    ]
    if not parts:
        none = np.zeros(0, np.int64)
        return Tile(none.astype(np.int32), none, none, none.astype(np.int32), none.astype(np.int32))
    entries = Tile(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    exact = level >= 0 and int(pyramid.exponent[level]) == exponent
    return entries if exact or not len(entries.start) else _coarser(entries, exponent, trace.events.dur)


def _cut_events(
    trace: Trace, lane: int, first: int, last: int, low: int, high: int
) -> tuple[Ids, Ints, Ints, Ids, Ids]:
    """Single events of a lane."""
    events, (origin, _) = trace.events, trace.span_ns
    rows = trace.pyramid.order[first:last]
    a, b = (bisect_left(rows, edge + origin, key=events.ts.__getitem__) for edge in (low, high))
    held = a > 0 and events.ts[rows[a - 1]] + max(0, events.dur[rows[a - 1]]) > low + origin
    chosen = rows[a - held : b]
    start = events.ts[chosen] - origin
    count = np.ones(len(chosen), np.int32)
    count[: int(held)] = 0
    return np.full(len(chosen), lane, np.int32), start, start + np.maximum(events.dur[chosen], 0), count, chosen


def _cut_entries(
    trace: Trace, lane: int, first: int, last: int, low: int, high: int
) -> tuple[Ids, Ints, Ints, Ids, Ids]:
    """Entries of a lane on one level."""
    pyramid = trace.pyramid
    starts = pyramid.start[first:last]
    a, b = first + int(np.searchsorted(starts, low)), first + int(np.searchsorted(starts, high))
    held = a > first and int(pyramid.end[a - 1]) > low
    at = slice(a - held, b)
    count = np.array(pyramid.count[at])
    count[: int(held)] = 0
    return np.full(len(count), lane, np.int32), pyramid.start[at], pyramid.end[at], count, pyramid.longest[at]


def _coarser(entries: Tile, exponent: int, duration: Ints) -> Tile:
    """The entries of a tile merged to its own buckets; what began before the tile stays apart."""
    bucket = np.where(entries.count > 0, entries.start >> exponent, -1)
    first = np.flatnonzero(
        np.concatenate(([True], (bucket[1:] != bucket[:-1]) | (entries.lane[1:] != entries.lane[:-1])))
    )
    longest = entries.longest_event[index_of_longest(duration[entries.longest_event], first)]
    return Tile(
        entries.lane[first],
        entries.start[first],
        np.maximum.reduceat(entries.end, first),
        np.add.reduceat(entries.count, first),
        longest,
    )


def counter_buckets(ts: Ints, value: NDArray[np.float64], low: int, exponent: int) -> tuple[Ids, NDArray[np.float64]]:
    """Samples of a counter in a tile: bucket of each group of samples, and (n, 3) smallest, largest and last value.

    Args: ts: (n,) ns ascending from `low` on, inside the tile.
    """
    if not len(ts):
        return np.zeros(0, np.int32), np.zeros((0, 3))
    bucket = ((ts - low) >> exponent).astype(np.int32)
    first = np.flatnonzero(np.concatenate(([True], bucket[1:] != bucket[:-1])))
    last = np.append(first[1:], len(ts)) - 1
    return bucket[first], np.stack(
        (np.minimum.reduceat(value, first), np.maximum.reduceat(value, first), value[last]), axis=1
    )


def tile_bytes(trace: Trace, tracks: range, level: int, index: int) -> bytes:
    """A tile for the page, little-endian.

    u32 magic, u32 n, then columns of n: f32 start, f32 end (buckets from the tile's start, clipped to -1 .. 257),
    u32 event, u32 name, u32 count, u16 lane (of the group), u8 category; each column at a multiple of 4 bytes.
    """
    entries = cut_tile(trace, tracks, level, index)
    lane, events = entries.lane - int(trace.pyramid.lane_of_track[tracks.start]), trace.events
    of = (entries.longest_event, events.name[entries.longest_event], events.category[entries.longest_event])
    return _packed(entries, lane, of, level, index)


def counter_bytes(origin: int, counter: CounterTrack, level: int, index: int) -> bytes:
    """A tile of a counter, little-endian. origin: first ns of the trace.

    u32 magic, u32 n, f32 value before the tile (NaN: none), u32 0, then columns of n: f32 bucket, f32 smallest,
    f32 largest, f32 last value.
    """
    low = origin + (index * TILE_BUCKETS << level)
    a, b = np.searchsorted(counter.ts, (low, low + (TILE_BUCKETS << level)))
    bucket, values = counter_buckets(counter.ts[a:b], counter.value[a:b], low, level)
    before = float(counter.value[a - 1]) if a > 0 else float("nan")
    columns = [bucket.astype("<f4"), *(values[:, i].astype("<f4") for i in range(3))]
    return struct.pack("<IIfI", COUNTER_MAGIC, len(bucket), before, 0) + b"".join(c.tobytes() for c in columns)


def path_tile_bytes(trace: Trace, pieces: PathPieces, exponent: int, index: int) -> bytes:
    """A tile of a path in the form of `tile_bytes`; pieces that begin in one bucket of a track are one entry.

    lane: the track. event: row of device work, else one more than the last. name: its lane in the track. count: pieces.
    """
    low, high = index * TILE_BUCKETS << exponent, (index + 1) * TILE_BUCKETS << exponent
    origin, none = trace.span_ns[0], np.zeros(0, np.int64)
    rows = np.concatenate(
        [none, *(_in_window(pieces, track, low + origin, high + origin) for track in distinct(pieces.track))]
    )
    start, end = pieces.start[rows] - origin, pieces.end[rows] - origin
    entries = Tile(pieces.track[rows], start, end, (start >= low).astype(np.int32), rows.astype(np.int32))
    if len(rows):
        entries = _coarser(entries, exponent, pieces.end - pieces.start)
    event = pieces.event[entries.longest_event]
    depth = np.where(event >= 0, trace.events.depth[event], 0)
    event = np.where(event >= 0, event, len(trace.events))
    return _packed(entries, entries.lane, (event, depth, np.zeros(len(event), np.int64)), exponent, index)


def _in_window(pieces: PathPieces, track: int, low: int, high: int) -> Ints:
    """Pieces of a track that begin in [low, high), and the one before if it reaches into that."""
    first, last = np.searchsorted(pieces.track, (track, track + 1))
    a, b = (int(first) + int(np.searchsorted(pieces.start[first:last], edge)) for edge in (low, high))
    held = a > first and int(pieces.end[a - 1]) > low
    return np.arange(a - held, b)


def _packed(entries: Tile, lane: Ids, of: Sequence[Rows], exponent: int, index: int) -> bytes:
    """Entries with their event, name and category."""
    low, width = index * TILE_BUCKETS << exponent, float(1 << exponent)
    start, end = (
        np.clip((at - low) / width, -1, TILE_BUCKETS + 1).astype("<f4") for at in (entries.start, entries.end)
    )
    event, name, category = of
    columns = (
        start,
        end,
        event.astype("<u4"),
        name.astype("<u4"),
        entries.count.astype("<u4"),
        lane.astype("<u2"),
        category.astype("u1"),
    )
    return struct.pack("<II", TILE_MAGIC, len(start)) + b"".join(_padded(c.tobytes()) for c in columns)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def track_groups(trace: Trace) -> list[range]:
    """Neighbouring tracks that share tiles: together at most GROUP_LANES lanes, or one track."""
    lanes = np.diff(trace.pyramid.lane_of_track)
    groups: list[range] = []
    for track in range(len(trace.tracks)):
        last = groups[-1] if groups else range(0)
        if groups and int(lanes[last.start : track + 1].sum()) <= MAX_GROUP_LANES:
            groups[-1] = range(last.start, track + 1)
        else:
            groups.append(range(track, track + 1))
    return groups


def timeline_tracks(trace: Trace) -> list[int]:
    """Track with events, in the order in which they are shown."""
    order = (TrackKind.THREAD, TrackKind.GPU_ANNOTATION, TrackKind.GRAPH, TrackKind.STREAM, TrackKind.COUNTER)
    rank = {kind: place for place, kind in enumerate(order)}
    shown = [i for i, t in enumerate(trace.tracks) if t.count]
    return sorted(shown, key=lambda i: (rank[trace.tracks[i].kind], trace.tracks[i].device, trace.tracks[i].order, i))
