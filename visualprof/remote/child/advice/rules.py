"""Verdicts on candidates, from paired rounds: pure functions. Definitions: docs/advice.md, ADR 59."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["faster", "equal", "slower", "wrong", "no effect", "failed"]

MARGIN = 0.05  # a difference that nobody would change a model for
CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 20261122


@dataclass(frozen=True)
class Interval:
    """A median with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """The median of some numbers and its confidence interval, by resampling with a fixed seed.

    Args: values: n >= 1 of one unit; rounds in any order.
    """
    numbers = np.asarray(values, np.float64)
    draws = np.random.default_rng(SEED).integers(0, len(numbers), (RESAMPLES, len(numbers)))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(np.median(numbers[draws], axis=1), [tail, 100 - tail])
    return Interval(float(np.median(numbers)), float(low), float(high))


def ratio_of(candidate_ns: Sequence[float], original_ns: Sequence[float]) -> Interval:
    """Latency of a candidate as a share of the original's, round by round; below 1 is faster.

    Args: the medians of paired rounds, of the same number.
    Raises: ValueError: their numbers differ.
    """
    return median_interval([ours / theirs for ours, theirs in zip(candidate_ns, original_ns, strict=True)])


def margin_of(same: Interval) -> float:
    """The share that a ratio has to differ from 1 by: 5 %, or what the original differs from itself by.

    Args: same: the ratio of the original to a second process of it.
    """
    return max(MARGIN, abs(same.low - 1), abs(same.high - 1))


def judge(ratio: Interval, margin: float) -> Verdict:
    """Faster or slower only where the whole interval lies beyond the margin."""
    return "faster" if ratio.high < 1 - margin else "slower" if ratio.low > 1 + margin else "equal"


def wilson(agreed: int, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share of rows that agree (Wilson's score interval).

    Args: rows: at least 1.
    """
    z = 1.959964
    share = agreed / rows
    middle = share + z * z / (2 * rows)
    half = z * float(np.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows)))
    whole = 1 + z * z / rows
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def front(rows: Sequence[Sequence[float]]) -> list[bool]:
    """Which rows no other row beats: it is as small in every column, and smaller in one.

    Args: rows: of equally many numbers, all the better the smaller.
    """

    def beats(other: Sequence[float], row: Sequence[float]) -> bool:
        return all(a <= b for a, b in zip(other, row, strict=True)) and tuple(other) != tuple(row)

    return [not any(beats(other, row) for other in rows) for row in rows]
