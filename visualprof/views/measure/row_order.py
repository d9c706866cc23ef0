"""An order in which rows that are alike stand side by side."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.bins import bin_edges

MAX_COLUMNS = 128  # that tell rows apart; more are averaged
MAX_DEPTH = 7
POWER_ITERATIONS = 16  # of the power iteration


def similarity_order(rows: Floats) -> Ints:
    """The order of rows (n, s) in which those with like values are neighbours, the largest first. NaN counts as 0.

    Divides the rows by the sign of their first principal component, and each half again. Source: principal direction
    divisive partitioning, Boley 1998.
    """
    known = np.nan_to_num(rows)
    first = bin_edges(known.shape[1], MAX_COLUMNS)[:-1]
    if len(first) < known.shape[1]:
        known = np.add.reduceat(known, first, axis=1)
    return _divided(known, np.arange(len(rows)), MAX_DEPTH)


def _divided(rows: Floats, at: Ints, depth: int) -> Ints:
    if len(at) < 2:
        return at
    apart = rows[at] - rows[at].mean(axis=0)
    score = apart @ _direction(apart)
    order = np.argsort(-score, kind="stable")
    if not depth or len(at) < 4 or not score.any():
        return at[order]
    high = order[: max(1, int((score > 0).sum()))]
    low = order[len(high) :]
    return np.concatenate([_divided(rows, at[np.sort(half)], depth - 1) for half in (high, low)])


def _direction(apart: Floats) -> Floats:
    """The first principal component (s,); what is larger in sum stands on its positive side."""
    axis = apart[int((apart**2).sum(axis=1).argmax())]
    for _ in range(POWER_ITERATIONS):
        length = float(np.sqrt((axis**2).sum()))
        if not length:
            break
        axis = np.asarray(apart.T @ (apart @ (axis / length)), np.float64)
    return axis * (1 if axis.sum() >= 0 else -1)
