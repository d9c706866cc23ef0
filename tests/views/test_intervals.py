"""Interval arithmetic against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from visualprof.views.measure.intervals import covered, intersect, length, merge, subtract, union

_spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)
Spans = list[tuple[int, int]]


def arrays(spans: Spans) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    start = np.array([a for a, _ in spans], np.int64)
    return start, start + np.array([d for _, d in spans], np.int64)


def points(start: NDArray[np.int64], end: NDArray[np.int64]) -> set[int]:
    return {t for a, b in zip(start, end, strict=True) for t in range(a, b)}


@given(_spans)
def test_union_covers_the_same_points_with_disjoint_ascending_intervals(spans: Spans) -> None:
    start, end = arrays(spans)
    found = union(start, end)
    assert points(found[:, 0], found[:, 1]) == points(start, end)
    assert (found[1:, 0] > found[:-1, 1]).all()
    assert length(found) == len(points(start, end))


@given(_spans, _spans)
def test_set_operations_equal_those_of_points(a: Spans, b: Spans) -> None:
    one, two = union(*arrays(a)), union(*arrays(b))
    p, q = points(*one.T), points(*two.T)
    for operation, expected in ((intersect, p & q), (subtract, p - q), (merge, p | q)):
        found = operation(one, two)
        assert points(*found.T) == expected


@given(_spans, _spans)
def test_covered_counts_the_points_in_each_window(spans: Spans, windows: Spans) -> None:
    found = union(*arrays(spans))
    start, end = arrays(windows)
    inside = points(*found.T)
    assert covered(found, start, end).tolist() == [
        len(inside & set(range(a, b))) for a, b in zip(start, end, strict=True)
    ]


def test_an_end_before_its_start_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        union(np.array([5]), np.array([4]))
