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
from visualprof.views.measure.reports.significance import t_quantile, two_sided_tail

MIN_STEPS = 5  # on each side, for any statistics
MIN_CHANGE_RATIO = 0.03  # clocks alone may cause this between two runs of a program
MIN_STEP_SHARE = 0.0005  # share of the step
INTERVAL_ALPHA = 0.01  # significance level of the interval of the step
CAUSE_ALPHA = 0.05  # significance level of the interval of a cause: the step's change is known to be real
FALSE_DISCOVERY_RATE = 0.02  # expected among the rows reported as changed
CLIP_SIGMAS = 2.5  # standard deviations, estimated from the median deviation
FEW_STEPS_MARGIN = 5.0  # widens the clipping for few steps
MAX_CORRELATION = 0.9  # between neighboring steps
MIN_INDEPENDENT_STEPS = 2.5  # effective number of steps; fewer would make useless intervals
MAX_DETECTABLE_LOG = 3.0  # logarithm: a change detectable only from a factor of 20 counts as undetectable
MAX_COMMON_ROWS = 40  # the largest rows; their median is the common signal
MIN_COMMON_ROWS = 8  # with fewer, the median may be the row that changed
MAX_DRIFT_RATIO = 0.1  # a larger common change is not clock drift

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


def step_change(base: Floats, new: Floats) -> StepChange | None:
    """Return Welch's test on the logarithms of step times, without outliers and for the effective number of steps.

    Args:
        base: (n,) ns.
        new: (m,) ns.

    Returns:
        None if there is too little data.
    """
    if min(len(base), len(new)) < MIN_STEPS or min(base.min(), new.min()) <= 0:
        return None
    x, y = _clip_outliers(np.log(base)[None])[0], _clip_outliers(np.log(new)[None])[0]
    change, half = _welch(x, y, INTERVAL_ALPHA)
    low, high = np.expm1([change - half, change + half]).tolist()
    sure = low > 0 or high < 0
    return StepChange(
        low, high, sure and abs(exp(change) - 1) > MIN_CHANGE_RATIO, max(float(np.expm1(half)), MIN_CHANGE_RATIO)
    )


def mean_change(base: Floats, new: Floats) -> tuple[float, float]:
    """Return the 95 % interval of the change of the mean, outliers included, by Welch's test.

    Args:
        base: (n,) ns per step; at least `MIN_STEPS`.
        new: (m,) ns per step; likewise.
    """
    change, half = _welch(base, new, CAUSE_ALPHA)
    return change - half, change + half


def _welch(x: Floats, y: Floats, alpha: float) -> tuple[float, float]:
    """Return the change of the mean and half the width of its interval, for the effective number of steps."""
    a, b = x - x.mean(), y - y.mean()
    whole = float((a * a).sum() + (b * b).sum())
    alike = float((a[1:] * a[:-1]).sum() + (b[1:] * b[:-1]).sum()) / whole if whole else 0.0
    alike = min(max(alike + 4 / (len(x) + len(y)), 0.0), MAX_CORRELATION)
    free = [max(len(v) * (1 - alike) / (1 + alike), MIN_INDEPENDENT_STEPS) for v in (a, b)]
    of_a, of_b = (float((v * v).sum()) / (len(v) - 1) / n for v, n in zip((a, b), free, strict=True))
    error, freedom = sqrt(of_a + of_b), 1.0
    if error:
        freedom = (of_a + of_b) ** 2 / (of_a**2 / (free[0] - 1) + of_b**2 / (free[1] - 1))
    return float(y.mean() - x.mean()), t_quantile(round(max(freedom, 1.0), 3), alpha) * error


def explained_by_load(base: Floats, new: Floats, common_ratio: float, is_alike: bool) -> bool:
    """Whether other load explains the change of the step.

    All rows must have changed together in the direction of the step. Then either no row
    differs from the others, or the change of the step is within noise once the common change is removed.

    Args:
        base: (n,) ns per step.
        new: (m,) ns per step.
        common_ratio: Change of the step if only the common change had happened, new / base - 1.
        is_alike: Whether the rows explain the change, and none changed significantly more or less than all.
    """
    if abs(common_ratio) <= MIN_CHANGE_RATIO or (common_ratio > 0) != (new.mean() > base.mean()):
        return False
    rest = step_change(base, new / (1 + common_ratio))
    return is_alike or (rest is not None and not rest.significant)


