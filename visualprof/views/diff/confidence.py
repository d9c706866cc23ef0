"""Statistical significance of changes of a step and of many rows. docs/diff.md.

Steps of one run resemble their neighbors, and all kernels of a run share its clock. A test that assumes independence
finds changes between two recordings of the same script. Measured with benchmarks/noise.py.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.significance import t_quantile, two_sided_tail

LEAST_STEPS = 5  # on each side; with fewer nothing can be told
LEAST_CHANGE = 0.03  # what clocks alone may do between two runs of one program
LEAST_SHARE = 0.0005  # of the step
CHANCE = 0.01  # of the step's interval
FALSE_DISCOVERIES = 0.02  # among the rows that are called changed
CLIPPED_AT = 2.5  # standard deviations, as the median deviation tells them
FEW = 5.0
MOST_ALIKE = 0.9
LEAST_FREE = 2.5  # steps of a run that count as independent, however alike: fewer make intervals of no use
MOST_DETECTABLE = 3.0  # logarithm: what is seen from 20 times on is not seen
COMMON_ROWS = 40  # the largest, whose median is what all of them share
FEWEST_COMMON = 8  # with fewer the median may be the very row that changed
MOST_DRIFT = 0.1  # a common change beyond that is no drift of clocks

Matrix = NDArray[np.float64]


class StepChange(NamedTuple):
    """Change of the typical step, new / base - 1.

    Attributes:
        low: Lower end of its 99 % interval.
        high: Upper end of its 99 % interval.
        significant: Whether the change is significant.
        detectable: Half the width of the interval.
    """

    low: float
    high: float
    significant: bool
    detectable: float


class RowChanges(NamedTuple):
    """Changes of rows.

    Attributes:
        significant: (r,) whether each row changed significantly.
        drift: Common change of all rows of the device, new / base - 1.
        pace: Common change of all rows of the host, new / base - 1.
        detectable: The smallest detectable change of a typical row.
    """

    significant: Mask
    drift: float | None
    pace: float | None
    detectable: float | None


def of_step(base: Floats, new: Floats) -> StepChange | None:
    """Return Welch's test on the logarithms of step times, without outliers and for the effective number of steps.

    Args:
        base: (n,) ns.
        new: (m,) ns.

    Returns:
        None if there is too little data.
    """
    if min(len(base), len(new)) < LEAST_STEPS or min(base.min(), new.min()) <= 0:
        return None
    x, y = _clipped(np.log(base)[None])[0], _clipped(np.log(new)[None])[0]
    a, b = x - x.mean(), y - y.mean()
    whole = float((a * a).sum() + (b * b).sum())
    alike = float((a[1:] * a[:-1]).sum() + (b[1:] * b[:-1]).sum()) / whole if whole else 0.0
    alike = min(max(alike + 4 / (len(x) + len(y)), 0.0), MOST_ALIKE)
    free = [max(len(v) * (1 - alike) / (1 + alike), LEAST_FREE) for v in (a, b)]
    of_a, of_b = (float((v * v).sum()) / (len(v) - 1) / n for v, n in zip((a, b), free, strict=True))
    change, error = float(y.mean() - x.mean()), sqrt(of_a + of_b)
    freedom = 1.0
    if error:
        freedom = (of_a + of_b) ** 2 / (of_a**2 / (free[0] - 1) + of_b**2 / (free[1] - 1))
    half = t_quantile(round(max(freedom, 1.0), 3), CHANCE) * error
    low, high = np.expm1([change - half, change + half]).tolist()
    sure = low > 0 or high < 0
    return StepChange(low, high, sure and abs(exp(change) - 1) > LEAST_CHANGE, max(float(np.expm1(half)), LEAST_CHANGE))


def of_rows(base: Matrix, new: Matrix, step_ns: float, on_device: Mask) -> RowChanges | None:
    """Return the rows that changed. Common changes are removed first, then false discoveries are controlled.

    A row changed if it differs by more than 3 % and takes at least 0.05 % of the step.

    Args:
        base: (r, n) ns of each row in each step.
        new: (r, m) ns of each row in each step.
        step_ns: Mean step time.
        on_device: (r,) whether the row is device work. Other rows share the pace of the host.

    Returns:
        None if there is too little data.
    """
    if min(base.shape[1], new.shape[1]) < LEAST_STEPS:
        return None
    means = np.stack((base.mean(axis=1), new.mean(axis=1)))
    tested = np.flatnonzero(means.max(axis=0) >= LEAST_SHARE * step_ns)
    x, y = (values / np.maximum(means.mean(axis=0), 1)[:, None] for values in (base, new))
    paces: list[float | None] = []
    for where, most in ((on_device, MOST_DRIFT), (~on_device, np.inf)):
        shared = _common(x, y, np.flatnonzero(where & (means > 0).all(axis=0)), means, most)
        if shared:
            x[where], y[where] = x[where] / np.exp(shared[0][0]), y[where] / np.exp(shared[0][1])
        paces.append(shared[1] if shared else None)
    x, y = x[tested], y[tested]
    logs = (x > 0).all(axis=1) & (y > 0).all(axis=1)
    x[logs], y[logs] = np.log(x[logs]), np.log(y[logs])
    beyond = _beyond_outliers(x, y)
    x, y = _clipped(x, FEW), _clipped(y, FEW)
    change = y.mean(axis=1) - x.mean(axis=1)
    dependent = _dependent(x, y)
    (of_x, free_x), (of_y, free_y) = _of_mean(x, dependent), _of_mean(y, dependent)
    between = _between(change, np.sqrt(of_x + of_y), logs & ~on_device[tested])
    of_x, of_y = of_x + between / 2, of_y + between / 2
    error = np.sqrt(of_x + of_y)
    squares = of_x**2 / free_x + of_y**2 / free_y
    freedom = np.where(squares > 0, (of_x + of_y) ** 2 / np.where(squares > 0, squares, 1), 1.0)
    chance = np.array([_chance(*row) for row in zip(change.tolist(), error.tolist(), freedom.tolist(), strict=True)])
    change[logs] = np.expm1(change[logs])
    sure = np.zeros(len(base), bool)
    sure[tested] = _discovered(chance) & (np.abs(change) > LEAST_CHANGE) & beyond
    return RowChanges(sure, paces[0], paces[1], _detectable(error[logs], freedom[logs], len(tested)))


def _clipped(values: Matrix, few: float = 0.0) -> Matrix:
    """Return the rows with outliers clipped: a step that waited for the disk says nothing about the others.

    Args:
        margin: Extra margin for few steps, in which the median deviation is often too small.
    """
    middle = np.median(values, axis=1, keepdims=True)
    room = CLIPPED_AT * (1 + few / values.shape[1]) * 1.4826 * np.median(np.abs(values - middle), axis=1, keepdims=True)
    return np.clip(values, middle - room, middle + room)


def _common(x: Matrix, y: Matrix, rows: Ints, means: Matrix, most: float) -> tuple[tuple[Floats, Floats], float] | None:
    """Return the common signal of the largest rows per step, and its change.

    The signal is the median of the rows' logarithms minus their mean before.

    Args:
        max_change: A larger change stays in the rows. The change of a host is unlimited: other load may slow down all
            its work.
    """
    rows = rows[(x[rows] > 0).all(axis=1) & (y[rows] > 0).all(axis=1)]
    rows = rows[np.argsort(-means[:, rows].mean(axis=0), kind="stable")[:COMMON_ROWS]]
    if len(rows) < FEWEST_COMMON:
        return None
    before, after = np.log(x[rows]), np.log(y[rows])
    level = before.mean(axis=1, keepdims=True)
    base, new = np.median(before - level, axis=0), np.median(after - level, axis=0)
    moved = new.mean() - base.mean()
    capped = abs(np.expm1(moved)) > most
    return (base, new - moved if capped else new), float(np.expm1(moved))


def _beyond_outliers(x: Matrix, y: Matrix) -> Mask:
    """Return whether the means differ by more than two errors including outliers, or the ranges do not overlap.

    Else a few steps may explain the whole difference.
    """
    error = np.sqrt(x.var(axis=1) / x.shape[1] + y.var(axis=1) / y.shape[1])
    (x_low, x_high), (y_low, y_high) = (np.quantile(values, (0.15, 0.85), axis=1) for values in (x, y))
    return (np.abs(y.mean(axis=1) - x.mean(axis=1)) > 2 * error) | (x_high < y_low) | (y_high < x_low)


def _dependent(x: Matrix, y: Matrix) -> float:
    """Return how many steps carry the information of one independent step, at least 1; for all rows together.

    A few steps say too little about a single row. The correlations at lag 1 and 2 give the decay: spikes and noise
    lower both, but not how long the rest lasts.
    """
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    spread = (x * x).sum(axis=1) + (y * y).sum(axis=1)
    if not spread.any():
        return 1.0
    first, second = (_correlation(x, y, spread, lag) for lag in (1, 2))
    first = min(max(first, 0.0), MOST_ALIKE)
    fades = min(max(second / first, first), MOST_ALIKE) if first > 0.1 else first
    return 1 + 2 * first / (1 - fades)


def _correlation(x: Matrix, y: Matrix, spread: Floats, lag: int) -> float:
    """Return the autocorrelation at a lag, the mean over rows with any spread.

    With n steps, a correlation r is underestimated by (1 + 4 r) / n (Kendall, 1954).
    """
    n = (x.shape[1] + y.shape[1]) / 2
    beside = sum(((v[:, lag:] * v[:, :-lag]).sum(axis=1) for v in (x, y)), np.zeros(len(spread)))
    mean = float((beside[spread > 0] / spread[spread > 0]).mean())
    return (mean * n / (n - lag) + 1 / n) / (1 - 4 / n)


def _of_mean(values: Matrix, dependent: float) -> tuple[Floats, float]:
    """Return the variance of the mean of each row, and its degrees of freedom."""
    n = values.shape[1]
    free = max(n / dependent, 1.5)
    seen = 1 - (n / free - 1) / (n - 1)  # of the spread: neighbours that are alike differ less
    return values.var(axis=1, ddof=1) / free / max(seen, 0.2), free - 1


def _between(change: Floats, error: Floats, rows: Mask) -> Floats:
    """Return the variance of host rows between recordings, beyond what their steps explain.

    Memory layout and other load make some rows of a whole recording slower. The scatter of all rows measures this.
    """
    if np.count_nonzero(rows) < FEWEST_COMMON:
        return np.zeros(len(rows))
    scatter = 1.4826 * float(np.median(np.abs(change[rows])))
    return np.where(rows, max(scatter**2 - float(np.median(error[rows])) ** 2, 0.0), 0.0)


def _chance(change: float, error: float, freedom: float) -> float:
    if not error:
        return 0.0 if change else 1.0
    return two_sided_tail(abs(change) / error, freedom)


def _discovered(chance: Floats) -> Mask:
    """Return the rows that pass the Benjamini-Hochberg procedure at the rate FALSE_DISCOVERIES."""
    order = np.argsort(chance, kind="stable")
    kept = np.flatnonzero(chance[order] <= FALSE_DISCOVERIES * np.arange(1, len(chance) + 1) / max(len(chance), 1))
    found = np.zeros(len(chance), bool)
    found[order[: kept[-1] + 1 if len(kept) else 0]] = True
    return found


def _detectable(error: Floats, freedom: Floats, rows: int) -> float | None:
    """Return the smallest change of a typical row that would be found if it were the only one."""
    if not len(error):
        return None
    far = t_quantile(round(float(np.median(freedom)), 1), FALSE_DISCOVERIES / rows) * float(np.median(error))
    return max(float(np.expm1(far)), LEAST_CHANGE) if far < MOST_DETECTABLE else None
