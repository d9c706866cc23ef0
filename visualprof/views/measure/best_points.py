"""The point of a report that is best for something, and whether what tells it from others is more than chance.

Of the points that were measured in doubt (unstable, or on a busy host) one is chosen only where there is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.measure.significance import SIGNIFICANCE_LEVEL, p_value

# Of a report beside others: its best point is significantly better than all of theirs; significantly worse than the
# best; not significantly different from the best, or from the next; of a single repeat, or compared with one; doubtful.
Standing = Literal["best", "worse", "not_significant", "one_repeat", "doubtful"]


@dataclass(frozen=True)
class Objective:
    """What is wanted of a point: much of a number, or little."""

    value: Callable[[Point], float | None]
    maximize: bool

    def sort_key(self, point: Point) -> tuple[bool, float]:
        """The lowest is the best."""
        value = self.value(point) or 0.0
        return is_doubtful(point), -value if self.maximize else value

    def best(self, points: Iterable[Point]) -> Point | None:
        """The best point; of equal ones the first."""
        return min((p for p in points if self.value(p) is not None), key=self.sort_key, default=None)

    def p_value(self, a: Point, b: Point) -> float | None:
        """How likely chance alone makes two points differ like this; None where one was not measured repeatedly."""
        lists = [[v for p in point.repeats if (v := self.value(p)) is not None] for point in (a, b)]
        return p_value(*lists)


HIGHEST_THROUGHPUT = Objective(lambda p: p.samples_per_s, maximize=True)
LOWEST_LATENCY = Objective(lambda p: p.p50_ns, maximize=False)


def is_doubtful(point: Point) -> bool:
    """Whether its numbers may be others the next time."""
    return point.stable is False or point.host_busy is True


def tail_latency(point: Point) -> tuple[int, int] | None:
    """The highest percentile up to 99 for which n suffices, and its latency; None below p90."""
    for percent, value in ((99, point.p99_ns), (95, point.p95_ns), (90, point.p90_ns)):
        if value is not None:
            return percent, value
    return None


def best_within_slo(report: Report, slo_ns: int) -> Point | None:
    """The point of most samples a second whose tail stays within a limit."""
    return HIGHEST_THROUGHPUT.best(p for p in report.points if (tail_latency(p) or (0, slo_ns + 1))[1] <= slo_ns)


def equivalent_batches(points: Iterable[Point], best: Point | None, goal: Objective) -> list[int] | None:
    """Sizes of the points that are not significantly worse than the best; None where that cannot be told."""
    if best is None or is_doubtful(best) or len(best.repeats) < 2:
        return None
    others = (p for p in points if p is not best and not is_doubtful(p))
    return [p.batch for p in others if (likely := goal.p_value(best, p)) is not None and likely >= SIGNIFICANCE_LEVEL]


def standings(bests: Sequence[Point | None], goal: Objective) -> list[Standing | None]:
    """How the best points of several reports stand to each other; None without a point, or without another."""
    known = [point for point in bests if point is not None]
    sure = [point for point in known if not is_doubtful(point)]
    leader = goal.best(sure)

    def standing(point: Point | None) -> Standing | None:
        if point is None or len(known) < 2:
            return None
        if is_doubtful(point) or leader is None:
            return "doubtful"
        rivals = [other for other in sure if other is not point] if point is leader else [leader]
        return _against([goal.p_value(point, other) for other in rivals], "best" if point is leader else "worse")

    return [standing(point) for point in bests]


def _against(chances: Sequence[float | None], differs: Standing) -> Standing | None:
    if any(likely is not None and likely >= SIGNIFICANCE_LEVEL for likely in chances):
        return "not_significant"
    if any(likely is None for likely in chances):
        return "one_repeat"
    return differs if chances else None
