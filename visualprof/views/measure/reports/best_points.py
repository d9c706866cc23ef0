"""The best point of a report for an objective, and whether its lead over other points is statistically significant.

Points that were measured unreliably (unstable, or on a busy host) are candidates: other work on the machine can only
make a point slower. They are marked, and their lead is never called significant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.measure.reports.significance import SIGNIFICANCE_LEVEL, p_value

# Rank of a report's best point among those of other reports:
# - best: significantly better than all others
# - worse: significantly worse than the best
# - not_significant: not significantly different from the best, or (for the best) from another one
# - one_repeat: it or a compared point was measured only once
# - doubtful: measured unreliably
Standing = Literal["best", "worse", "not_significant", "one_repeat", "doubtful"]


@dataclass(frozen=True)
class Objective:
    """A number of a point to maximize or minimize."""

    value: Callable[[Point], float | None]
    maximize: bool

    def sort_key(self, point: Point) -> tuple[float, bool]:
        """Return a key by which the best point sorts first; a reliable one before an equal one."""
        value = self.value(point) or 0.0
        return -value if self.maximize else value, is_doubtful(point)

    def best(self, points: Iterable[Point]) -> Point | None:
        """Return the best point; the first one among equals."""
        return min((point for point in points if self.value(point) is not None), key=self.sort_key, default=None)

    def p_value(self, a: Point, b: Point) -> float | None:
        """Return the probability that two equal points differ this much by chance.

        `None` if one was not measured repeatedly.
        """
        lists = [[value for repeat in point.repeats if (value := self.value(repeat)) is not None] for point in (a, b)]
        return p_value(*lists)


HIGHEST_THROUGHPUT = Objective(lambda p: p.samples_per_s, maximize=True)
LOWEST_LATENCY = Objective(lambda p: p.p50_ns, maximize=False)


def is_doubtful(point: Point) -> bool:
    """Return whether the numbers of a point may not be reproducible."""
    return point.stable is False or point.host_busy is True


def tail_latency(point: Point) -> tuple[int, int] | None:
    """Return the highest percentile up to 99 for which there are enough runs, and its latency; `None` below p90."""
    for percent, value in ((99, point.p99_ns), (95, point.p95_ns), (90, point.p90_ns)):
        if value is not None:
            return percent, value
    return None


def best_within_slo(report: Report, slo_ns: int) -> Point | None:
    """Return the point with the highest throughput whose tail latency is within a limit."""
    return HIGHEST_THROUGHPUT.best(
        point for point in report.points if (tail_latency(point) or (0, slo_ns + 1))[1] <= slo_ns
    )


def equivalent_batches(points: Iterable[Point], best: Point | None, goal: Objective) -> list[int] | None:
    """Return the batch sizes of the points that are not significantly worse than the best.

    `None` if that cannot be determined.
    """
    if best is None or is_doubtful(best) or len(best.repeats) < 2:
        return None
    candidates = (point for point in points if point is not best and not is_doubtful(point))
    return [
        point.batch
        for point in candidates
        if (probability := goal.p_value(best, point)) is not None and probability >= SIGNIFICANCE_LEVEL
    ]


def standings(bests: Sequence[Point | None], goal: Objective) -> list[Standing | None]:
    """Return how the best points of several reports compare.

    `None` without a point, or without another point to compare with.
    """
    points = [point for point in bests if point is not None]
    reliable = [point for point in points if not is_doubtful(point)]
    leader = goal.best(points)

    def standing(point: Point | None) -> Standing | None:
        if point is None or len(points) < 2:
            return None
        if is_doubtful(point) or leader is None:
            return "doubtful"
        rivals = [rival for rival in reliable if rival is not point] if point is leader else [leader]
        return _standing([goal.p_value(point, rival) for rival in rivals], "best" if point is leader else "worse")

    return [standing(point) for point in bests]


def _standing(p_values: Sequence[float | None], if_different: Standing) -> Standing | None:
    """Return the standing of a point, given the p-values against its rivals.

    Args:
        p_values: P-values.
        if_different: The standing if all differences are significant.
    """
    if any(probability is not None and probability >= SIGNIFICANCE_LEVEL for probability in p_values):
        return "not_significant"
    if any(probability is None for probability in p_values):
        return "one_repeat"
    return if_different if p_values else None