def row_changes(base: Matrix, new: Matrix, step_ns: float, on_device: Mask) -> RowChanges | None:
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
    if min(base.shape[1], new.shape[1]) < MIN_STEPS:
        return None
    means = np.stack((base.mean(axis=1), new.mean(axis=1)))
    tested = np.flatnonzero(means.max(axis=0) >= MIN_STEP_SHARE * step_ns)
    x, y = (values / np.maximum(means.mean(axis=0), 1)[:, None] for values in (base, new))
    paces: list[float | None] = []
    for chosen, most in ((on_device, MAX_DRIFT_RATIO), (~on_device, np.inf)):
        shared = _common_signal(x, y, np.flatnonzero(chosen & (means > 0).all(axis=0)), means, most)
        if shared:
            x[chosen], y[chosen] = x[chosen] / np.exp(shared[0][0]), y[chosen] / np.exp(shared[0][1])
        paces.append(shared[1] if shared else None)
    x, y = x[tested], y[tested]
    logs = (x > 0).all(axis=1) & (y > 0).all(axis=1)
    x[logs], y[logs] = np.log(x[logs]), np.log(y[logs])
    beyond = _beyond_outliers(x, y)
    x, y = _clip_outliers(x, FEW_STEPS_MARGIN), _clip_outliers(y, FEW_STEPS_MARGIN)
    change = y.mean(axis=1) - x.mean(axis=1)
    dependence = _dependence(x, y)
    (of_x, free_x), (of_y, free_y) = _mean_variance(x, dependence), _mean_variance(y, dependence)
    between = _between_recordings(change, np.sqrt(of_x + of_y), logs & ~on_device[tested])
    of_x, of_y = of_x + between / 2, of_y + between / 2
    error = np.sqrt(of_x + of_y)
    squares = of_x**2 / free_x + of_y**2 / free_y
    freedom = np.where(squares > 0, (of_x + of_y) ** 2 / np.where(squares > 0, squares, 1), 1.0)
    chance = np.array([_p_value(*row) for row in zip(change.tolist(), error.tolist(), freedom.tolist(), strict=True)])
    change[logs] = np.expm1(change[logs])
    sure = np.zeros(len(base), bool)
    sure[tested] = _significant_rows(chance) & (np.abs(change) > MIN_CHANGE_RATIO) & beyond
    return RowChanges(sure, paces[0], paces[1], _detectable(error[logs], freedom[logs], len(tested)))


def _clip_outliers(values: Matrix, margin: float = 0.0) -> Matrix:
    """Return the rows with outliers clipped: a step that waited for the disk says nothing about the others.

    Args:
        margin: Extra margin for few steps, in which the median deviation is often too small.
    """
    middle = np.median(values, axis=1, keepdims=True)
    room = (
        CLIP_SIGMAS
        * (1 + margin / values.shape[1])
        * 1.4826
        * np.median(np.abs(values - middle), axis=1, keepdims=True)
    )
    return np.clip(values, middle - room, middle + room)


def _common_signal(
    x: Matrix, y: Matrix, rows: Ints, means: Matrix, max_change: float
) -> tuple[tuple[Floats, Floats], float] | None:
    """Return the common signal of the largest rows per step, and its change.

    The signal is the median of the rows' logarithms minus their mean before.

    Args:
        max_change: A larger change stays in the rows. The change of a host is unlimited: other load may slow down all
            its work.
    """
    rows = rows[(x[rows] > 0).all(axis=1) & (y[rows] > 0).all(axis=1)]
    rows = rows[np.argsort(-means[:, rows].mean(axis=0), kind="stable")[:MAX_COMMON_ROWS]]
    if len(rows) < MIN_COMMON_ROWS:
        return None
    before, after = np.log(x[rows]), np.log(y[rows])
    level = before.mean(axis=1, keepdims=True)
    base, new = np.median(before - level, axis=0), np.median(after - level, axis=0)
    moved = new.mean() - base.mean()
    capped = abs(np.expm1(moved)) > max_change
    return (base, new - moved if capped else new), float(np.expm1(moved))


