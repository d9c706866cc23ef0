"""Verdicts on candidates from rounds measured in turns. Pure functions. Definitions: docs/advice.md, ADRs 59 and 60."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Verdict = Literal[
    "faster", "equal", "slower", "undecided", "wrong", "no effect", "failed", "not tried", "does not apply"
]

MARGIN = 0.05  # smaller differences are not worth a change of the model
VERDICT_ROUNDS = (30, 60, 120, 240)  # numbers of rounds after which a verdict is attempted
CONFIDENCE = 1 - 0.05 / len(VERDICT_ROUNDS)  # per attempt: 95 % for all attempts together
LATENCY_QUANTILE = 0.1  # a low quantile, because other programs only add time
BLOCK = 10  # rounds resampled together, because neighbors are correlated
RESAMPLES = 2000
SEED = 20261122


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float


def latency_interval(rounds_ns: Sequence[float]) -> Interval:
    """Return the 10 % quantile of the rounds with its interval.

    Args:
        rounds_ns: Times in order, n >= 1.
    """
    rounds = np.asarray(rounds_ns, np.float64)
    return _interval(_low(rounds), _low(rounds[_draws(len(rounds))]))


def ratio_interval(candidate_ns: Sequence[float], original_ns: Sequence[float]) -> Interval:
    """Return the latency of a candidate relative to the original's; below 1 is faster.

    Args:
        candidate_ns: Times of the rounds in order.
        original_ns: Times of the original in the same rounds.

    Raises:
        ValueError: The numbers of rounds differ.
    """
    pairs: Any = np.asarray([*zip(candidate_ns, original_ns, strict=True)], np.float64)
    ours, theirs, draws = pairs[:, 0], pairs[:, 1], _draws(len(candidate_ns))
    return _interval(_low(ours) / _low(theirs), _low(ours[draws]) / _low(theirs[draws]))


def _low(rounds: Any) -> Any:
    """Return the low quantile along the last dimension."""
    return np.quantile(rounds, LATENCY_QUANTILE, axis=-1)


def _draws(n: int) -> Any:
    """Return resampled round numbers, (RESAMPLES, n): whole blocks of neighbors. The last round precedes the first."""
    block = max(1, min(BLOCK, n // 3))
    starts = np.random.default_rng(SEED).integers(0, n, (RESAMPLES, -(-n // block)))
    return ((starts[:, :, None] + np.arange(block)) % n).reshape(RESAMPLES, -1)[:, :n]


def _interval(value: Any, resampled: Any) -> Interval:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Interval(float(value), float(low), float(high))


def noise_margin(same: Interval) -> float:
    """Return the share by which a ratio must differ from 1: 5 %, or the deviation of the original from itself.

    Args:
        same: Ratio of the original to a second process of it. The width of its interval is ignored: it reflects how
            busy
            the machine was at that time, and the interval of a candidate reflects its own time.
    """
    return max(MARGIN, abs(same.value - 1))


def judge_ratio(ratio: Interval, margin: float) -> Verdict:
    """Return faster or slower if the interval is beyond the margin, and equal if the interval is within 5 % of 1."""
    if ratio.high < 1 - margin:
        return "faster"
    if ratio.low > 1 + margin:
        return "slower"
    return "equal" if ratio.low >= 1 - MARGIN and ratio.high <= 1 + MARGIN else "undecided"


def wilson_interval(agreed: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of the share of rows that agree (Wilson score interval).

    Args:
        agreed: Number of rows that agree.
        rows: Number of rows, at least 1.
    """
    z = 1.959964
    share = agreed / rows
    middle = share + z * z / (2 * rows)
    half = z * float(np.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows)))
    whole = 1 + z * z / rows
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def pareto_front(rows: Sequence[Sequence[float]]) -> list[bool]:
    """Return for each row whether no other row is as small in every column and smaller in one.

    Args:
        rows: Rows of equal length; smaller values are better.
    """

    def beats(other: Sequence[float], row: Sequence[float]) -> bool:
        return all(a <= b for a, b in zip(other, row, strict=True)) and tuple(other) != tuple(row)

    return [not any(beats(other, row) for other in rows) for row in rows]
