"""Artificial cost tables with a known best setting, for replayed searches. Costs are per sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Table(NamedTuple):
    """axes: how many values each has; ordinal: whether neighbors resemble each other. costs: of every setting."""

    name: str
    axes: tuple[int, ...]
    ordinal: tuple[bool, ...]
    costs: npt.NDArray[np.float64]


def serving(seed: int) -> Table:
    """A served model: overhead and work, threads after Amdahl, lanes that share the cores, precision, options."""
    rng = np.random.default_rng(seed)
    batches, threads = 2 ** np.arange(rng.integers(4, 8)), 2 ** np.arange(rng.integers(2, 6))
    lanes = 2 ** np.arange(rng.integers(1, 4))
    names = [int(rng.integers(low, high)) for low, high in ((1, 4), (1, 5), (1, 4))]
    overhead, parallel, sync = rng.uniform(0.05, 3), rng.uniform(0.3, 0.98), rng.uniform(0, 0.15)
    cores, cliff, steep = rng.choice([2, 4, 8]), rng.choice([4, 16, 64, 999]), rng.uniform(1, 1.8)
    precision, option, mode = (np.exp(rng.normal(0, by, n)) for by, n in zip((0.4, 0.3, 0.15), names, strict=True))
    by_threads = np.exp(rng.normal(0, 0.15, (names[0], len(threads))))
    by_lanes = np.exp(rng.normal(0, 0.1, (names[1], len(lanes))))
    costs = np.empty((len(batches), len(threads), len(lanes), *names))
    for b, t, s, p, o, m in np.ndindex(*costs.shape):
        batch, thread_count, at_once = int(batches[b]), int(threads[t]), int(lanes[s])
        work = precision[p] * option[o] * batch * (steep if batch >= cliff else 1)
        speed = (1 - parallel) + parallel / min(thread_count, cores / min(at_once, cores))
        crowd = 1 + 3 * sync * max(0, thread_count * at_once - cores) / cores
        took = overhead * (1 + sync * thread_count) + work * speed * crowd
        side = min(at_once, max(1.0, cores / max(1.0, min(thread_count, cores) * parallel)))
        costs[b, t, s, p, o, m] = took * by_threads[p, t] * by_lanes[o, s] * mode[m] / (side * batch)
    return Table(f"serving {seed}", costs.shape, (True, True, True, False, False, False), costs.ravel())


def rough(seed: int) -> Table:
    """Any axes: an effect of each, of each pair, and of each setting."""
    rng = np.random.default_rng(10_000 + seed)
    axes = tuple(int(n) for n in rng.integers(2, 8, rng.integers(3, 6)))
    ordinal = tuple(bool(x) for x in rng.random(len(axes)) < 0.5)
    effect = np.zeros(axes)
    for i, n in enumerate(axes):
        effects = np.cumsum(rng.normal(0, 0.3, n)) if ordinal[i] else rng.normal(0, 0.4, n)
        effect += effects.reshape([n if axis == i else 1 for axis in range(len(axes))])
    for i, j in itertools.combinations(range(len(axes)), 2):
        effects = rng.normal(0, rng.choice([0, 0.1, 0.25]), (axes[i], axes[j]))
        effect += effects.reshape([n if axis in (i, j) else 1 for axis, n in enumerate(axes)])
    return Table(f"rough {seed}", axes, ordinal, np.exp(effect + rng.normal(0, 0.03, axes)).ravel())


def accelerator(seed: int) -> Table:
    """Batches that fill a device, one pair of precision and option far better than either alone, odd sizes."""
    rng = np.random.default_rng(20_000 + seed)
    axes = (8, int(rng.integers(2, 4)), int(rng.integers(2, 5)), int(rng.integers(2, 4)))
    full, costs = rng.uniform(2, 64), np.empty(axes)
    precision = np.sort(np.exp(rng.normal(-0.4, 0.3, axes[1])))[::-1]
    option, mode = np.exp(rng.normal(0, 0.5, axes[2])), np.exp(rng.normal(0, 0.2, axes[3]))
    pair = (rng.integers(axes[1]), rng.integers(axes[2]))
    for b, p, o, m in np.ndindex(*axes):
        took = (max(2.0**b, full) ** 0.9 + 0.1 * 2.0**b) * precision[p] * option[o] * mode[m]
        costs[b, p, o, m] = took * (0.6 if (p, o) == pair else 1) * (1.25 if b % 2 and m == 0 else 1) / 2.0**b
    return Table(f"accelerator {seed}", axes, (True, False, False, False), costs.ravel())


def tables(make: Callable[[int], Table], first: int, count: int, least: int, most: int) -> list[Table]:
    """Those of some seeds, with a number of settings that one would search: `least` to `most`."""
    spaces = (make(seed) for seed in range(first, first + count))
    return [space for space in spaces if least < math.prod(space.axes) <= most]
