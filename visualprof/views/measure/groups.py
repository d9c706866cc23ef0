"""Rows grouped by equal keys, with the sums and extremes of a column."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask, Rows, Values


class Groups(msgspec.Struct, frozen=True):
    """first: (g,) a member row of each group. of: (n,) group of each row. count: (g,) rows in each."""

    first: Ints
    of: Ints
    count: Ints

    def sum(self, values: Values) -> Ints:
        """Sum of a column (n,) in each group, as int64; one of absurd values ends at 2**62."""
        return np.rint(np.clip(np.bincount(self.of, values, len(self.first)), -(2.0**62), 2.0**62)).astype(np.int64)

    def mean(self, values: Floats, weight: Values) -> Floats:
        """Weighted mean in each group over the rows where the value is known (not NaN); NaN where none is."""
        known = ~np.isnan(values)
        total = np.bincount(self.of[known], weight[known], len(self.first))
        summed = np.bincount(self.of[known], values[known] * weight[known], len(self.first))
        return np.where(total > 0, summed / np.where(total > 0, total, 1), np.nan)

    def deviation(self, values: Values) -> Floats:
        """Sample standard deviation in each group (n - 1, as pandas and HTA); NaN where there is one value."""
        mean = np.bincount(self.of, values, len(self.first)) / np.maximum(self.count, 1)
        squares = np.bincount(self.of, (values - mean[self.of]) ** 2, len(self.first))
        return np.where(self.count > 1, np.sqrt(squares / np.maximum(self.count - 1, 1)), np.nan)

    def max(self, values: Ints) -> Ints:
        """Largest value in each group."""
        out = np.full(len(self.first), np.iinfo(np.int64).min)
        np.maximum.at(out, self.of, values)
        return out

    def min(self, values: Ints) -> Ints:
        """Smallest value in each group."""
        out = np.full(len(self.first), np.iinfo(np.int64).max)
        np.minimum.at(out, self.of, values)
        return out

    def distinct(self, values: Rows) -> Ints:
        """Number of distinct values >= 0 in each group."""
        known = values >= 0
        pairs = np.unique(np.stack((self.of[known], values[known].astype(np.int64))), axis=1)
        return np.bincount(pairs[0].astype(np.int64), minlength=len(self.first))


def group(*keys: Rows | Mask) -> Groups:
    """Groups of rows with equal keys, all (n,), in order of the keys."""
    if len(keys) == 1:
        _, first, of, count = np.unique(keys[0], return_index=True, return_inverse=True, return_counts=True)
        return Groups(first, of, count)
    code = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        values, place = np.unique(key, return_inverse=True)
        _, code = np.unique(code * (len(values) + 1) + place, return_inverse=True)
    return group(code)
