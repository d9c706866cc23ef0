"""Change or noise: of a step, and of many rows at once. Measured with benchmarks/noise.py; docs/diff.md says why so.

Steps of one run resemble their neighbours, and all kernels of a run share its clock. A test that takes them for
independent finds changes between two recordings of one script.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.significance import outside, quantile

LEAST_STEPS = 5  # on each side; with fewer nothing can be told
LEAST_CHANGE = 0.03  # what clocks alone may do between two runs of one program
LEAST_SHARE = 0.0005  # of the step
CHANCE = 0.01  # of the step's interval
FALSE_DISCOVERIES = 0.05  # among the rows that are called changed
CLIPPED_AT = 2.5  # standard deviations, as the median deviation tells them
FEW = 5.0
MOST_ALIKE = 0.9
MOST_DETECTABLE = 3.0  # logarithm: what is seen from 20 times on is not seen
COMMON_ROWS = 40  # the largest, whose median is what all of them share
FEWEST_COMMON = 8  # with fewer the median may be the very row that changed
MOST_DRIFT = 0.1  # a common change beyond that is no drift of clocks

Matrix = NDArray[np.float64]


class StepChange(NamedTuple):
    """ratio: of the typical step, new / base - 1. low, high: its 99 % interval. detectable: half of that."""

    low: float
    high: float
    significant: bool
    detectable: float


class RowChanges(NamedTuple):
    """significant: (r,). drift: what all rows of the device share, new / base - 1. detectable: of a typical row."""

    significant: Mask
    drift: float | None
    detectable: float | None


def of_step(base: Floats, new: Floats) -> StepChange | None:
    """Welch's test on the logarithms of step times, less the outliers, with as many steps as are independent.

    Args: base, new: (n,), (m,) ns. Returns: None where one cannot tell.
    """
    if min(len(base), len(new)) < LEAST_STEPS or min(base.min(), new.min()) <= 0:
        return None
    x, y = _clipped(np.log(base)[None])[0], _clipped(np.log(new)[None])[0]
    a, b = x - x.mean(), y - y.mean()
    whole = float((a * a).sum() + (b * b).sum())
    alike = float((a[1:] * a[:-1]).sum() + (b[1:] * b[:-1]).sum()) / whole if whole else 0.0
    alike = min(max(alike + 4 / (len(x) + len(y)), 0.0), MOST_ALIKE)
    part = (1 - alike) / (1 + alike)
    of_a, of_b = (float((v * v).sum()) / (len(v) - 1) / (len(v) * part) for v in (a, b))
    change, error = float(y.mean() - x.mean()), sqrt(of_a + of_b)
    freedom = 1.0
    if error:
        freedom = (of_a + of_b) ** 2 / sum(v * v / max(len(n) * part - 1, 0.5) for v, n in ((of_a, x), (of_b, y)))
    half = quantile(round(max(freedom, 1.0), 3), CHANCE) * error
    low, high = np.expm1([change - half, change + half]).tolist()
    sure = low > 0 or high < 0
    return StepChange(low, high, sure and abs(exp(change) - 1) > LEAST_CHANGE, max(float(np.expm1(half)), LEAST_CHANGE))


def of_rows(base: Matrix, new: Matrix, step_ns: float, on_device: Mask) -> RowChanges | None:
    """Which rows changed: what all share is taken off first, then false discoveries are controlled.

    A row is called changed by more than 3 %, if it has at least 0.05 % of the step.

    Args: base, new: (r, n), (r, m) ns of each row in each step. on_device: (r,) others share the host's pace.
    Returns: None where one cannot tell.
    """
    if min(base.shape[1], new.shape[1]) < LEAST_STEPS:
        return None
    means = np.stack((base.mean(axis=1), new.mean(axis=1)))
    tested = np.flatnonzero(means.max(axis=0) >= LEAST_SHARE * step_ns)
    x, y = (values / np.maximum(means.mean(axis=0), 1)[:, None] for values in (base, new))
    drift = None
    for where in (on_device, ~on_device):
        shared = _common(x, y, np.flatnonzero(where & (means > 0).all(axis=0)), means)
        if shared is not None:
            x[where], y[where] = x[where] / np.exp(shared[0]), y[where] / np.exp(shared[1])
            moved = float(np.expm1(shared[1].mean() - shared[0].mean()))
            drift = moved if where is on_device else drift
    x, y = x[tested], y[tested]
    logs = (x > 0).all(axis=1) & (y > 0).all(axis=1)
    x[logs], y[logs] = np.log(x[logs]), np.log(y[logs])
    x, y = _clipped(x, FEW), _clipped(y, FEW)
    change = y.mean(axis=1) - x.mean(axis=1)
    alike = _alike(x, y)
    (of_x, free_x), (of_y, free_y) = _of_mean(x, alike), _of_mean(y, alike)
    error = np.sqrt(of_x + of_y)
    squares = of_x**2 / free_x + of_y**2 / free_y
    freedom = np.where(squares > 0, (of_x + of_y) ** 2 / np.where(squares > 0, squares, 1), 1.0)
    chance = np.array([_chance(*row) for row in zip(change.tolist(), error.tolist(), freedom.tolist(), strict=True)])
    change[logs] = np.expm1(change[logs])
    sure = np.zeros(len(base), bool)
    sure[tested] = _discovered(chance) & (np.abs(change) > LEAST_CHANGE)
    return RowChanges(sure, drift, _detectable(error[logs], freedom[logs], len(tested)))


def _clipped(values: Matrix, few: float = 0.0) -> Matrix:
    """Rows with their outliers brought in: a step that waited for the disk says nothing about the others.

    few: of few steps the median deviation is often too small, which many rows at once would find; so much further.
    """
    middle = np.median(values, axis=1, keepdims=True)
    room = CLIPPED_AT * (1 + few / values.shape[1]) * 1.4826 * np.median(np.abs(values - middle), axis=1, keepdims=True)
    return np.clip(values, middle - room, middle + room)


def _common(x: Matrix, y: Matrix, rows: Ints, means: Matrix) -> tuple[Floats, Floats] | None:
    """What the largest rows share in each step: the median of their logarithms less their mean before."""
    rows = rows[(x[rows] > 0).all(axis=1) & (y[rows] > 0).all(axis=1)]
    rows = rows[np.argsort(-means[:, rows].mean(axis=0), kind="stable")[:COMMON_ROWS]]
    if len(rows) < FEWEST_COMMON:
        return None
    before, after = np.log(x[rows]), np.log(y[rows])
    level = before.mean(axis=1, keepdims=True)
    base, new = np.median(before - level, axis=0), np.median(after - level, axis=0)
    moved = new.mean() - base.mean()
    return base, new - moved if abs(np.expm1(moved)) > MOST_DRIFT else new


def _alike(x: Matrix, y: Matrix) -> float:
    """Correlation of a step with the next one, of all rows together: of one row a few steps tell nothing.

    Of n steps it comes out too small by (1 + 4 r) / n (Kendall, 1954).
    """
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    spread = (x * x).sum(axis=1) + (y * y).sum(axis=1)
    some = spread > 0  # each row counts alike, whatever its spread
    if not some.any():
        return 0.0
    beside = ((x[:, 1:] * x[:, :-1]).sum(axis=1) + (y[:, 1:] * y[:, :-1]).sum(axis=1))[some] / spread[some]
    n = (x.shape[1] + y.shape[1]) / 2
    return min(max((float(beside.mean()) + 1 / n) / (1 - 4 / n), 0.0), MOST_ALIKE)


def _of_mean(values: Matrix, alike: float) -> tuple[Floats, float]:
    """Variance of the mean of each row, and its degrees of freedom: n steps are as good as n (1 - r) / (1 + r)."""
    n = values.shape[1]
    free = max(n * (1 - alike) / (1 + alike), 1.5)
    seen = 1 - (n / free - 1) / (n - 1)  # of the spread: neighbours that are alike differ less
    return values.var(axis=1, ddof=1) / free / max(seen, 0.2), free - 1


def _chance(change: float, error: float, freedom: float) -> float:
    if not error:
        return 0.0 if change else 1.0
    return outside(abs(change) / error, freedom)


def _discovered(chance: Floats) -> Mask:
    """Benjamini and Hochberg's: the rows of which at most 5 % are expected to be there by chance."""
    order = np.argsort(chance, kind="stable")
    kept = np.flatnonzero(chance[order] <= FALSE_DISCOVERIES * np.arange(1, len(chance) + 1) / max(len(chance), 1))
    found = np.zeros(len(chance), bool)
    found[order[: kept[-1] + 1 if len(kept) else 0]] = True
    return found


def _detectable(error: Floats, freedom: Floats, rows: int) -> float | None:
    """The change of a typical row that would be found, were it the only one."""
    if not len(error):
        return None
    far = quantile(round(float(np.median(freedom)), 1), FALSE_DISCOVERIES / rows) * float(np.median(error))
    return max(float(np.expm1(far)), LEAST_CHANGE) if far < MOST_DETECTABLE else None
