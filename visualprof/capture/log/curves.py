"""Precision-recall and ROC curves: counts by threshold."""

from __future__ import annotations

from typing import Any

from visualprof.capture.log.arrays import as_array, numpy
from visualprof.capture.log.fields import integer
from visualprof.capture.log.messages import float_matrix

DEFAULT_THRESHOLDS, MAX_THRESHOLDS = 127, 100_000


def counts_by_threshold(labels: Any, predictions: Any, thresholds: int, weights: Any) -> Any:
    """Return true positives, false positives, true negatives and false negatives, (4, n).

    Thresholds are spread evenly from 0 to 1; a prediction at a threshold is positive.

    Args:
        labels: 0 or 1, or whether each is positive.
        predictions: Numbers from 0 to 1.
        thresholds: Number of thresholds.
        weights: Weight of each prediction, `None` for 1.

    Raises:
        ValueError: The shapes differ, or there are no predictions.
    """
    np = numpy()
    positive = as_array(labels).reshape(-1).astype(np.float64)
    scores = as_array(predictions).reshape(-1).astype(np.float64)
    weight = np.ones(len(scores)) if weights is None else np.broadcast_to(as_array(weights), (len(scores),))
    if len(positive) != len(scores) or not len(scores):
        raise ValueError(f"{len(positive)} labels for {len(scores)} predictions")
    last = min(max(thresholds, 2), MAX_THRESHOLDS) - 1
    bucket = np.floor(scores.clip(0, 1) * last).astype(np.int64)
    true = np.bincount(bucket, positive * weight, last + 1)[::-1].cumsum()[::-1]
    false = np.bincount(bucket, (1 - positive) * weight, last + 1)[::-1].cumsum()[::-1]
    return np.stack([true, false, false[0] - false, true[0] - true])


def pr_curve(tag: str, counts: Any) -> bytes:
    """Return the value of a precision-recall curve from its counts, (4, n)."""
    true, false, _, missed = counts
    return _curve(tag, counts, "pr_curves", _ratio(true, true + false), _ratio(true, true + missed))


def roc_curve(tag: str, counts: Any) -> bytes:
    """Return the value of a ROC curve from its counts, (4, n): its last rows are rates of true and false positives."""
    true, false, rejected, missed = counts
    return _curve(tag, counts, "roc_curves", _ratio(true, true + missed), _ratio(false, false + rejected))


def _curve(tag: str, counts: Any, plugin: str, first_rate: Any, second_rate: Any) -> bytes:
    rows = numpy().vstack([counts, first_rate, second_rate]).astype("<f4")
    settings = integer(2, rows.shape[1])
    return float_matrix(tag, rows.shape, rows.tobytes(), plugin, settings)


def _ratio(part: Any, whole: Any) -> Any:
    return part / numpy().maximum(whole, 1e-7)
