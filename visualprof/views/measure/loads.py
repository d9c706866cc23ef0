"""What a load did to a model: each step's rate and latency, and what a million samples take and cost."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.reader.results.points import Point, Step
from visualprof.reader.results.report import Report
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns

MILLION = 1e6
HOUR_S = 3600.0
STEP_FIELDS = (
    "concurrency", "offered_per_s", "achieved_per_s", "n", "unserved", "p50_ns", "tail_ns", "tail_bound_ns",
)  # fmt: skip


class LoadColumns(Columns):
    """One row a step of a load; None where unknown.

    offered_per_s: runs that arrived a second, None where each began when another had ended. tail_ns: latency at
    `percentile`; tail_bound_ns: what that is at most, with 99 % confidence.
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
    """Every step of the reports' points, in the order of measuring."""
    rows = [(r, p, step) for r in reports for p in r.points for step in p.load.steps]
    measured = {name: [getattr(step, name) for _, _, step in rows] for name in STEP_FIELDS}
    return LoadColumns(
        report=[r.id for r, _, _ in rows],
        spec=[r.spec for r, _, _ in rows],
        batch=[p.batch for _, p, _ in rows],
        scenario=[p.load.scenario for _, p, _ in rows],
        percentile=[p.load.percentile for _, p, _ in rows],
        limit_ns=[p.load.limit_ns for _, p, _ in rows],
        verdict=[step.verdict or None for _, _, step in rows],
        **measured,
    )


def load_curves(point: Point) -> list[list[Step]]:
    """The steps of a point that lie on one line, by their rate: of a closed loop all, else those of a concurrency."""
    known = [step for step in point.load.steps if step.achieved_per_s is not None and step.tail_ns]
    lanes = sorted({step.concurrency or 0 for step in known})
    closed = [step for step in known if step.offered_per_s is None]
    opened = [[s for s in known if s.offered_per_s is not None and (s.concurrency or 0) == count] for count in lanes]
    lines = opened if any(opened) else [closed]  # of a search the closed loop is only where it begins
    return [sorted(line, key=lambda step: step.achieved_per_s or 0.0) for line in lines if line]


def cost_per_million(report: Report, point: Point) -> float | None:
    """What a million samples cost at the rate of the point, in the currency of the price."""
    if report.price_per_hour is None or not point.samples_per_s or point.samples_per_s <= 0:
        return None
    return report.price_per_hour / HOUR_S / point.samples_per_s * MILLION


def energy_per_million(point: Point) -> float | None:
    """Joules of the device for a million samples."""
    return None if point.energy_j_per_sample is None else point.energy_j_per_sample * MILLION
