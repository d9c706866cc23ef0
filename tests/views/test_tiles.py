"""Tiles: no event is lost on any level, and the longest event of a window is always included."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from visualprof.reader.trace import Category, Trace, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.views.measure.timeline.tiles import TILE_BUCKETS, Tile, counter_buckets, cut_tile, track_groups

_events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20_000), st.integers(-1, 4_000)), min_size=1, max_size=60
)
Rows = list[tuple[int, int, int]]


def trace_of(rows: Rows) -> Trace:
    """Return a trace of events (track, ts, dur) on three tracks, which may overlap."""
    builder = TraceBuilder("made")
    tracks = [builder.track(kind, str(kind)) for kind in (TrackKind.THREAD, TrackKind.STREAM, TrackKind.THREAD)]
    count = len(rows)
    track, ts, dur = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    builder.events(
        ts=ts,
        dur=dur,
        name=np.zeros(count, int),
        category=np.full(count, Category.OP),
        track=np.array(tracks)[track],
        row=np.arange(count),
    )
    return builder.build()


def tiles(trace: Trace, exponent: int) -> tuple[int, list[Tile]]:
    origin, end = trace.span_ns
    tile_count = (end - origin >> exponent) // TILE_BUCKETS + 1
    return origin, [cut_tile(trace, range(len(trace.tracks)), exponent, index) for index in range(tile_count)]


@settings(max_examples=80, deadline=None)
@given(_events, st.integers(0, 16))
def test_every_event_is_counted_once_at_every_level(rows: Rows, exponent: int) -> None:
    trace = trace_of(rows)
    _, entries_by_tile = tiles(trace, exponent)
    assert sum(int(entries.count.sum()) for entries in entries_by_tile) == len(rows)


@settings(max_examples=80, deadline=None)
@given(_events, st.integers(0, 16))
def test_the_longest_event_that_touches_a_tile_is_in_it(rows: Rows, exponent: int) -> None:
    trace = trace_of(rows)
    origin, entries_by_tile = tiles(trace, exponent)
    events = trace.events
    start, end = events.ts - origin, events.end - origin
    for i, entries in enumerate(entries_by_tile):
        low, high = i * TILE_BUCKETS << exponent, (i + 1) * TILE_BUCKETS << exponent
        touching = np.flatnonzero((start < high) & ((end > low) | (start >= low)))
        if len(touching):
            assert events.dur[entries.longest_event].max() == events.dur[touching].max()


@settings(max_examples=80, deadline=None)
@given(_events, st.integers(0, 16))
def test_every_instant_of_every_event_is_covered_on_its_lane(rows: Rows, exponent: int) -> None:
    """Hit testing: at the start and middle of an event there is an entry of its lane."""
    trace = trace_of(rows)
    origin, entries_by_tile = tiles(trace, exponent)
    events = trace.events
    for row in range(len(events)):
        lane = trace.pyramid.lane_of_track[events.track[row]] + events.depth[row]
        for time in {int(events.ts[row]), int(events.ts[row] + max(0, events.dur[row]) // 2)}:
            entries = entries_by_tile[(time - origin >> exponent) // TILE_BUCKETS]
            is_lane = entries.lane == lane
            assert ((entries.start[is_lane] <= time - origin) & (entries.end[is_lane] >= time - origin)).any()


@given(_events)
@settings(max_examples=40, deadline=None)
def test_entries_of_single_events_are_exact(rows: Rows) -> None:
    trace = trace_of(rows)
    origin, entries_by_tile = tiles(trace, 4)
    for entries in entries_by_tile:
        single = entries.count == 1
        np.testing.assert_array_equal(entries.start[single] + origin, trace.events.ts[entries.longest_event[single]])
        np.testing.assert_array_equal(entries.end[single] + origin, trace.events.end[entries.longest_event[single]])


def test_levels_shrink_to_one_entry_per_lane() -> None:
    pyramid = trace_of([(0, i * 10, 5) for i in range(5000)]).pyramid
    sizes = np.diff(np.append(pyramid.first[:, 0], len(pyramid.start))).tolist()
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert sum(sizes) < 5000


def test_tracks_share_a_group_as_long_as_their_lanes_fit() -> None:
    trace = trace_of([(0, 0, 100), (0, 10, 50), (1, 0, 5), (2, 3, 4)])
    assert track_groups(trace) == [range(3)]


def test_counters_keep_extremes_and_the_last_value_of_a_bucket() -> None:
    bucket, values = counter_buckets(np.array([0, 1, 3, 9]), np.array([5.0, 1.0, 2.0, 7.0]), 0, 2)
    assert (bucket.tolist(), values.tolist()) == ([0, 2], [[1.0, 5.0, 2.0], [7.0, 7.0, 7.0]])
