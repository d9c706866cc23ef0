"""Confidence intervals of means of few repeats, and tests for a difference of two means.

Source: docs/views/evaluation.md.

Student's t distribution is computed with the continued fraction of the incomplete beta function
(Numerical Recipes, 6.4), accurate to 1e-10, because SciPy is not a dependency.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, inf, lgamma, log, sqrt
from statistics import fmean, variance

CONFIDENCE = 0.95
SIGNIFICANCE_LEVEL = 0.05  # a difference with a smaller p-value is significant
_MAX_TERMS = 400
_TINY = 1e-300


def confidence_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the mean of repeats (Student's t); `None` for fewer than two."""
    n = len(values)
    if n < 2:
        return None
    mean, half = fmean(values), t_quantile(n - 1) * sqrt(variance(values) / n)
    return mean - half, mean + half


def p_value(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the two-sided p-value of Welch's test for equal means; `None` if a side has fewer than two values."""
    if min(len(a), len(b)) < 2:
        return None
    variance_a, variance_b = variance(a) / len(a), variance(b) / len(b)
    difference = abs(fmean(a) - fmean(b))
    if not variance_a + variance_b:
        return 0.0 if difference else 1.0
    degrees = (variance_a + variance_b) ** 2 / (variance_a**2 / (len(a) - 1) + variance_b**2 / (len(b) - 1))
    return two_sided_tail(difference / sqrt(variance_a + variance_b), degrees)


def two_sided_tail(t: float, freedom: float) -> float:
    """Return the share of Student's t distribution below -t and above t."""
    x = freedom / (freedom + t * t)
    a, b = freedom / 2, 0.5
    if x in (0.0, 1.0):
        return x
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    converges_fast = x < (a + 1) / (a + b + 2)  # otherwise the fraction of the other tail does
    return (
        front * _continued_fraction(a, b, x) / a if converges_fast else 1 - front * _continued_fraction(b, a, 1 - x) / b
    )


@cache
def t_quantile(freedom: float, tail: float = 1 - CONFIDENCE) -> float:
    """Return the t for which the share of the distribution below -t and above t is `tail`."""
    low, high = 0.0, 1000.0
    while two_sided_tail(high, freedom) > tail:
        high *= 2
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_tail(middle, freedom) > tail else (low, middle)
    return high


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value, last = d, inf
    for m in range(1, _MAX_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            c, d = _nonzero(1 + term / c), 1 / _nonzero(1 + term * d)
            value *= c * d
        if abs(value - last) < 1e-12 * abs(value):
            break
        last = value
    return value


def _nonzero(value: float) -> float:
    """Return the value, or a tiny one if it is too small to divide by."""
    return value if abs(value) > _TINY else _TINY
