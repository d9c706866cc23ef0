"""Which setting is tried next: the one that promises most, by a Gaussian process over all that was tried.

Costs are modelled by their logarithms, in which effects of settings that multiply are sums. The kernel is a mixture of
the mean of one kernel an axis (what holds whatever the others are) and their product (what holds for neighbours alone).
Source: expected improvement weighted by the probability that constraints are kept, Gardner et al. 2014; ADR 73.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Json = dict[str, Any]
Array: TypeAlias = npt.NDArray[np.float64]
Positions: TypeAlias = npt.NDArray[np.int64]

STARTUP_TRIALS = 4  # settings far from each other, before costs are asked
MAX_FITTED_TRIALS = 200  # of the newest trials: the models cost the cube of it
CANDIDATES = 5000  # by chance, and as many near the best, where the grid is larger
LENGTH_SCALES, SHARES, NOISES = (
    (0.2, 0.5, 1.0, 2.0, 5.0, 15.0),
    (0.1, 0.3, 0.5, 0.7, 0.9),
    (1e-4, 1e-3, 1e-2, 0.05, 0.2),
)
FIT_SWEEPS = 2  # over all of these
PRIOR_WEIGHT = 0.25  # weight of the prior: log lengths around 0


@dataclass(frozen=True)
class Grid:
    """Settings by their numbers. axes: how many values each has; ordinal: whether neighbours resemble each other."""

    axes: tuple[int, ...]
    ordinal: tuple[bool, ...]

    @property
    def size(self) -> int:
        """How many settings there are."""
        return math.prod(self.axes)

    def positions(self, numbers: Sequence[int] | Positions) -> Positions:
        """(n, axes): the place on each axis."""
        return np.stack(np.unravel_index(np.asarray(numbers, np.int64), self.axes), 1)

    def distance(self, a: Positions, b: Positions, axis: int) -> Array:
        """(n, m) distances on an axis: 2 from one end to the other of an ordered one, 1 between two names."""
        by = np.abs(a[:, None, axis] - b[None, :, axis])
        return 2.0 * by / max(1, self.axes[axis] - 1) if self.ordinal[axis] else (by > 0).astype(np.float64)


@dataclass(frozen=True)
class Kernel:
    """lengths: of each axis. share: of the mean over the axes, the rest is their product. noise: of one trial."""

    lengths: tuple[float, ...]
    share: float = 0.5
    noise: float = 1e-2

    def __call__(self, grid: Grid, a: Positions, b: Positions) -> Array:
        """(n, m) covariances of settings."""
        mean, product = np.zeros((len(a), len(b))), np.ones((len(a), len(b)))
        for axis, length in enumerate(self.lengths):
            one = np.exp(grid.distance(a, b, axis) / -length)
            mean += one / len(self.lengths)
            product *= one
        return self.share * mean + (1 - self.share) * product

    def neg_log_posterior(self, grid: Grid, x: Positions, y: Array) -> float:
        """Minus the log of how likely values are, with the best scale, and of the prior."""
        lower = np.linalg.cholesky(self(grid, x, x) + self.noise * np.eye(len(y)))
        scale = np.square(solve_lower(lower, y)).mean() + 1e-12
        prior = PRIOR_WEIGHT * sum(math.log(length) ** 2 for length in self.lengths)
        return float(0.5 * len(y) * np.log(scale) + np.log(np.diag(lower)).sum() + prior)

    def fit(self, grid: Grid, x: Positions, y: Array) -> Kernel:
        """The likeliest, one parameter after the other."""
        best, least = self, self.neg_log_posterior(grid, x, y)
        for _ in range(FIT_SWEEPS):
            for axis in (*range(len(self.lengths)), "share", "noise"):
                for other in best.variants(axis):
                    if (loss := other.neg_log_posterior(grid, x, y)) < least:
                        best, least = other, loss
        return best

    def variants(self, of: int | str) -> list[Kernel]:
        """This one with each value of a parameter: the length of an axis, the share or the noise."""
        if isinstance(of, int):
            return [replace(self, lengths=(*self.lengths[:of], one, *self.lengths[of + 1 :])) for one in LENGTH_SCALES]
        return [replace(self, **{of: one}) for one in (SHARES if of == "share" else NOISES)]


def next_setting(axes: Sequence[int], ordinal: Sequence[bool], seed: int, tried: Sequence[Json]) -> int:
    """The number of a setting that was not tried yet, of a grid that has some.

    Args:
        axes: how many values each has; ordinal: whether they are in an order.
        tried: {at, cost, excess} of all before it; cost None: it failed. excess: of each constraint, 0 or less where
            it is kept.
    """
    grid, rng = Grid(tuple(axes), tuple(ordinal)), np.random.default_rng([seed, len(tried)])
    numbers = candidates(grid, tried, rng)
    if not tried:
        return int(numbers[0])
    tried = tried[-MAX_FITTED_TRIALS:]
    x, places = grid.positions([one["at"] for one in tried]), grid.positions(numbers)
    if len(tried) < STARTUP_TRIALS:
        _, spread = posterior(grid, x, np.zeros(len(x)), places, fit=False)
        return int(numbers[spread.argmax()])
    return int(numbers[acquisition(grid, x, tried, places).argmax()])


def candidates(grid: Grid, tried: Sequence[Json], rng: np.random.Generator) -> Positions:
    """Numbers of settings that were not tried, in a shuffled order; of a large grid some, and some near the best."""
    numbers = rng.permutation(grid.size)[: 2 * CANDIDATES + len(tried)]
    if len(numbers) < grid.size and any(map(feasible, tried)):
        best = min(filter(feasible, tried), key=lambda one: one["cost"])["at"]
        near = np.repeat(grid.positions([best]), CANDIDATES, 0)
        for _ in range(2):  # one or two places are others
            axis = rng.integers(len(grid.axes), size=CANDIDATES)
            near[np.arange(CANDIDATES), axis] = rng.integers(np.asarray(grid.axes)[axis])
        numbers = np.concatenate([numbers, near @ np.cumprod([1, *grid.axes[:0:-1]])[::-1]])
    return numbers[~np.isin(numbers, np.array([one["at"] for one in tried]))]


def acquisition(grid: Grid, x: Positions, tried: Sequence[Json], places: Positions) -> Array:
    """Expected improvement of each place over the best feasible cost, times the chance that it is feasible.

    Where nothing was feasible yet, that chance alone.
    """
    ran = np.array([one["cost"] is not None for one in tried])
    score = np.ones(len(places))
    if not ran.all():
        score *= feasibility(grid, x, np.where(ran, -1.0, 1.0), places)
    if ran.sum() < 2:
        return score
    costs = np.log([one["cost"] for one in tried if one["cost"] is not None])
    for each in zip(*(one["excess"] for one in tried if one["cost"] is not None), strict=True):
        if max(each) > 0:
            score *= feasibility(grid, x[ran], np.arcsinh(4 * np.array(each)), places)
    if any(map(feasible, tried)):
        best = min(math.log(one["cost"]) for one in tried if feasible(one))
        mean, spread = posterior(grid, x[ran], costs, places)
        by = (best - mean) / spread
        score *= spread * (by * normal_cdf(by) + np.exp(-by * by / 2) / math.sqrt(2 * math.pi))
    return score


def feasibility(grid: Grid, x: Positions, excess: Array, places: Positions) -> Array:
    """The chance that each place has an excess of 0 or less."""
    mean, spread = posterior(grid, x, excess, places)
    return normal_cdf(-mean / spread)


def posterior(grid: Grid, x: Positions, y: Array, places: Positions, fit: bool = True) -> tuple[Array, Array]:
    """Mean and deviation at some places, of values at others."""
    middle, deviation = float(y.mean()), float(y.std()) or 1.0
    values, kernel = (y - middle) / deviation, Kernel((1.0,) * len(grid.axes))
    if fit:
        kernel = kernel.fit(grid, x, values)
    lower = np.linalg.cholesky(kernel(grid, x, x) + kernel.noise * np.eye(len(y)))
    known, across = solve_lower(lower, values), solve_lower(lower, kernel(grid, x, places))
    scale = max(float(np.square(known).mean()), 1e-3)
    spread = np.sqrt(scale * np.clip(1 - np.square(across).sum(0), 1e-9, None))
    mean = known @ across
    return middle + deviation * mean, deviation * spread


def feasible(one: Json) -> bool:
    """Whether a trial ran and keeps every constraint."""
    return one["cost"] is not None and max(one["excess"], default=0.0) <= 0


def solve_lower(lower: npt.NDArray[Any], right: Array) -> Array:
    return np.asarray(np.linalg.solve(lower, right), np.float64)


def normal_cdf(deviations: Array) -> Array:
    """The share of a normal distribution below so many deviations."""
    return np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in deviations])
