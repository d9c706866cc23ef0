"""Merge rows and columns of a matrix until it fits on a screen."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Floats, Ints


def bin_edges(count: int, max_bins: int) -> Ints:
    """Return the edges (n + 1,) of at most `max_bins` bins that divide `count` items as equally as possible."""
    bin_count = min(count, max_bins)
    return np.arange(bin_count + 1) * count // max(bin_count, 1)


def merge_bins(values: Floats, row_edges: Ints, column_edges: Ints, mean: bool = False) -> Floats:
    """Return the largest value of each bin, or the mean; NaN where a bin has no known value.

    Args:
        values: (r, c) matrix; NaN is unknown.
        row_edges: Edges of the row bins, as of `bin_edges`.
        column_edges: Edges of the column bins.
        mean: Return means instead of the largest values.
    """
    if not values.size or (len(row_edges) - 1 == len(values) and len(column_edges) - 1 == values.shape[1]):
        return values
    if not mean:
        return np.fmax.reduceat(np.fmax.reduceat(values, row_edges[:-1], axis=0), column_edges[:-1], axis=1)
    is_known = ~np.isnan(values)
    total, count = (
        np.add.reduceat(np.add.reduceat(matrix, row_edges[:-1], axis=0), column_edges[:-1], axis=1)
        for matrix in (np.where(is_known, values, 0.0), is_known.astype(np.float64))
    )
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
