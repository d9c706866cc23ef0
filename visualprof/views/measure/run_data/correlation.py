"""Rank correlation and importance of hyper-parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from visualprof.reader.run_data.trials import Setting, setting_number
from visualprof.reader.trace import Floats, Rows

MIN_TRIALS = 3  # with fewer, every correlation is perfect


class Effect(NamedTuple):
    """Relation of a hyper-parameter to a metric over trials.

    Attributes:
        trials: Trials with both.
        correlation: Spearman's rank correlation; `None` for texts and constant values.
        importance: Share of the variance of the metric's ranks that the hyper-parameter explains: eta squared, or the
            squared correlation if its values are distinct numbers; `None` if unknown.
    """

    trials: int
    correlation: float | None
    importance: float | None


def effect_of(settings: Sequence[Setting | None], metric: Sequence[float | None]) -> Effect:
    """Return the relation of a hyper-parameter to a metric; both have a value per trial, `None` if missing."""
    pairs = [
        (setting, value)
        for setting, value in zip(settings, metric, strict=True)
        if setting is not None and value is not None
    ]
    if len(pairs) < MIN_TRIALS:
        return Effect(len(pairs), None, None)
    ranks = rank(np.array([value for _, value in pairs], np.float64))
    numbers = np.array([setting_number(setting) for setting, _ in pairs])
    correlation = _correlation(rank(numbers), ranks) if np.isfinite(numbers).all() else None
    groups = {setting: place for place, setting in enumerate(dict.fromkeys(setting for setting, _ in pairs))}
    group = np.array([groups[setting] for setting, _ in pairs])
    if len(groups) == len(pairs):  # each value once: the groups explain nothing
        return Effect(len(pairs), correlation, None if correlation is None else correlation**2)
    return Effect(len(pairs), correlation, _explained(group, ranks))


def rank(values: Floats) -> Floats:
    """Return the ranks of values, (n,); equal values share their mean rank."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.searchsorted(ordered, ordered, side="left")
    end = np.searchsorted(ordered, ordered, side="right")
    ranks: Floats = np.empty(len(values))
    ranks[order] = (start + end - 1) / 2
    return ranks


def _correlation(a: Floats, b: Floats) -> float | None:
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else None


def _explained(group: Rows, ranks: Floats) -> float | None:
    """Return the share of the variance of ranks that lies between groups (eta squared)."""
    total = float(((ranks - ranks.mean()) ** 2).sum())
    if total == 0:
        return None
    count = np.bincount(group)
    means = np.bincount(group, ranks) / count
    return float((count * (means - ranks.mean()) ** 2).sum()) / total
