"""Load tests of a model: rate and latency of each step, and cost and energy per million samples."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.reader.results.points import Point, Step
from visualprof.reader.results.report import Report
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns

MILLION = 1e6
SECONDS_PER_HOUR = 3600.0
STEP_FIELDS = (
    "concurrency",
    "offered_per_s",
    "achieved_per_s",
    "n",
    "unserved",
    "p50_ns",
    "tail_ns",
    "tail_bound_ns",
)


class LoadColumns(Columns):
    """One row per step of a load test; `None` where unknown.

    Attributes:
        offered_per_s: Runs that arrived per second; `None` in a closed loop, in which each run starts
            when another run ends.
        tail_ns: Latency at `percentile`.
        tail_bound_ns: Upper bound of `tail_ns` with 99 % confidence.
    """

    report: kinds.TextColumn
    spec: kinds.NameColumn
    batch: kinds.CountColumn
    scenario: kinds.WordColumn
    concurrency: kinds.CountColumn
    offered_per_s: kinds.CountColumn
    achieved_per_s: kinds.CountColumn
    n: kinds.CountColumn
    unserved: kinds.CountColumn
    p50_ns: kinds.DurationColumn
    tail_ns: kinds.DurationColumn
    tail_bound_ns: kinds.DurationColumn
    percentile: kinds.CountColumn
    limit_ns: kinds.DurationColumn
    verdict: kinds.WordColumn


def load_columns(reports: Sequence[Report]) -> LoadColumns:
    """Return every load step of the reports' points, in the order of measurement."""
    rows = [(report, point, step) for report in reports for point in report.points for step in point.load.steps]
    measured = {name: [getattr(step, name) for _, _, step in rows] for name in STEP_FIELDS}
    return LoadColumns(
        report=[report.id for report, _, _ in rows],
        spec=[report.spec for report, _, _ in rows],
        batch=[point.batch for _, point, _ in rows],
        scenario=[point.load.scenario for _, point, _ in rows],
        percentile=[point.load.percentile for _, point, _ in rows],
        limit_ns=[point.load.limit_ns for _, point, _ in rows],
        verdict=[step.verdict or None for _, _, step in rows],
        **measured,
    )


def load_curves(point: Point) -> list[list[Step]]:
    """Return the load steps of a point per curve, sorted by rate.

    A closed loop is one curve; an open loop has one curve per concurrency.
    """
    measured = [step for step in point.load.steps if step.achieved_per_s is not None and step.tail_ns]
    concurrencies = sorted({step.concurrency or 0 for step in measured})
    closed_loop = [step for step in measured if step.offered_per_s is None]
    open_loops = [
        [step for step in measured if step.offered_per_s is not None and (step.concurrency or 0) == count]
        for count in concurrencies
    ]
    curves = open_loops if any(open_loops) else [closed_loop]  # in a search, the closed loop is only the starting point
    return [sorted(curve, key=lambda step: step.achieved_per_s or 0.0) for curve in curves if curve]


def cost_per_million(report: Report, point: Point) -> float | None:
    """Return the cost of a million samples at the rate of the point, in the currency of the price."""
    if report.price_per_hour is None or not point.samples_per_s or point.samples_per_s <= 0:
        return None
    return report.price_per_hour / SECONDS_PER_HOUR / point.samples_per_s * MILLION


def energy_per_million(point: Point) -> float | None:
    """Return the device energy for a million samples, in joules."""
    return None if point.energy_j_per_sample is None else point.energy_j_per_sample * MILLION
