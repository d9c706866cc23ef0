"""Rates and areas of precision-recall and ROC curves, from counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.run_data.curves import CurveCounts
from visualprof.reader.trace import Floats


class Rates(NamedTuple):
    """Rates by threshold, (n,), NaN where the denominator is 0.

    Attributes:
        precision: Share of positive examples among those with at least this score.
        recall: Share of positive examples with at least this score; the true-positive rate.
        false_positive_rate: Share of negative examples with at least this score.
    """

    precision: Floats
    recall: Floats
    false_positive_rate: Floats


class Areas(NamedTuple):
    """Areas under the curves of one value, `None` if a rate is unknown.

    Attributes:
        pr: Average precision.
        roc: Area under the ROC curve.
    """

    pr: float | None
    roc: float | None


def rates_of(counts: CurveCounts) -> Rates:
    """Return the rates of counts."""
    positive, negative = counts.true_positive, counts.false_positive
    return Rates(
        precision=_ratio(positive, positive + negative),
        recall=_ratio(positive, positive + counts.false_negative),
        false_positive_rate=_ratio(negative, negative + counts.true_negative),
    )


def areas_of(rates: Rates) -> Areas:
    """Return the areas under both curves.

    The average precision is the sum of precision times the growth of recall, from the highest threshold down, without
    interpolation. The ROC area is that of trapezoids, from (0, 0) to (1, 1).

    Source: docs/views/curves.md#areas
    """
    recall, fall_out = rates.recall[::-1], rates.false_positive_rate[::-1]
    growth = np.diff(recall, prepend=0.0)
    precision = np.where(growth > 0, rates.precision[::-1], 0.0)
    average = float((growth * precision).sum()) if len(recall) else float("nan")
    x, y = (np.concatenate(([0.0], rate, [1.0])) for rate in (fall_out, recall))
    area = float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum()) if len(recall) else float("nan")
    return Areas(*(value if np.isfinite(value) else None for value in (average, area)))


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
