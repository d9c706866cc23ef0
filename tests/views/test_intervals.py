"""Interval arithmetic against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from visualprof.reader import native
from visualprof.views.measure import intervals
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import (
    covered_ns,
    intersect,
    merge,
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
def _compiled_and_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of this file holds of the functions in C and of those without a compiler."""
    if request.param == "numpy":
        monkeypatch.setattr(intervals, "function", lambda *_: None)
    elif native.library() is None:
        pytest.skip("not compiled")


@given(_spans)
def test_union_covers_the_same_points_with_disjoint_ascending_intervals(spans: Spans) -> None:
    start, end = arrays(spans)
    found = union(start, end)
    assert points(found[:, 0], found[:, 1]) == points(start, end)
    assert (found[1:, 0] > found[:-1, 1]).all()
    assert span_length(found) == len(points(start, end))


@given(_spans, _spans)
def test_set_operations_equal_those_of_points(a: Spans, b: Spans) -> None:
    one, two = union(*arrays(a)), union(*arrays(b))
    p, q = points(*one.T), points(*two.T)
    for operation, expected in ((intersect, p & q), (subtract, p - q), (merge, p | q)):
        found = operation(one, two)
        assert points(*found.T) == expected


@given(_spans, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_unions_and_lengths_of_groups_are_those_of_each(spans: Spans, of: list[int]) -> None:
    start, end = arrays(spans)
    groups = group(np.array(of[: len(spans)], np.int64))
    expected = [points(start[rows], end[rows]) for rows in groups.members()]
    found = unions_by_group(groups, start, end)
    assert [points(*one.T) for one in found] == expected
    assert all((one[1:, 0] > one[:-1, 1]).all() for one in found)
    assert span_lengths_by_group(groups.ids, start, end, len(groups.first)).tolist() == list(map(len, expected))


@given(_spans, st.lists(st.integers(-1, 90), max_size=12))
def test_pieces_are_cut_at_every_border_and_lose_nothing(spans: Spans, borders: list[int]) -> None:
    whole = union(*arrays(spans))
    found = split_at(whole, np.array(borders, np.int64))
    assert points(*found.T) == points(*whole.T)
    assert not any(a < t < b for a, b in found.tolist() for t in borders)
    cuts = {t for t in borders for a, b in whole.tolist() if a < t < b}
    assert len(found) == len(whole) + len(cuts)


@given(_spans, _spans)
def test_covered_counts_the_points_in_each_window(spans: Spans, windows: Spans) -> None:
    found = union(*arrays(spans))
    start, end = arrays(windows)
    inside = points(*found.T)
    assert covered_ns(found, start, end).tolist() == [
        len(inside & set(range(a, b))) for a, b in zip(start, end, strict=True)
    ]


def test_an_end_before_its_start_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        union(np.array([5]), np.array([4]))


def test_epoch_times_lose_no_nanosecond() -> None:
    """A double holds every nanosecond of 104 days, and no more."""
    start = np.array([0, 1 << 60, (1 << 60) + 3])
    end = start + np.array([1, 2, 1])
    assert union(start, end).tolist() == np.stack((start, end), axis=1).tolist()
    assert span_lengths_by_group(np.array([1, 0, 0]), start, end, 3).tolist() == [3, 1, 0]
