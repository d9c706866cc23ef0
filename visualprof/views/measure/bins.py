"""Rows and columns of a matrix merged until they fit on a screen."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Floats, Ints


def bin_edges(count: int, max_bins: int) -> Ints:
    """Borders (n + 1,) of at most so many stretches of equal length, give or take one, of `count` things."""
    some = min(count, max_bins)
    return np.arange(some + 1) * count // max(some, 1)


def merge_bins(values: Floats, row_edges: Ints, column_edges: Ints, mean: bool = False) -> Floats:
    """The largest value of each bin, or the mean; NaN where nothing is known. rows, columns: borders of the bins."""
    if not values.size or (len(row_edges) - 1 == len(values) and len(column_edges) - 1 == values.shape[1]):
        return values
    if not mean:
        return np.fmax.reduceat(np.fmax.reduceat(values, row_edges[:-1], axis=0), column_edges[:-1], axis=1)
    known = ~np.isnan(values)
    summed, count = (
        np.add.reduceat(np.add.reduceat(each, row_edges[:-1], axis=0), column_edges[:-1], axis=1)
        for each in (np.where(known, values, 0.0), known.astype(np.float64))
    )
    return np.where(count > 0, summed / np.maximum(count, 1), np.nan)
