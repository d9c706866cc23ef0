"""Tiles of a timeline: the visible part of a window at one bucket per pixel, cut from the trace's pyramid."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Ids, Ints, Rows, Trace, TrackKind
from visualprof.reader.trace.pyramid import index_of_longest
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.replay.path_pieces import PathPieces
from visualprof.views.measure.timeline.counter_tracks import CounterTrack

TILE_BUCKETS = 256
MAX_GROUP_LANES = 10
TILE_MAGIC, COUNTER_MAGIC = 0x31545056, 0x31435056  # "VPT1", "VPC1"


class Tile(msgspec.Struct, frozen=True):
    """Entries of one tile, all (n,), sorted by lane and start.

    Attributes:
        lane: Lane of the pyramid.
        start: ns since the trace's first event.
        end: ns since the trace's first event.
        count: Events that start in the bucket; 0 for an entry that began before the tile.
        longest_event: Row of the longest of them.
    """

    lane: Ids
    start: Ints
    end: Ints
    count: Ids
    longest_event: Ids


def cut_tile(trace: Trace, tracks: range, exponent: int, index: int) -> Tile:
    """Return one tile of some neighboring tracks.

    Args:
        trace: The trace.
        tracks: Rows of the trace's tracks.
        exponent: Level; a bucket has 2**exponent ns, a tile TILE_BUCKETS buckets.
        index: Number of the tile since the first event.
    """
    pyramid = trace.pyramid
    level = int(np.searchsorted(pyramid.exponent, exponent, side="right")) - 1
    start_ns, end_ns = index * TILE_BUCKETS << exponent, (index + 1) * TILE_BUCKETS << exponent
    first_lane, last_lane = int(pyramid.lane_of_track[tracks.start]), int(pyramid.lane_of_track[tracks.stop])
    slices = pyramid.order_first if level < 0 else pyramid.first[level]
    cut_lane = _cut_single_events if level < 0 else _cut_level_entries
    columns = [
        cut_lane(trace, lane, int(slices[lane]), int(slices[lane + 1]), start_ns, end_ns)
        for lane in range(first_lane, last_lane)
    ]
    if not columns:
        empty = np.zeros(0, np.int64)
        return Tile(empty.astype(np.int32), empty, empty, empty.astype(np.int32), empty.astype(np.int32))
    entries = Tile(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    is_exact = level >= 0 and int(pyramid.exponent[level]) == exponent
    return entries if is_exact or not len(entries.start) else _merge_buckets(entries, exponent, trace.events.dur)


def _cut_single_events(
    trace: Trace, lane: int, first: int, last: int, low: int, high: int
) -> tuple[Ids, Ints, Ints, Ids, Ids]:
    """Return single events of a lane."""
    events, (origin, _) = trace.events, trace.span_ns
    rows = trace.pyramid.order[first:last]
    first_inside, end_inside = (bisect_left(rows, border + origin, key=events.ts.__getitem__) for border in (low, high))
    reaches_in = (
        first_inside > 0
        and events.ts[rows[first_inside - 1]] + max(0, events.dur[rows[first_inside - 1]]) > low + origin
    )
    tile_rows = rows[first_inside - reaches_in : end_inside]
    start = events.ts[tile_rows] - origin
    count = np.ones(len(tile_rows), np.int32)
    count[: int(reaches_in)] = 0
    return (
        np.full(len(tile_rows), lane, np.int32),
        start,
        start + np.maximum(events.dur[tile_rows], 0),
        count,
        tile_rows,
    )


def _cut_level_entries(
    trace: Trace, lane: int, first: int, last: int, low: int, high: int
) -> tuple[Ids, Ints, Ints, Ids, Ids]:
    """Return entries of a lane on one level of the pyramid."""
    pyramid = trace.pyramid
    starts = pyramid.start[first:last]
    first_inside, end_inside = first + int(np.searchsorted(starts, low)), first + int(np.searchsorted(starts, high))
    reaches_in = first_inside > first and int(pyramid.end[first_inside - 1]) > low
    entries = slice(first_inside - reaches_in, end_inside)
    count = np.array(pyramid.count[entries])
    count[: int(reaches_in)] = 0
    return (
        np.full(len(count), lane, np.int32),
        pyramid.start[entries],
        pyramid.end[entries],
        count,
        pyramid.longest[entries],
    )


def _merge_buckets(entries: Tile, exponent: int, duration: Ints) -> Tile:
    """Return the entries of a tile merged into its buckets; an entry that began before the tile stays separate."""
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
    """Return the bucket and the values of each group of samples of a counter in a tile.

    Values are (n, 3): smallest, largest and last.

    Args:
        ts: (n,) ns, ascending, inside the tile.
        value: (n,) values.
        low: Start of the tile, ns.
        exponent: Level of the tile.
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
    """Return a tile for the web UI, little-endian.

    - u32 magic, u32 n
    - columns of n, each padded to a multiple of 4 bytes: f32 start, f32 end (buckets from the
      tile's start, clipped to -1 .. 257), u32 event, u32 name, u32 count, u16 lane (in the group),
      u8 category
    """
    entries = cut_tile(trace, tracks, level, index)
    lane, events = entries.lane - int(trace.pyramid.lane_of_track[tracks.start]), trace.events
    event_columns = (entries.longest_event, events.name[entries.longest_event], events.category[entries.longest_event])
    return _pack(entries, lane, event_columns, level, index)


