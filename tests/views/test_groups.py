"""Groups of rows by keys, for counted and sorted keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visualprof.views.measure.columns.groups import distinct, group

LAST = 2**64 - 1


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ([3, 1, 3, 2], np.int32),
        ([3, 1_000_000_000, 3, -1_000_000_000], np.int64),  # far apart: sorted
        ([LAST, LAST - 1, LAST], np.uint64),  # memory without an address
        ([LAST, 0, LAST], np.uint64),
        ([255, 0, 255], np.uint8),
        ([True, True], np.bool_),
        ([False, True, False], np.bool_),
        ([], np.int32),
    ],
)
def test_groups_are_in_the_order_of_their_keys(keys: list[int], dtype: type[np.generic]) -> None:
    column: Any = np.array(keys, dtype)
    values, first, ids, count = np.unique(column, return_index=True, return_inverse=True, return_counts=True)
    groups = group(column)
    for actual, expected in (
        (groups.first, first),
        (groups.ids, ids),
        (groups.count, count),
        (distinct(column), values),
    ):
        assert actual.tolist() == expected.tolist()
    assert [rows.tolist() for rows in groups.members()] == [
        np.flatnonzero(ids == i).tolist() for i in range(len(values))
    ]


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.sampled_from([0, 7, 10**12])), max_size=30))
def test_rows_are_grouped_if_all_keys_are_equal(rows: list[tuple[int, bool, int]]) -> None:
    columns: list[Any] = [
        np.array([row[i] for row in rows], dtype) for i, dtype in enumerate((np.int32, np.bool_, np.int64))
    ]
    groups = group(*columns)
    expected = sorted(set(rows))
    assert [rows[i] for i in groups.first.tolist()] == expected
    assert [expected[i] for i in groups.ids.tolist()] == rows
    assert groups.first.tolist() == [rows.index(row) for row in expected]
    values = np.array([a for a, _, _ in rows], np.int64)
    assert groups.distinct(values).tolist() == [int(row[0] >= 0) for row in expected]
    sizes = np.array([c for _, _, c in rows], np.int64)
    assert group(columns[0]).largest_rows(sizes).tolist() == [
        min((i for i, row in enumerate(rows) if row[0] == key), key=lambda i: -rows[i][2])
        for key in sorted({a for a, _, _ in rows})
    ]
