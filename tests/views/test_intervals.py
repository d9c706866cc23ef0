"""Interval arithmetic compared with sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from visualprof.reader import native
from visualprof.views.measure.columns import intervals
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import (
    covered_ns,
    intersect,
    merge,
    positions,
    span_length,
    span_lengths_by_group,
    split_at,
    subtract,
    union,
    unions_by_group,
)

_spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)
Spans = list[tuple[int, int]]


def arrays(spans: Spans) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    start = np.array([a for a, _ in spans], np.int64)
    return start, start + np.array([d for _, d in spans], np.int64)


def points(start: NDArray[np.int64], end: NDArray[np.int64]) -> set[int]:
    return {t for a, b in zip(start, end, strict=True) for t in range(a, b)}


@pytest.fixture(autouse=True, params=["c", "numpy"])
def _native_and_fallback(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test of this file with the functions in C and with those in numpy."""
    if request.param == "numpy":
        monkeypatch.setattr(intervals, "function", lambda *_: None)
    elif native.library() is None:
        pytest.skip("not compiled")


@given(_spans)
def test_union_covers_the_same_points_with_disjoint_ascending_intervals(spans: Spans) -> None:
    start, end = arrays(spans)
    result = union(start, end)
    assert points(result[:, 0], result[:, 1]) == points(start, end)
    assert (result[1:, 0] > result[:-1, 1]).all()
    assert span_length(result) == len(points(start, end))


@given(_spans, _spans)
def test_set_operations_equal_those_of_points(a: Spans, b: Spans) -> None:
    first, second = union(*arrays(a)), union(*arrays(b))
    first_points, second_points = points(*first.T), points(*second.T)
    for operation, expected in (
        (intersect, first_points & second_points),
        (subtract, first_points - second_points),
        (merge, first_points | second_points),
    ):
        result = operation(first, second)
        assert points(*result.T) == expected


@given(_spans, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_unions_and_lengths_by_group_equal_those_of_each_group(spans: Spans, ids: list[int]) -> None:
    start, end = arrays(spans)
    groups = group(np.array(ids[: len(spans)], np.int64))
    expected = [points(start[rows], end[rows]) for rows in groups.members()]
    result = unions_by_group(groups, start, end)
    assert [points(*spans_of_group.T) for spans_of_group in result] == expected
    assert all((spans_of_group[1:, 0] > spans_of_group[:-1, 1]).all() for spans_of_group in result)
    assert span_lengths_by_group(groups.ids, start, end, len(groups.first)).tolist() == list(map(len, expected))


@given(_spans, st.lists(st.integers(-1, 90), max_size=12))
def test_intervals_are_split_at_every_border_without_loss(spans: Spans, borders: list[int]) -> None:
    merged = union(*arrays(spans))
    result = split_at(merged, np.array(borders, np.int64))
    assert points(*result.T) == points(*merged.T)
    assert not any(a < t < b for a, b in result.tolist() for t in borders)
    cuts = {t for t in borders for a, b in merged.tolist() if a < t < b}
    assert len(result) == len(merged) + len(cuts)


@given(_spans, _spans)
def test_covered_counts_the_points_in_each_window(spans: Spans, windows: Spans) -> None:
    result = union(*arrays(spans))
    start, end = arrays(windows)
    inside = points(*result.T)
    assert covered_ns(result, start, end).tolist() == [
        len(inside & set(range(a, b))) for a, b in zip(start, end, strict=True)
    ]


@given(_spans, st.lists(st.integers(-5, 90), max_size=12), st.booleans())
def test_positions_equal_those_of_numpy(spans: Spans, keys: list[int], after_equal: bool) -> None:
    times = np.sort(np.concatenate(arrays(spans)))
    limits = np.iinfo(np.int64)
    searched = np.array([limits.min, *keys, limits.max], np.int64)
    expected = np.searchsorted(times, searched, side="right" if after_equal else "left")
    assert positions(times, searched, after_equal=after_equal).tolist() == expected.tolist()


def test_an_end_before_its_start_is_an_error() -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        union(np.array([5]), np.array([4]))


def test_unix_times_stay_exact_to_the_nanosecond() -> None:
    """A double is exact to the nanosecond for 104 days only."""
    start = np.array([0, 1 << 60, (1 << 60) + 3])
    end = start + np.array([1, 2, 1])
    assert union(start, end).tolist() == np.stack((start, end), axis=1).tolist()
    assert span_lengths_by_group(np.array([1, 0, 0]), start, end, 3).tolist() == [3, 1, 0]
