"""Change points of a series of measurements. Source: docs/views/trend.md."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush, heappushpop
from itertools import pairwise
from math import inf, log
from statistics import median

MIN_LEVEL_LENGTH = 3  # measurements per level: a deviation that occurs once or twice is not a change
MIN_NOISE = 0.001  # a series is assumed to have at least 0.1 % noise
ZERO_SUBSTITUTE = 1e-9  # replaces 0, which has no logarithm


def find_change_points(values: Sequence[float], min_length: int = MIN_LEVEL_LENGTH) -> list[int]:
    """Return the positions at which a new level begins, ascending; 0 is not one of them.

    The segments minimize the sum of absolute distances of logarithms from the segment's median, in
    units of the series' noise (the median distance of neighbors), plus 2 ln n per change. The
    result is exact and takes O(n^2 log n). With 2 % noise and spikes, 1 of 100 series without a
    change gets one (docs/benchmarks.md).

    Args:
        values: Not negative, in the order of time.
        min_length: Length of the shortest segment.
    """
    n = len(values)
    if n < 2 * min_length:
        return []
    logs = [log(max(value, ZERO_SUBSTITUTE)) for value in values]
    noise = max(median(abs(value_after - value_before) for value_before, value_after in pairwise(logs)), MIN_NOISE)
    scaled = [value / noise for value in logs]
    penalty = 2 * log(n)
    best_cost = [inf] * (n + 1)  # cost of the first k values
    segment_start = [0] * (n + 1)
    best_cost[0] = -penalty
    for start in range(n - min_length + 1):
        if best_cost[start] == inf:
            continue
        for end, cost in enumerate(_median_distances(scaled[start:]), start + 1):
            if end - start >= min_length and best_cost[start] + cost + penalty < best_cost[end]:
                best_cost[end], segment_start[end] = best_cost[start] + cost + penalty, start
    positions = list[int]()
    end = n
    while end := segment_start[end]:
        positions.append(end)
    return positions[::-1]


def _median_distances(values: Sequence[float]) -> list[float]:
    """Return, for the first 1, 2, 3, ... values, the sum of their distances from their median."""
    low: list[float] = []  # the lower half as a heap of negated values; it has one more value if the number is odd
    high: list[float] = []
    low_sum = high_sum = 0.0
    distances = list[float]()
    for count, value in enumerate(values, 1):
        if count % 2:
            moved = heappushpop(high, value)
            high_sum += value - moved
            heappush(low, -moved)
            low_sum += moved
        else:
            moved = -heappushpop(low, -value)
            low_sum += value - moved
            heappush(high, moved)
            high_sum += moved
        distances.append(high_sum - low_sum + (-low[0] if count % 2 else 0.0))
    return distances


def level_band(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the middle, low and high end of a level.

    These are its median, and three standard deviations (1.4826 MAD) below and above.
    """
    middle = median(values)
    spread = 3 * 1.4826 * median(abs(value - middle) for value in values)
    return middle, middle - spread, middle + spread
