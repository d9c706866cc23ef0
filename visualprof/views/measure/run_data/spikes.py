"""Find points far above their neighbors, such as slow steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Floats, Ints

_BLOCK = 128  # points that share a normal range, as in `capture.watch`
_SKIPPED = 10  # first points, which are slow in most programs
_DEVIATIONS, _MIN_EXCESS = 6.0, 0.2
_DEVIATION_OF_NORMAL = 1.4826  # standard deviation divided by the median absolute difference, for normal values


class Spikes(NamedTuple):
    """Points far above their neighbors, in order; all columns are (n,).

    Attributes:
        row: Index of the point.
        median: Median of its neighbors.
    """

    row: Ints
    median: Floats


def find_spikes(values: Floats, limit: int) -> Spikes:
    """Return the largest spikes, at most `limit`.

    A point is a spike if it exceeds the median of the 128 points around it by six deviations and by 20 %. Of adjacent
    spikes, the largest one counts.
    """
    rows = np.flatnonzero(np.isfinite(values))[_SKIPPED:]
    if len(rows) < 3:
        return Spikes(rows[:0], values[:0].astype(np.float64))
    finite = values[rows].astype(np.float64)
    count = -(-len(finite) // _BLOCK)
    bounds = [(max(0, min(i * _BLOCK, len(finite) - _BLOCK)), (i + 1) * _BLOCK) for i in range(count)]
    medians: Floats = np.array([np.median(finite[low:high]) for low, high in bounds], np.float64)
    median: Floats = np.repeat(medians, _BLOCK)[: len(finite)]
    difference: Floats = np.abs(finite - median)
    spread: Floats = np.array([np.median(difference[low:high]) for low, high in bounds], np.float64)
    limits = medians + np.maximum(_DEVIATIONS * _DEVIATION_OF_NORMAL * spread, _MIN_EXCESS * np.abs(medians))
    # Near a neighboring block, its limit holds as well: a lasting change is not a spike.
    halves = np.stack([np.maximum(limits, np.roll(limits, 1)), np.maximum(limits, np.roll(limits, -1))], axis=1)
    halves[0, 0], halves[-1, 1] = limits[0], limits[-1]
    excess = finite - np.repeat(halves.ravel(), _BLOCK // 2)[: len(finite)]
    above = np.flatnonzero(excess > 0)
    groups: list[Ints] = np.split(above, np.flatnonzero(np.diff(above) > 1) + 1) if len(above) else []
    peaks: Ints = np.array([group[np.argmax(excess[group])] for group in groups], np.int64)
    largest: Ints = np.sort(peaks[np.argsort(-excess[peaks], kind="stable")[:limit]])
    return Spikes(rows[largest], median[largest])
