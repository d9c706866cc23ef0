"""What has become slower from one measurement to the next of the same. Source: docs/views.md#evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.reader.results.points import Point
from visualprof.views.measure.best_points import HIGHEST_THROUGHPUT, LOWEST_LATENCY, Objective, is_doubtful
from visualprof.views.measure.significance import SIGNIFICANCE_LEVEL

DEFAULT_MARGIN = 0.05
OPEN_LOOP_SCENARIOS = ("poisson", "Server")  # runs that come when they come: how many a second says nothing


def find_regressions(
    base: Sequence[Point], new: Sequence[Point], margin: float = DEFAULT_MARGIN
) -> list[tuple[int, float]]:
    """Sizes that take significantly longer, with the share by which each does (0.12: a run takes 1.12 of its time).

    Compared are samples a second; where runs arrive by themselves, median latencies. Left out is what was unstable, on
    a busy host, throttled, or not repeated, then or now.

    Args: margin: what is shorter is not told.
    """
    then = {(point.batch, point.load.scenario): point for point in base}
    pairs = [(then[key], point) for point in new if (key := (point.batch, point.load.scenario)) in then]
    shares = [(new.batch, share) for old, new in pairs if (share := _longer(old, new)) is not None]
    return [(batch, share) for batch, share in shares if share > margin]


def _longer(old: Point, new: Point) -> float | None:
    """By what share it takes longer, None where that is not sure."""
    if any(is_doubtful(point) or point.throttled is True for one in (old, new) for point in (one, *one.repeats)):
        return None
    goal: Objective = LOWEST_LATENCY if new.load.scenario in OPEN_LOOP_SCENARIOS else HIGHEST_THROUGHPUT
    a, b, likely = goal.value(old), goal.value(new), goal.p_value(old, new)
    if not a or not b or likely is None or likely >= SIGNIFICANCE_LEVEL:
        return None
    return (a / b if goal.maximize else b / a) - 1
