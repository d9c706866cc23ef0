"""Verdicts on candidates, from rounds taken in turns: pure functions. Definitions: docs/advice.md, ADRs 59 and 60."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Verdict = Literal["faster", "equal", "slower", "undecided", "wrong", "no effect", "failed"]

MARGIN = 0.05  # a difference that nobody would change a model for
VERDICT_ROUNDS = (30, 60, 120, 240)  # rounds after which a verdict is tried
CONFIDENCE = 1 - 0.05 / len(VERDICT_ROUNDS)  # of one look: 95 % of all of them together
LATENCY_QUANTILE = 0.1  # quantile of the rounds: what other programs do only adds time
BLOCK = 10  # rounds that are drawn together, as neighbours resemble each other; of few rounds a third
RESAMPLES = 2000
SEED = 20261122


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float


def latency_interval(rounds_ns: Sequence[float]) -> Interval:
    """The tenth of the rounds that was disturbed least.

    Args: rounds_ns: n >= 1, in their order.
    """
    rounds = np.asarray(rounds_ns, np.float64)
    return _interval(_low(rounds), _low(rounds[_draws(len(rounds))]))


def ratio_interval(candidate_ns: Sequence[float], original_ns: Sequence[float]) -> Interval:
    """Latency of a candidate as a share of the original's; below 1 is faster.

    Args: rounds in their order, of the same number: those of one number were taken one after the other.
    Raises: ValueError: their numbers differ.
    """
    pairs: Any = np.asarray([*zip(candidate_ns, original_ns, strict=True)], np.float64)
    ours, theirs, draws = pairs[:, 0], pairs[:, 1], _draws(len(candidate_ns))
    return _interval(_low(ours) / _low(theirs), _low(ours[draws]) / _low(theirs[draws]))


def _low(rounds: Any) -> Any:
    """That quantile along the last dimension."""
    return np.quantile(rounds, LATENCY_QUANTILE, axis=-1)


def _draws(n: int) -> Any:
    """Numbers of rounds, [RESAMPLES, n]: whole blocks of neighbours, the last round being one of the first."""
    block = max(1, min(BLOCK, n // 3))
    starts = np.random.default_rng(SEED).integers(0, n, (RESAMPLES, -(-n // block)))
    return ((starts[:, :, None] + np.arange(block)) % n).reshape(RESAMPLES, -1)[:, :n]


def _interval(value: Any, resampled: Any) -> Interval:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Interval(float(value), float(low), float(high))


def noise_margin(same: Interval) -> float:
    """The share that a ratio has to differ from 1 by: 5 %, or what the original differs from itself by.

    Args: same: the ratio of the original to a second process of it. How wide its interval is says how busy the machine
        was just then, which the interval of a candidate says for itself.
    """
    return max(MARGIN, abs(same.value - 1))


def judge_ratio(ratio: Interval, margin: float) -> Verdict:
    """Faster or slower where the whole interval lies beyond the margin, equal where it lies within 5 % of 1."""
    if ratio.high < 1 - margin:
        return "faster"
    if ratio.low > 1 + margin:
        return "slower"
    return "equal" if ratio.low >= 1 - MARGIN and ratio.high <= 1 + MARGIN else "undecided"


def wilson_interval(agreed: int, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share of rows that agree (Wilson's score interval).

    Args: rows: at least 1.
    """
    z = 1.959964
    share = agreed / rows
    middle = share + z * z / (2 * rows)
    half = z * float(np.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows)))
    whole = 1 + z * z / rows
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def pareto_front(rows: Sequence[Sequence[float]]) -> list[bool]:
    """Which rows no other row beats: it is as small in every column, and smaller in one.

    Args: rows: of equally many numbers, all the better the smaller.
    """

    def beats(other: Sequence[float], row: Sequence[float]) -> bool:
        return all(a <= b for a, b in zip(other, row, strict=True)) and tuple(other) != tuple(row)

    return [not any(beats(other, row) for other in rows) for row in rows]
