"""How sure a mean of a few repeats is, and whether two of them differ. Source: docs/views.md#evaluation.

Student's t distribution by the continued fraction of the incomplete beta function (Numerical Recipes, 6.4), to 1e-10:
there is no SciPy here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, inf, lgamma, log, sqrt
from statistics import fmean, variance

CONFIDENCE = 0.95
SIGNIFICANCE_LEVEL = 0.05  # a difference that chance makes less often is significant
_TERMS = 400
_LEAST = 1e-300


def confidence_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % confidence interval of the mean of independent repeats, by Student's t; None for fewer than two."""
    n = len(values)
    if n < 2:
        return None
    mean, half = fmean(values), t_quantile(n - 1) * sqrt(variance(values) / n)
    return mean - half, mean + half


def p_value(a: Sequence[float], b: Sequence[float]) -> float | None:
    """How likely means lie so far apart by chance alone: Welch's test, two-sided; None with fewer than two values."""
    if min(len(a), len(b)) < 2:
        return None
    of_a, of_b = variance(a) / len(a), variance(b) / len(b)
    between = abs(fmean(a) - fmean(b))
    if not of_a + of_b:
        return 0.0 if between else 1.0
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    return two_sided_tail(between / sqrt(of_a + of_b), freedom)


def two_sided_tail(t: float, freedom: float) -> float:
    """The share of Student's t distribution beyond -t and t."""
    x = freedom / (freedom + t * t)
    a, b = freedom / 2, 0.5
    if x in (0.0, 1.0):
        return x
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    near = x < (a + 1) / (a + b + 2)  # where the fraction converges fast; elsewhere that of the other end does
    return front * _fraction(a, b, x) / a if near else 1 - front * _fraction(b, a, 1 - x) / b


@cache
def t_quantile(freedom: float, beyond: float = 1 - CONFIDENCE) -> float:
    """The t beyond which, and beyond -t, lies that share of the distribution."""
    low, high = 0.0, 1000.0
    while two_sided_tail(high, freedom) > beyond:
        high *= 2
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_tail(middle, freedom) > beyond else (low, middle)
    return high


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value, last = d, inf
    for m in range(1, _TERMS):
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
    """A value that can be divided by."""
    return value if abs(value) > _LEAST else _LEAST