def counter_bytes(origin: int, counter: CounterTrack, level: int, index: int) -> bytes:
    """Return a tile of a counter, little-endian.

    - u32 magic, u32 n, f32 value before the tile (NaN: none), u32 0
    - columns of n: f32 bucket, f32 smallest, f32 largest, f32 last value

    Args:
        origin: First ns of the trace.
        counter: The counter.
        level: Exponent of the bucket width.
        index: Number of the tile.
    """
    start_ns = origin + (index * TILE_BUCKETS << level)
    first, stop = np.searchsorted(counter.ts, (start_ns, start_ns + (TILE_BUCKETS << level)))
    bucket, values = counter_buckets(counter.ts[first:stop], counter.value[first:stop], start_ns, level)
    value_before = float(counter.value[first - 1]) if first > 0 else float("nan")
    columns = [bucket.astype("<f4"), *(values[:, i].astype("<f4") for i in range(3))]
    return struct.pack("<IIfI", COUNTER_MAGIC, len(bucket), value_before, 0) + b"".join(
        column.tobytes() for column in columns
    )


def path_tile_bytes(trace: Trace, pieces: PathPieces, exponent: int, index: int) -> bytes:
    """Return a tile of a path in the format of `tile_bytes`; pieces that begin in one bucket of a track are one entry.

    - lane: the track
    - event: row of device work, otherwise the number of events
    - name: lane of the event in the track
    - count: number of pieces
    """
    start_ns, end_ns = index * TILE_BUCKETS << exponent, (index + 1) * TILE_BUCKETS << exponent
    origin, empty = trace.span_ns[0], np.zeros(0, np.int64)
    rows = np.concatenate(
        [
            empty,
            *(_pieces_in_window(pieces, track, start_ns + origin, end_ns + origin) for track in distinct(pieces.track)),
        ]
    )
    start, end = pieces.start[rows] - origin, pieces.end[rows] - origin
    entries = Tile(pieces.track[rows], start, end, (start >= start_ns).astype(np.int32), rows.astype(np.int32))
    if len(rows):
        entries = _merge_buckets(entries, exponent, pieces.end - pieces.start)
    event = pieces.event[entries.longest_event]
    depth = np.where(event >= 0, trace.events.depth[event], 0)
    event = np.where(event >= 0, event, len(trace.events))
    return _pack(entries, entries.lane, (event, depth, np.zeros(len(event), np.int64)), exponent, index)


def _pieces_in_window(pieces: PathPieces, track: int, low: int, high: int) -> Ints:
    """Return the pieces of a track that begin in [low, high), and the one before if it reaches into the window."""
    first, last = np.searchsorted(pieces.track, (track, track + 1))
    first_inside, end_inside = (
        int(first) + int(np.searchsorted(pieces.start[first:last], border)) for border in (low, high)
    )
    reaches_in = first_inside > first and int(pieces.end[first_inside - 1]) > low
    return np.arange(first_inside - reaches_in, end_inside)


def _pack(entries: Tile, lane: Ids, event_columns: Sequence[Rows], exponent: int, index: int) -> bytes:
    """Return entries with their event, name and category as bytes."""
    tile_start, width = index * TILE_BUCKETS << exponent, float(1 << exponent)
    start, end = (
        np.clip((times - tile_start) / width, -1, TILE_BUCKETS + 1).astype("<f4")
        for times in (entries.start, entries.end)
    )
    event, name, category = event_columns
    columns = (
        start,
        end,
        event.astype("<u4"),
        name.astype("<u4"),
        entries.count.astype("<u4"),
        lane.astype("<u2"),
        category.astype("u1"),
    )
    return struct.pack("<II", TILE_MAGIC, len(start)) + b"".join(_pad_to_4(column.tobytes()) for column in columns)


def _pad_to_4(data: bytes) -> bytes:
    """Return data padded to a multiple of 4 bytes."""
    return data + b"\0" * (-len(data) % 4)


def track_groups(trace: Trace) -> list[range]:
    """Return neighboring tracks that share tiles: at most MAX_GROUP_LANES lanes together, or a single track."""
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
    """Return the tracks with events, in the order in which they are shown."""
    order = (TrackKind.THREAD, TrackKind.GPU_ANNOTATION, TrackKind.GRAPH, TrackKind.STREAM, TrackKind.COUNTER)
    rank = {kind: position for position, kind in enumerate(order)}
    with_events = [track_row for track_row, track in enumerate(trace.tracks) if track.count]
    return sorted(
        with_events,
        key=lambda track_row: (
            rank[trace.tracks[track_row].kind],
            trace.tracks[track_row].device,
            trace.tracks[track_row].order,
            track_row,
        ),
    )
