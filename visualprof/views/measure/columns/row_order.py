"""Order the rows of a matrix so that similar rows are adjacent."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.columns.bins import bin_edges

MAX_COLUMNS = 128  # more columns are merged into bins
MAX_DEPTH = 7
POWER_ITERATIONS = 16


def similarity_order(rows: Floats) -> Ints:
    """Return the order of rows (n, s) in which similar rows are neighbors, the largest first. NaN counts as 0.

    Splits the rows by the sign of their first principal component, and each half again. Source:
    principal direction divisive partitioning, Boley 1998.
    """
    values = np.nan_to_num(rows)
    first = bin_edges(values.shape[1], MAX_COLUMNS)[:-1]
    if len(first) < values.shape[1]:
        values = np.add.reduceat(values, first, axis=1)
    return _split(values, np.arange(len(rows)), MAX_DEPTH)


def _split(rows: Floats, indices: Ints, depth: int) -> Ints:
    """Return the order of some rows."""
    if len(indices) < 2:
        return indices
    centered = rows[indices] - rows[indices].mean(axis=0)
    score = centered @ _direction(centered)
    order = np.argsort(-score, kind="stable")
    if not depth or len(indices) < 4 or not score.any():
        return indices[order]
    positive = order[: max(1, int((score > 0).sum()))]
    negative = order[len(positive) :]
    return np.concatenate([_split(rows, indices[np.sort(half)], depth - 1) for half in (positive, negative)])


def _direction(centered: Floats) -> Floats:
    """Return the first principal component (s,); rows with a larger sum are on its positive side."""
    axis = centered[int((centered**2).sum(axis=1).argmax())]
    for _ in range(POWER_ITERATIONS):
        length = float(np.sqrt((axis**2).sum()))
        if not length:
            break
        axis = np.asarray(centered.T @ (centered @ (axis / length)), np.float64)
    return axis * (1 if axis.sum() >= 0 else -1)
