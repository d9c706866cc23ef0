"""Group rows by equal keys, with sums and extremes per group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Floats, Ints, Mask, Rows, Values
from visualprof.reader.trace.order import group_rows

N = TypeVar("N", bound=np.integer[Any])
MAX_KEY_RANGE = 4  # keys are sorted instead of counted if their range exceeds this many times their number


class Groups(msgspec.Struct, frozen=True):
    """Groups of rows.

    Attributes:
        first: (g,) first row of each group.
        ids: (n,) group of each row.
        count: (g,) number of rows in each group.
    """

    first: Ints
    ids: Ints
    count: Ints

    def sum(self, values: Values) -> Ints:
        """Return the sum of a column (n,) per group as int64, limited to 2**62."""
        return np.rint(np.clip(np.bincount(self.ids, values, len(self.first)), -(2.0**62), 2.0**62)).astype(np.int64)

    def mean(self, values: Floats, weight: Values) -> Floats:
        """Return the weighted mean per group over the rows whose value is known (not NaN); NaN without known values."""
        is_known = ~np.isnan(values)
        total = np.bincount(self.ids[is_known], weight[is_known], len(self.first))
        weighted_sum = np.bincount(self.ids[is_known], values[is_known] * weight[is_known], len(self.first))
        return np.where(total > 0, weighted_sum / np.where(total > 0, total, 1), np.nan)

    def deviation(self, values: Values) -> Floats:
        """Return the sample standard deviation per group (n - 1, as pandas and HTA do); NaN for a single value."""
        mean = np.bincount(self.ids, values, len(self.first)) / np.maximum(self.count, 1)
        squares = np.bincount(self.ids, (values - mean[self.ids]) ** 2, len(self.first))
        return np.where(self.count > 1, np.sqrt(squares / np.maximum(self.count - 1, 1)), np.nan)

    def median(self, values: Ints) -> Floats:
        """Return the median per group."""
        order = np.lexsort((values, self.ids))
        first = np.cumsum(self.count) - self.count
        low, high = order[first + (self.count - 1) // 2], order[first + self.count // 2]
        return (values[low] + values[high]) / 2

    def max(self, values: Ints) -> Ints:
        """Return the largest value per group."""
        out = np.full(len(self.first), np.iinfo(np.int64).min)
        np.maximum.at(out, self.ids, values)
        return out

    def min(self, values: Ints) -> Ints:
        """Return the smallest value per group."""
        out = np.full(len(self.first), np.iinfo(np.int64).max)
        np.minimum.at(out, self.ids, values)
        return out

    def largest_rows(self, values: Ints) -> Ints:
        """Return the row of the largest value per group, the first one among equals."""
        rows = np.flatnonzero(values == self.max(values)[self.ids])[::-1]
        out = np.empty(len(self.first), np.int64)
        out[self.ids[rows]] = rows  # reversed, because the last of several assignments wins
        return out

    def distinct(self, values: Rows) -> Ints:
        """Return the number of distinct values >= 0 per group."""
        known_rows = np.flatnonzero(values >= 0)
        ids = self.ids[known_rows]
        return np.bincount(ids[group(ids, values[known_rows]).first], minlength=len(self.first))

    def members(self) -> list[Ints]:
        """Return the rows of each group, ascending."""
        order, first = group_rows(self.ids.astype(np.int32), len(self.first))
        return np.split(order, first[1:-1]) if len(order) else []


def group(*keys: Rows | Mask) -> Groups:
    """Group rows with equal keys, all (n,); the groups are in the order of the keys."""
    code, span = _dense_codes(keys[0])
    for key in keys[1:]:
        key_code, width = _dense_codes(key)
        code, span = _dense_codes(code * width + key_code)
    is_present = np.zeros(span, bool)
    is_present[code] = True
    ids = (np.cumsum(is_present) - 1)[code]
    count = np.bincount(ids)
    first = np.empty(len(count), np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # reversed, because the last of several assignments wins
    return Groups(first, ids, count)


def distinct(key: NDArray[N]) -> NDArray[N]:
    """Return the distinct keys (n,), ascending."""
    key_code, span = _dense_codes(key)
    row = np.full(span, -1, np.int64)  # a row with each key
    row[key_code] = np.arange(len(key))
    return key[row[row >= 0]]


def _dense_codes(key: Rows | Mask) -> tuple[Ints, int]:
    """Return numbers from 0 in the order of the keys, and how many numbers are possible.

    The numbers are contiguous only if the keys are sparse.
    """
    if not len(key):
        return np.zeros(0, np.int64), 0
    if key.dtype == np.bool_:
        key = key.view(np.uint8)
    low, high = int(key.min()), int(key.max())
    if high - low > MAX_KEY_RANGE * len(key):
        values, codes = np.unique(key, return_inverse=True)
        return codes, len(values)
    shifted = (key - key.dtype.type(low)).astype(np.int64)  # in the keys' own type, because addresses use all 64 bits
    return shifted, high - low + 1


def is_in(key: Rows, values: Sequence[int] | Rows) -> Mask:
    """Return, per key (n,) >= -1, whether it is one of some values.

    `np.isin` would load masked arrays (9 ms) and sort.
    """
    value_array = np.asarray(values, np.int64)
    table = np.zeros(int(max(key.max(initial=0), value_array.max(initial=0))) + 2, bool)  # the last entry is that of -1
    table[value_array] = True
    return table[key]
