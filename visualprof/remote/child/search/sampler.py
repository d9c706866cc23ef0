"""Choose the next setting to try: Bayesian optimization with a Gaussian process over all trials so far.

Costs are modeled by their logarithms, in which multiplicative effects of settings add up. The kernel mixes the mean of
one kernel per axis (effects that hold for any other settings) with their product (effects among neighbors only).
Source: expected improvement weighted by the probability of feasibility, Gardner et al. 2014; ADR 73.
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

STARTUP_TRIALS = 4  # distant settings that are tried before the model is used
MAX_FITTED_TRIALS = 200  # newest trials in the model, whose cost grows with their cube
CANDIDATES = 5000  # random settings of a large grid, and as many near the best one
LENGTH_SCALES, SHARES, NOISES = (
    (0.2, 0.5, 1.0, 2.0, 5.0, 15.0),
    (0.1, 0.3, 0.5, 0.7, 0.9),
    (1e-4, 1e-3, 1e-2, 0.05, 0.2),
)
FIT_SWEEPS = 2  # passes over all kernel parameters
PRIOR_WEIGHT = 0.25  # weight of the prior, which keeps log lengths near 0


@dataclass(frozen=True)
class Grid:
    """Settings identified by their numbers.

    Attributes:
        axes: Number of values per axis.
        ordinal: Whether neighboring values of the axis are similar.
    """

    axes: tuple[int, ...]
    ordinal: tuple[bool, ...]

    @property
    def size(self) -> int:
        """Return the number of settings."""
        return math.prod(self.axes)

    def positions(self, numbers: Sequence[int] | Positions) -> Positions:
        """Return the position on each axis, (n, axes)."""
        return np.stack(np.unravel_index(np.asarray(numbers, np.int64), self.axes), 1)

    def distance(self, a: Positions, b: Positions, axis: int) -> Array:
        """Return (n, m) distances on an axis: 2 between the ends of an ordered axis, 1 between two names."""
        steps = np.abs(a[:, None, axis] - b[None, :, axis])
        return 2.0 * steps / max(1, self.axes[axis] - 1) if self.ordinal[axis] else (steps > 0).astype(np.float64)


@dataclass(frozen=True)
class Kernel:
    """A covariance function.

    Attributes:
        lengths: Length scale per axis.
        share: Weight of the mean over the axes; the rest is the weight of their product.
        noise: Variance of one trial.
    """

    lengths: tuple[float, ...]
    share: float = 0.5
    noise: float = 1e-2

    def __call__(self, grid: Grid, a: Positions, b: Positions) -> Array:
        """Return (n, m) covariances of settings."""
        mean, product = np.zeros((len(a), len(b))), np.ones((len(a), len(b)))
        for axis, length in enumerate(self.lengths):
            covariance = np.exp(grid.distance(a, b, axis) / -length)
            mean += covariance / len(self.lengths)
            product *= covariance
        return self.share * mean + (1 - self.share) * product

    def neg_log_posterior(self, grid: Grid, x: Positions, y: Array) -> float:
        """Return minus the log posterior of values, with the best scale."""
        lower = np.linalg.cholesky(self(grid, x, x) + self.noise * np.eye(len(y)))
        scale = np.square(solve_lower(lower, y)).mean() + 1e-12
        prior = PRIOR_WEIGHT * sum(math.log(length) ** 2 for length in self.lengths)
        return float(0.5 * len(y) * np.log(scale) + np.log(np.diag(lower)).sum() + prior)

    def fit(self, grid: Grid, x: Positions, y: Array) -> Kernel:
        """Return the kernel with the highest posterior, found by optimizing one parameter after the other."""
        best, least = self, self.neg_log_posterior(grid, x, y)
        for _ in range(FIT_SWEEPS):
            for axis in (*range(len(self.lengths)), "share", "noise"):
                for variant in best.variants(axis):
                    if (loss := variant.neg_log_posterior(grid, x, y)) < least:
                        best, least = variant, loss
        return best

    def variants(self, parameter: int | str) -> list[Kernel]:
        """Return this kernel with each value of a parameter: the length of an axis, the share or the noise."""
        if isinstance(parameter, int):
            return [
                replace(self, lengths=(*self.lengths[:parameter], value, *self.lengths[parameter + 1 :]))
                for value in LENGTH_SCALES
            ]
        return [replace(self, **{parameter: value}) for value in (SHARES if parameter == "share" else NOISES)]


def next_setting(axes: Sequence[int], ordinal: Sequence[bool], seed: int, trials: Sequence[Json]) -> int:
    """Return the number of an untried setting. The grid must have one.

    Args:
        axes: Number of values per axis.
        ordinal: Whether the values of each axis are ordered.
        seed: Seed of the random choices.
        trials: {at, cost, excess} of each trial so far. cost: `None` if the trial failed. excess: per constraint, 0 or
            less if the constraint is satisfied.
    """
    grid, rng = Grid(tuple(axes), tuple(ordinal)), np.random.default_rng([seed, len(trials)])
    numbers = candidates(grid, trials, rng)
    if not trials:
        return int(numbers[0])
    trials = trials[-MAX_FITTED_TRIALS:]
    x, positions = grid.positions([trial["at"] for trial in trials]), grid.positions(numbers)
    if len(trials) < STARTUP_TRIALS:
        _, spread = posterior(grid, x, np.zeros(len(x)), positions, fit=False)
        return int(numbers[spread.argmax()])
    return int(numbers[acquisition(grid, x, trials, positions).argmax()])


def candidates(grid: Grid, trials: Sequence[Json], rng: np.random.Generator) -> Positions:
    """Return the numbers of untried settings, shuffled; of a large grid, a sample and some near the best setting."""
    numbers = rng.permutation(grid.size)[: 2 * CANDIDATES + len(trials)]
    if len(numbers) < grid.size and any(map(feasible, trials)):
        best = min(filter(feasible, trials), key=lambda trial: trial["cost"])["at"]
        near = np.repeat(grid.positions([best]), CANDIDATES, 0)
        for _ in range(2):  # one or two positions differ
            axis = rng.integers(len(grid.axes), size=CANDIDATES)
            near[np.arange(CANDIDATES), axis] = rng.integers(np.asarray(grid.axes)[axis])
        numbers = np.concatenate([numbers, near @ np.cumprod([1, *grid.axes[:0:-1]])[::-1]])
    return numbers[~np.isin(numbers, np.array([trial["at"] for trial in trials]))]


def acquisition(grid: Grid, x: Positions, trials: Sequence[Json], positions: Positions) -> Array:
    """Return the expected improvement over the best feasible cost times the probability of feasibility, per position.

    If no trial was feasible yet, return the probability alone.
    """
    succeeded = np.array([trial["cost"] is not None for trial in trials])
    score = np.ones(len(positions))
    if not succeeded.all():
        score *= feasibility(grid, x, np.where(succeeded, -1.0, 1.0), positions)
    if succeeded.sum() < 2:
        return score
    costs = np.log([trial["cost"] for trial in trials if trial["cost"] is not None])
    for excesses in zip(*(trial["excess"] for trial in trials if trial["cost"] is not None), strict=True):
        if max(excesses) > 0:
            score *= feasibility(grid, x[succeeded], np.arcsinh(4 * np.array(excesses)), positions)
    if any(map(feasible, trials)):
        best = min(math.log(trial["cost"]) for trial in trials if feasible(trial))
        mean, spread = posterior(grid, x[succeeded], costs, positions)
        improvement = (best - mean) / spread
        score *= spread * (
            improvement * normal_cdf(improvement) + np.exp(-improvement * improvement / 2) / math.sqrt(2 * math.pi)
        )
    return score


def feasibility(grid: Grid, x: Positions, excess: Array, positions: Positions) -> Array:
    """Return the probability of an excess of 0 or less at each position."""
    mean, spread = posterior(grid, x, excess, positions)
    return normal_cdf(-mean / spread)


def posterior(grid: Grid, x: Positions, y: Array, positions: Positions, fit: bool = True) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of the process at some positions.

    Args:
        grid: The grid of settings.
        x: Positions with known values.
        y: Their values.
        positions: Positions to predict.
        fit: Whether to fit the kernel to the values.
    """
    average, deviation = float(y.mean()), float(y.std()) or 1.0
    values, kernel = (y - average) / deviation, Kernel((1.0,) * len(grid.axes))
    if fit:
        kernel = kernel.fit(grid, x, values)
    lower = np.linalg.cholesky(kernel(grid, x, x) + kernel.noise * np.eye(len(y)))
    whitened, whitened_kernel = solve_lower(lower, values), solve_lower(lower, kernel(grid, x, positions))
    scale = max(float(np.square(whitened).mean()), 1e-3)
    spread = np.sqrt(scale * np.clip(1 - np.square(whitened_kernel).sum(0), 1e-9, None))
    mean = whitened @ whitened_kernel
    return average + deviation * mean, deviation * spread


def feasible(trial: Json) -> bool:
    """Whether a trial ran and satisfies every constraint."""
    return trial["cost"] is not None and max(trial["excess"], default=0.0) <= 0


def solve_lower(lower: npt.NDArray[Any], right: Array) -> Array:
    """Solve a linear system with a lower triangular matrix."""
    return np.asarray(np.linalg.solve(lower, right), np.float64)


def normal_cdf(deviations: Array) -> Array:
    """Return the standard normal distribution function."""
    return np.array([0.5 * math.erfc(-deviation / math.sqrt(2)) for deviation in deviations])