def _beyond_outliers(x: Matrix, y: Matrix) -> Mask:
    """Return whether the means differ by more than two errors including outliers, or the ranges do not overlap.

    Else a few steps may explain the whole difference.
    """
    error = np.sqrt(x.var(axis=1) / x.shape[1] + y.var(axis=1) / y.shape[1])
    (x_low, x_high), (y_low, y_high) = (np.quantile(values, (0.15, 0.85), axis=1) for values in (x, y))
    return (np.abs(y.mean(axis=1) - x.mean(axis=1)) > 2 * error) | (x_high < y_low) | (y_high < x_low)


def _dependence(x: Matrix, y: Matrix) -> float:
    """Return how many steps carry the information of one independent step, at least 1; for all rows together.

    A few steps say too little about a single row. The correlations at lag 1 and 2 give the decay: spikes and noise
    lower both, but not how long the rest lasts.
    """
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    spread = (x * x).sum(axis=1) + (y * y).sum(axis=1)
    if not spread.any():
        return 1.0
    first, second = (_correlation(x, y, spread, lag) for lag in (1, 2))
    first = min(max(first, 0.0), MAX_CORRELATION)
    fades = min(max(second / first, first), MAX_CORRELATION) if first > 0.1 else first
    return 1 + 2 * first / (1 - fades)


def _correlation(x: Matrix, y: Matrix, spread: Floats, lag: int) -> float:
    """Return the autocorrelation at a lag, the mean over rows with any spread.

    With n steps, a correlation r is underestimated by (1 + 4 r) / n (Kendall, 1954).
    """
    n = (x.shape[1] + y.shape[1]) / 2
    products = sum(((v[:, lag:] * v[:, :-lag]).sum(axis=1) for v in (x, y)), np.zeros(len(spread)))
    mean = float((products[spread > 0] / spread[spread > 0]).mean())
    return (mean * n / (n - lag) + 1 / n) / (1 - 4 / n)


def _mean_variance(values: Matrix, dependence: float) -> tuple[Floats, float]:
    """Return the variance of the mean of each row, and its degrees of freedom."""
    n = values.shape[1]
    free = max(n / dependence, 1.5)
    seen = 1 - (n / free - 1) / (n - 1)  # correction of the variance, since similar neighbors differ less
    return values.var(axis=1, ddof=1) / free / max(seen, 0.2), free - 1


def _between_recordings(change: Floats, error: Floats, rows: Mask) -> Floats:
    """Return the variance of host rows between recordings, beyond what their steps explain.

    Memory layout and other load make some rows of a whole recording slower. The scatter of all rows measures this.
    """
    if np.count_nonzero(rows) < MIN_COMMON_ROWS:
        return np.zeros(len(rows))
    scatter = 1.4826 * float(np.median(np.abs(change[rows])))
    return np.where(rows, max(scatter**2 - float(np.median(error[rows])) ** 2, 0.0), 0.0)


def _p_value(change: float, error: float, freedom: float) -> float:
    if not error:
        return 0.0 if change else 1.0
    return two_sided_tail(abs(change) / error, freedom)


def _significant_rows(chance: Floats) -> Mask:
    """Return the rows that pass the Benjamini-Hochberg procedure at the rate FALSE_DISCOVERY_RATE."""
    order = np.argsort(chance, kind="stable")
    passing = np.flatnonzero(
        chance[order] <= FALSE_DISCOVERY_RATE * np.arange(1, len(chance) + 1) / max(len(chance), 1)
    )
    significant = np.zeros(len(chance), bool)
    significant[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return significant


def _detectable(error: Floats, freedom: Floats, rows: int) -> float | None:
    """Return the smallest change of a typical row that would be found if it were the only one."""
    if not len(error):
        return None
    far = t_quantile(round(float(np.median(freedom)), 1), FALSE_DISCOVERY_RATE / rows) * float(np.median(error))
    return max(float(np.expm1(far)), MIN_CHANGE_RATIO) if far < MAX_DETECTABLE_LOG else None
