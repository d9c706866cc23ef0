"""The point of a report that is best for something, and whether what tells it from others is more than chance.

Of the points that were measured in doubt (unstable, or on a busy host) one is chosen only where there is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.measure.significance import LEVEL, chance

# Of a report beside others: its best point is significantly better than all of theirs; significantly worse than the
# best; not significantly different from the best, or from the next; of a single repeat, or compared with one; doubtful.
Standing = Literal["best", "worse", "not_significant", "one_repeat", "doubtful"]


@dataclass(frozen=True)
class Goal:
    """What is wanted of a point: much of a number, or little."""

    value: Callable[[Point], float | None]
    much: bool

    def rank(self, point: Point) -> tuple[bool, float]:
        """The lowest is the best."""
        value = self.value(point) or 0.0
        return doubtful(point), -value if self.much else value

    def chosen(self, points: Iterable[Point]) -> Point | None:
        """The best point; of equal ones the first."""
        return min((p for p in points if self.value(p) is not None), key=self.rank, default=None)

    def chance(self, a: Point, b: Point) -> float | None:
        """How likely chance alone makes two points differ like this; None where one was not measured repeatedly."""
        lists = [[v for p in point.repeats if (v := self.value(p)) is not None] for point in (a, b)]
        return chance(*lists)


MOST_SAMPLES = Goal(lambda p: p.samples_per_s, much=True)
LEAST_LATENCY = Goal(lambda p: p.p50_ns, much=False)


def doubtful(point: Point) -> bool:
    """Whether its numbers may be others the next time."""
    return point.stable is False or point.host_busy is True


def tail(point: Point) -> tuple[int, int] | None:
    """The highest percentile up to 99 for which n suffices, and its latency; None below p90."""
    for percent, value in ((99, point.p99_ns), (95, point.p95_ns), (90, point.p90_ns)):
        if value is not None:
            return percent, value
    return None


def within(report: Report, slo_ns: int) -> Point | None:
    """The point of most samples a second whose tail stays within a limit."""
    return MOST_SAMPLES.chosen(p for p in report.points if (tail(p) or (0, slo_ns + 1))[1] <= slo_ns)


def alike(points: Iterable[Point], best: Point | None, goal: Goal) -> list[int] | None:
    """Sizes of the points that are not significantly worse than the best; None where that cannot be told."""
    if best is None or doubtful(best) or len(best.repeats) < 2:
        return None
    others = (p for p in points if p is not best and not doubtful(p))
    return [p.batch for p in others if (likely := goal.chance(best, p)) is not None and likely >= LEVEL]


def standings(bests: Sequence[Point | None], goal: Goal) -> list[Standing | None]:
    """How the best points of several reports stand to each other; None without a point, or without another."""
    known = [point for point in bests if point is not None]
    sure = [point for point in known if not doubtful(point)]
    leader = goal.chosen(sure)

    def standing(point: Point | None) -> Standing | None:
        if point is None or len(known) < 2:
            return None
        if doubtful(point) or leader is None:
            return "doubtful"
        rivals = [other for other in sure if other is not point] if point is leader else [leader]
        return _against([goal.chance(point, other) for other in rivals], "best" if point is leader else "worse")

    return [standing(point) for point in bests]


def _against(chances: Sequence[float | None], differs: Standing) -> Standing | None:
    if any(likely is not None and likely >= LEVEL for likely in chances):
        return "not_significant"
    if any(likely is None for likely in chances):
        return "one_repeat"
    return differs if chances else None
