"""Rows grouped by equal keys, with the sums and extremes of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Floats, Ints, Mask, Rows, Values
from visualprof.reader.trace.order import group_rows

N = TypeVar("N", bound=np.integer[Any])
MAX_KEY_RANGE = 4  # keys of a larger range than so many times their number are sorted, not counted


class Groups(msgspec.Struct, frozen=True):
    """first: (g,) a member row of each group. of: (n,) group of each row. count: (g,) rows in each."""

    first: Ints
    ids: Ints
    count: Ints

    def sum(self, values: Values) -> Ints:
        """Sum of a column (n,) in each group, as int64; one of absurd values ends at 2**62."""
        return np.rint(np.clip(np.bincount(self.ids, values, len(self.first)), -(2.0**62), 2.0**62)).astype(np.int64)

    def mean(self, values: Floats, weight: Values) -> Floats:
        """Weighted mean in each group over the rows where the value is known (not NaN); NaN where none is."""
        known = ~np.isnan(values)
        total = np.bincount(self.ids[known], weight[known], len(self.first))
        summed = np.bincount(self.ids[known], values[known] * weight[known], len(self.first))
        return np.where(total > 0, summed / np.where(total > 0, total, 1), np.nan)

    def deviation(self, values: Values) -> Floats:
        """Sample standard deviation in each group (n - 1, as pandas and HTA); NaN where there is one value."""
        mean = np.bincount(self.ids, values, len(self.first)) / np.maximum(self.count, 1)
        squares = np.bincount(self.ids, (values - mean[self.ids]) ** 2, len(self.first))
        return np.where(self.count > 1, np.sqrt(squares / np.maximum(self.count - 1, 1)), np.nan)

    def median(self, values: Ints) -> Floats:
        """Median in each group."""
        order = np.lexsort((values, self.ids))
        first = np.cumsum(self.count) - self.count
        low, high = order[first + (self.count - 1) // 2], order[first + self.count // 2]
        return (values[low] + values[high]) / 2

    def max(self, values: Ints) -> Ints:
        """Largest value in each group."""
        out = np.full(len(self.first), np.iinfo(np.int64).min)
        np.maximum.at(out, self.ids, values)
        return out

    def min(self, values: Ints) -> Ints:
        """Smallest value in each group."""
        out = np.full(len(self.first), np.iinfo(np.int64).max)
        np.minimum.at(out, self.ids, values)
        return out

    def largest_rows(self, values: Ints) -> Ints:
        """The row of the largest value in each group, the first one of several."""
        rows = np.flatnonzero(values == self.max(values)[self.ids])[::-1]
        out = np.empty(len(self.first), np.int64)
        out[self.ids[rows]] = rows  # of several assignments the last one stays
        return out

    def distinct(self, values: Rows) -> Ints:
        """Number of distinct values >= 0 in each group."""
        known = np.flatnonzero(values >= 0)
        of = self.ids[known]
        return np.bincount(of[group(of, values[known]).first], minlength=len(self.first))

    def members(self) -> list[Ints]:
        """The rows of each group, ascending."""
        order, first = group_rows(self.ids.astype(np.int32), len(self.first))
        return np.split(order, first[1:-1]) if len(order) else []


def group(*keys: Rows | Mask) -> Groups:
    """Groups of rows with equal keys, all (n,), in order of the keys."""
    code, span = _from_zero(keys[0])
    for key in keys[1:]:
        place, width = _from_zero(key)
        code, span = _from_zero(code * width + place)
    there = np.zeros(span, bool)
    there[code] = True
    of = (np.cumsum(there) - 1)[code]
    count = np.bincount(of)
    first = np.empty(len(count), np.int64)
    first[of[::-1]] = np.arange(len(of) - 1, -1, -1)  # of several assignments the last one stays
    return Groups(first, of, count)


def distinct(key: NDArray[N]) -> NDArray[N]:
    """The distinct ones of some keys (n,), ascending."""
    place, span = _from_zero(key)
    row = np.full(span, -1, np.int64)  # one that has each key
    row[place] = np.arange(len(key))
    return key[row[row >= 0]]


def _from_zero(key: Rows | Mask) -> tuple[Ints, int]:
    """Numbers from 0 in the order of the keys, and how many are possible; their places where few of them are."""
    if not len(key):
        return np.zeros(0, np.int64), 0
    if key.dtype == np.bool_:
        key = key.view(np.uint8)
    low, high = int(key.min()), int(key.max())
    if high - low > MAX_KEY_RANGE * len(key):
        values, of = np.unique(key, return_inverse=True)
        return of, len(values)
    at = (key - key.dtype.type(low)).astype(np.int64)  # in their own type: addresses take all of 64 bits
    return at, high - low + 1


def is_in(key: Rows, wanted: Sequence[int] | Rows) -> Mask:
    """Of each key (n,) of at least -1: is it one of some others? `np.isin` loads masked arrays, 9 ms, and sorts."""
    chosen = np.asarray(wanted, np.int64)
    table = np.zeros(int(max(key.max(initial=0), chosen.max(initial=0))) + 2, bool)  # the last one is that of -1
    table[chosen] = True
    return table[key]
