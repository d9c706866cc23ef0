"""Where a series of measurements changes its level. Source: docs/views.md#trend."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush, heappushpop
from itertools import pairwise
from math import inf, log
from statistics import median

MIN_LEVEL_LENGTH = 3  # measurements that make a level: what happens once or twice is no change
QUIET = 0.001  # the noise that a series is taken to have at least: 0.1 %
NOTHING = 1e-9  # what 0 is taken for, which has no logarithm


def find_change_points(values: Sequence[float], min_length: int = MIN_LEVEL_LENGTH) -> list[int]:
    """Places at which a new level begins, in ascending order; none at 0.

    The segments with the least sum of absolute distances of logarithms from their medians, in units of the series'
    noise (the median distance of neighbours), plus 2 ln n for each change: exact, in O(n^2 log n).
    Two per cent of noise with spikes make a change in 1 of 100 series without one (docs/benchmarks.md).

    Args:
        values: not negative, in order of time.
        least: values of the shortest segment.
    """
    n = len(values)
    if n < 2 * min_length:
        return []
    logs = [log(max(value, NOTHING)) for value in values]
    noise = max(median(abs(after - before) for before, after in pairwise(logs)), QUIET)
    scaled = [value / noise for value in logs]
    price = 2 * log(n)
    cheapest = [inf] * (n + 1)  # of the first k values
    began = [0] * (n + 1)
    cheapest[0] = -price
    for start in range(n - min_length + 1):
        if cheapest[start] == inf:
            continue
        for end, cost in enumerate(_distances(scaled[start:]), start + 1):
            if end - start >= min_length and cheapest[start] + cost + price < cheapest[end]:
                cheapest[end], began[end] = cheapest[start] + cost + price, start
    places = list[int]()
    end = n
    while end := began[end]:
        places.append(end)
    return places[::-1]


def _distances(values: Sequence[float]) -> list[float]:
    """Of the first 1, 2, 3, ... values: the sum of their distances from their median."""
    low: list[float] = []  # the lower half, as a heap of negatives; of an odd number it has one more
    high: list[float] = []
    below = above = 0.0
    out = list[float]()
    for count, value in enumerate(values, 1):
        if count % 2:
            moved = heappushpop(high, value)
            above += value - moved
            heappush(low, -moved)
            below += moved
        else:
            moved = -heappushpop(low, -value)
            below += value - moved
            heappush(high, moved)
            above += moved
        out.append(above - below + (-low[0] if count % 2 else 0.0))
    return out


def level_band(values: Sequence[float]) -> tuple[float, float, float]:
    """Middle, low and high of a level: its median, and three of its standard deviations (1.4826 MAD) around it."""
    middle = median(values)
    spread = 3 * 1.4826 * median(abs(value - middle) for value in values)
    return middle, middle - spread, middle + spread
