"""Work on columns: compiled functions, their twins in Python and what follows from the definition are the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple
from numpy.typing import NDArray

from visualprof.reader import native
from visualprof.reader.trace import NO_ADDRESS, Ids, Ints
from visualprof.reader.trace.allocs import next_event_at_address
from visualprof.reader.trace.nesting import MAX_SINGLE_STEPS, innermost_at, innermost_on_tracks, nearest_ancestor, nest
from visualprof.reader.trace.order import group_rows, sort_events, sort_unique
from visualprof.reader.trace.pyramid import LEVEL_STEP, MAX_SIZE_RATIO, Pyramid, build_pyramid
from visualprof.reader.trace.step_attribution import _steps_at_times  # pyright: ignore[reportPrivateUsage]

TRACKS = 3
Result = TypeVar("Result")
Event = tuple[int, int, int]


def in_python(work: Callable[[], Result]) -> Result:
    """Compute without the native library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: None)
        native.function.cache_clear()
        try:
            return work()
        finally:
            native.function.cache_clear()


def both(work: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Compute with and without the native library; both results must be equal, including the type."""
    compiled, twin = work(), in_python(work)
    for a, b in zip(compiled, twin, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    return compiled


@st.composite
def some_events(draw: st.DrawFn) -> list[Event]:
    """(ts, dur, track) of events that nest, overlap, touch or start together; some are instants (-1) or last 0 ns."""
    longest = draw(st.sampled_from([3, 30, 1000, 10**15]))
    origin = draw(st.sampled_from([0, -(10**18), 4 * 10**18]))
    starts, lengths = st.integers(origin, origin + longest), st.integers(-1, longest)
    return draw(st.lists(st.tuples(starts, lengths, st.integers(0, TRACKS - 1)), max_size=40))


def columns_of(events: list[Event]) -> tuple[Ints, Ints, Ids]:
    """ts, dur, track."""
    table = np.array(events, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.int32)


def nested(events: list[Event]) -> tuple[list[Event], Ints, Ids, NDArray[np.uint16]]:
    """Events in order, the slices of the tracks, parent and depth."""
    ts, dur, track = columns_of(sorted(events, key=lambda e: (e[2], e[0], -e[1])))
    first = np.searchsorted(track, np.arange(TRACKS + 1))
    parent, depth = both(lambda: nest(ts, ts + np.maximum(dur, 0), first))
    return list(zip(ts.tolist(), dur.tolist(), track.tolist(), strict=True)), first, parent, depth


@given(some_events())
def test_events_are_ordered_by_track_and_time_the_longer_first(events: list[Event]) -> None:
    ts, dur, track = columns_of(events)
    order, first = both(lambda: sort_events(ts, dur, track, TRACKS))
    assert order.tolist() == sorted(range(len(events)), key=lambda i: (events[i][2], events[i][0], -events[i][1]))
    assert first.tolist() == [sum(e[2] < t for e in events) for t in range(TRACKS + 1)]


@given(st.lists(st.integers(0, 5)), st.sampled_from([6, 70_000]))
def test_grouping_keeps_the_order_of_rows(groups: list[int], number: int) -> None:
    order, first = both(lambda: group_rows(np.array(groups, np.int32), number))
    assert order.tolist() == sorted(range(len(groups)), key=groups.__getitem__)
    assert first[:7].tolist() == [sum(g < i for g in groups) for i in range(7)]


@given(st.lists(st.integers(-1, 30)) | st.lists(st.integers(0, 30), unique=True))
def test_numbers_ascend_with_their_places(numbers: list[int]) -> None:
    ascending, order = both(lambda: sort_unique(np.array(numbers, np.int32), 31))
    assert order.tolist() == sorted((i for i, n in enumerate(numbers) if n >= 0), key=numbers.__getitem__)
    assert ascending.tolist() == sorted(n for n in numbers if n >= 0)


@given(some_events())
@example([(0, 10, 0), (5, 10, 0), (6, 2, 0), (12, 1, 0)])
def test_the_innermost_event_that_contains_another_is_its_parent(events: list[Event]) -> None:
    rows, _, parent, depth = nested(events)
    closed = [ts + max(dur, 1) for ts, dur, _ in rows]  # an instant is open for 1 ns
    for i, (ts, _, track) in enumerate(rows):
        before = [j for j in range(i) if rows[j][2] == track and closed[j] > ts]
        around = [j for j in before if closed[j] >= closed[i]]
        assert parent[i] == (around[-1] if around else -1)
        lane = int(depth[around[-1]]) + 1 if around else 0
        assert depth[i] == min(set(range(lane, lane + len(rows) + 1)) - {int(depth[j]) for j in before})


def test_lanes_past_the_last_share_it() -> None:
    n = 66_000  # each begins before the one before it ends and outlives it
    ts = np.arange(n)
    parent, depth = both(lambda: nest(ts, ts + n, np.array([0, n])))
    assert (parent == -1).all()
    assert depth.tolist() == [*range(65_536), *[65_535] * (n - 65_536)]


def test_a_free_lane_is_reused() -> None:
    # a 0-10, b 5-15 beside it, c 6-8 in b below it, d 11-20 where a was
    parent, depth = both(lambda: nest(np.array([0, 5, 6, 11]), np.array([10, 15, 8, 20]), np.array([0, 4])))
    assert parent.tolist() == [-1, -1, 1, -1]
    assert depth.tolist() == [0, 1, 2, 0]


@given(some_events())
def test_a_level_has_an_entry_for_each_bucket_in_which_events_of_a_lane_start(events: list[Event]) -> None:
    rows, first, _, depth = nested(events)
    ts, dur, track = columns_of(rows)
    end = ts + np.maximum(dur, 0)
    pyramid = Pyramid(*both(lambda: astuple(build_pyramid(ts, end, dur, depth, first))))
    lanes: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row in range(len(rows)):
        lanes[int(track[row]), int(depth[row])].append(row)
    assert list(zip(pyramid.lane_track.tolist(), pyramid.lane_depth.tolist(), strict=True)) == sorted(lanes)
    assert pyramid.order.tolist() == [row for lane in sorted(lanes) for row in lanes[lane]]
    count, origin = len(rows), min(ts.tolist(), default=0)
    for k, exponent in enumerate(pyramid.exponent.tolist()):
        entries: list[tuple[int, int, int, int]] = []
        for i, lane in enumerate(sorted(lanes)):
            buckets: defaultdict[int, list[int]] = defaultdict(list)
            for row in lanes[lane]:
                buckets[(rows[row][0] - origin) >> exponent].append(row)
            assert pyramid.first[k, i + 1] - pyramid.first[k, i] == len(buckets)
            entries += [
                (rows[b[0]][0] - origin, max(end[b].tolist()) - origin, len(b), max(b, key=lambda r: (rows[r][1], -r)))
                for b in buckets.values()
            ]
        at = slice(int(pyramid.first[k, 0]), int(pyramid.first[k, -1]))
        columns = (pyramid.start, pyramid.end, pyramid.count, pyramid.longest)
        assert list(zip(*(c[at].tolist() for c in columns), strict=True)) == entries
        assert exponent % LEVEL_STEP == 0
        assert len(entries) <= MAX_SIZE_RATIO * count or len(entries) == len(lanes)
        count = len(entries)


@given(some_events(), st.lists(st.tuples(st.integers(-1, TRACKS - 1), st.integers(-2, 40)), max_size=20))
def test_the_innermost_event_is_the_last_started_one_that_covers_the_time(
    events: list[Event], places: list[tuple[int, int]]
) -> None:
    rows, first, parent, _ = nested([e for e in events if 0 <= e[0] <= 30])
    ts, dur, _ = columns_of(rows)
    innermost = innermost_on_tracks(
        ts,
        ts + np.maximum(dur, 0),
        parent,
        first,
        np.array([t for t, _ in places], np.int32),
        np.array([time for _, time in places], np.int64),
    )
    for (track, time), row in zip(places, innermost.tolist(), strict=True):
        at = max((i for i, e in enumerate(rows) if e[2] == track and e[0] <= time), default=-1)
        while at >= 0 and rows[at][0] + max(rows[at][1], 0) < time:
            at = int(parent[at])
        assert row == at


@given(st.lists(st.integers(0, 60)), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1))
def test_a_time_belongs_to_the_last_started_step_until_it_ends(times: list[int], steps: list[tuple[int, int]]) -> None:
    start, dur = np.array(sorted(steps), np.int64).T
    (held,) = both(lambda: (_steps_at_times(np.array(times, np.int64), start, start + dur),))
    for time, step in zip(times, held.tolist(), strict=True):
        last = sum(int(s) <= time for s in start) - 1
        assert step == (last if last >= 0 and time < start[last] + dur[last] else -1)


@pytest.mark.parametrize("depth", [3, MAX_SINGLE_STEPS, MAX_SINGLE_STEPS + 1, 1000])
def test_deep_stacks_are_climbed(depth: int) -> None:
    # event i of the stack is open from i to 3 depth - i; two more follow at its end: all but one are closed then
    ts, end = np.arange(depth), 3 * depth - np.arange(depth)
    first = np.array([0, depth])
    parent, _ = nest(ts, end, first)
    assert parent.tolist() == list(range(-1, depth - 1))
    times = np.array([-1, 0, depth, 2 * depth + 1, 2 * depth + 2, 3 * depth, 3 * depth + 1])
    assert innermost_at(ts, end, parent, 0, depth, times).tolist() == [-1, 0, depth - 1, depth - 1, depth - 2, 0, -1]
    wanted = np.isin(ts, [1, depth - 1])
    few = np.array([-1, 0, 1, depth - 2, depth - 1])
    ancestors = nearest_ancestor(parent, wanted, few)
    assert ancestors.tolist() == [-1, -1, 1, 1, depth - 1]
    all_at_once = nearest_ancestor(parent, wanted, np.append(ts, few))  # of so many rows every event is asked once
    assert all_at_once.tolist() == [-1, *[1] * (depth - 2), depth - 1, *ancestors.tolist()]
    assert (nearest_ancestor(parent, np.zeros(depth, bool), ts) == -1).all()


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=40))
def test_nearest_ancestors_equal_those_found_by_climbing(events: list[tuple[int, bool]]) -> None:
    parent = np.array([max(-1, i - back) for i, (back, _) in enumerate(events)], np.int32)
    wanted = np.array([good for _, good in events], bool)
    rows = np.arange(-1, len(events), dtype=np.int32)
    (ancestors,) = both(lambda: (nearest_ancestor(parent, wanted, rows),))
    for row, nearest in zip(rows.tolist(), ancestors.tolist(), strict=True):
        while row >= 0 and not wanted[row]:
            row = int(parent[row])
        assert nearest == row


_places = st.tuples(st.sampled_from([0, 1, 512, 1 << 48, 2**63, NO_ADDRESS - 1, NO_ADDRESS]), st.integers(-1, 1))


@given(st.lists(_places, max_size=40))
def test_the_next_event_at_an_address_is_the_first_later_one(places: list[tuple[int, int]]) -> None:
    addr, device = np.array([a for a, _ in places], np.uint64), np.array([d for _, d in places], np.int32)
    (after,) = both(lambda: (next_event_at_address(addr, device),))
    later = [next((j for j in range(i + 1, len(places)) if places[j] == at), -1) for i, at in enumerate(places)]
    assert after.tolist() == [-1 if at[0] == NO_ADDRESS else j for at, j in zip(places, later, strict=True)]
