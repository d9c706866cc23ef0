"""Find what became slower from one measurement to the next. Source: docs/views/evaluation.md."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.reader.results.points import Point
from visualprof.views.measure.reports.best_points import HIGHEST_THROUGHPUT, LOWEST_LATENCY, Objective, is_doubtful
from visualprof.views.measure.reports.significance import SIGNIFICANCE_LEVEL

DEFAULT_MARGIN = 0.05
OPEN_LOOP_SCENARIOS = ("poisson", "Server")  # runs arrive independently, so throughput says nothing


def find_regressions(
    base: Sequence[Point], new: Sequence[Point], margin: float = DEFAULT_MARGIN
) -> list[tuple[int, float]]:
    """Return the batch sizes that take significantly longer, with the increase as a share (0.12: 1.12 times as long).

    Throughput is compared; for open-loop loads, median latency. Points that were unstable, on a
    busy host, throttled, or not repeated are left out.

    Args:
        base: The earlier points.
        new: The later points.
        margin: Smaller increases are not reported.
    """
    base_points = {(point.batch, point.load.scenario): point for point in base}
    matched = [(base_points[key], point) for point in new if (key := (point.batch, point.load.scenario)) in base_points]
    shares = [(new.batch, share) for before, new in matched if (share := _slowdown(before, new)) is not None]
    return [(batch, share) for batch, share in shares if share > margin]


def _slowdown(base: Point, new: Point) -> float | None:
    """Return the increase of the duration as a share, `None` if it is not significant."""
    if any(is_doubtful(point) or point.throttled is True for side in (base, new) for point in (side, *side.repeats)):
        return None
    goal: Objective = LOWEST_LATENCY if new.load.scenario in OPEN_LOOP_SCENARIOS else HIGHEST_THROUGHPUT
    old_value, new_value, probability = goal.value(base), goal.value(new), goal.p_value(base, new)
    if not old_value or not new_value or probability is None or probability >= SIGNIFICANCE_LEVEL:
        return None
    return (old_value / new_value if goal.maximize else new_value / old_value) - 1
