"""Measured reports compared: the table of points, the best points, and verdicts on their reliability."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.reports.best_points import (
    HIGHEST_THROUGHPUT,
    LOWEST_LATENCY,
    best_within_slo,
    equivalent_batches,
    standings,
    tail_latency,
)
from visualprof.views.measure.reports.loads import cost_per_million, energy_per_million
from visualprof.views.measure.reports.report_history import ReportHistory
from visualprof.views.measure.reports.significance import confidence_interval
from visualprof.views.measure.reports.verdicts import Verdict


class PointColumns(Columns):
    """One row per point; `None` where a value is unknown, or where n is too small for a percentile.

    Attributes:
        repeats: Number of repeats, each in its own process; the values are means over the repeats.
        samples_per_s_margin: Half of the 95 % confidence interval of the mean; `None` with a single
            repeat. The other margins are like this one.
        earlier: Number of earlier measurements with the same configuration; `None` instead of 0.
        earlier_least_p50_ns: Smallest median of the earlier measurements; `None` without them. The other
            `earlier_` columns are like this one.
    """

    report: kinds.TextColumn
    spec: kinds.NameColumn
    batch: kinds.CountColumn
    qps: kinds.CountColumn
    samples_per_s: kinds.CountColumn
    whole_samples_per_s: kinds.CountColumn
    mean_ns: kinds.DurationColumn
    min_ns: kinds.DurationColumn
    max_ns: kinds.DurationColumn
    p50_ns: kinds.DurationColumn
    p90_ns: kinds.DurationColumn
    p95_ns: kinds.DurationColumn
    p99_ns: kinds.DurationColumn
    repeats: kinds.CountColumn
    samples_per_s_margin: kinds.CountColumn
    p50_margin_ns: kinds.DurationColumn
    p99_margin_ns: kinds.DurationColumn
    earlier: kinds.CountColumn
    earlier_least_p50_ns: kinds.DurationColumn
    earlier_most_p50_ns: kinds.DurationColumn
    earlier_least_samples_per_s: kinds.CountColumn
    earlier_most_samples_per_s: kinds.CountColumn
    n: kinds.CountColumn
    first_ns: kinds.DurationColumn
    load_ns: kinds.DurationColumn
    rss_bytes: kinds.SizeColumn
    gpu_memory_bytes: kinds.SizeColumn
    energy_j_per_sample: kinds.EnergyColumn
    energy_j_per_million: kinds.EnergyColumn
    cost_per_million: kinds.CountColumn
    scenario: kinds.WordColumn
    concurrency: kinds.CountColumn
    offered_per_s: kinds.CountColumn
    verdict: kinds.WordColumn
    stable: kinds.FlagColumn
    host_busy: kinds.FlagColumn
    throttled: kinds.FlagColumn
    pressure: kinds.RatioColumn
    involuntary_switches: kinds.CountColumn


class BestColumns(Columns):
    """The best points of each report per objective, `None` without one, and the ids of its verdicts.

    Attributes:
        most_samples_alike: Batch sizes of the report that are not significantly worse; `None` if
            that cannot be determined. The other `_alike` columns are like this one.
        most_samples_standing: `Standing` among the best points of all reports. The other
            `_standing` columns are like this one.
    """

    report: kinds.TextColumn
    spec: kinds.NameColumn
    most_samples_batch: kinds.CountColumn
    most_samples_per_s: kinds.CountColumn
    most_samples_alike: kinds.ListColumn
    most_samples_standing: kinds.WordColumn
    least_latency_batch: kinds.CountColumn
    least_latency_ns: kinds.DurationColumn
    least_latency_alike: kinds.ListColumn
    least_latency_standing: kinds.WordColumn
    slo_batch: kinds.CountColumn
    slo_samples_per_s: kinds.CountColumn
    slo_percentile: kinds.IdentifierColumn
    slo_latency_ns: kinds.DurationColumn
    slo_alike: kinds.ListColumn
    slo_standing: kinds.WordColumn
    verdicts: kinds.ListColumn


MARGIN_FIELDS = {"samples_per_s_margin": "samples_per_s", "p50_margin_ns": "p50_ns", "p99_margin_ns": "p99_ns"}


def point_columns(reports: Sequence[Report], history: ReportHistory) -> PointColumns:
    """Return every point of the reports, in the order of the reports, with the spread of earlier measurements."""
    rows = [(report, point) for report in reports for point in report.points]
    earlier = [history.earlier_points(report, point.batch) for report, point in rows]
    point_fields = [
        name for name in PointColumns.__struct_fields__ if name in Point.__dataclass_fields__ and name != "repeats"
    ]
    return PointColumns(
        report=[report.id for report, _ in rows],
        spec=[report.spec for report, _ in rows],
        repeats=[len(point.repeats) or 1 for _, point in rows],
        energy_j_per_million=[energy_per_million(point) for _, point in rows],
        cost_per_million=[cost_per_million(report, point) for report, point in rows],
        scenario=[point.load.scenario or None for _, point in rows],
        concurrency=[point.load.step.concurrency for _, point in rows],
        offered_per_s=[point.load.step.offered_per_s for _, point in rows],
        verdict=[point.load.verdict or None for _, point in rows],
        earlier=[len(points) or None for points in earlier],
        **{
            f"earlier_{end}_{field}": [choose(known_values(points, field), default=None) for points in earlier]
            for field in ("p50_ns", "samples_per_s")
            for end, choose in (("least", min), ("most", max))
        },
        **{
            name: [confidence_margin(point.repeats, field) for _, point in rows]
            for name, field in MARGIN_FIELDS.items()
        },
        **{name: [getattr(point, name) for _, point in rows] for name in point_fields},
    )


def known_values(points: Sequence[Point], field: str) -> list[float]:
    """Return the known values of a metric."""
    return [value for point in points if (value := getattr(point, field)) is not None]


def confidence_margin(repeats: Sequence[object], field: str) -> float | None:
    """Return half of the 95 % confidence interval of a number over repeats, in the number's unit.

    `None` for fewer than two.
    """
    values = [value for repeat in repeats if (value := getattr(repeat, field)) is not None]
    interval = confidence_interval(values) if len(values) == len(repeats) else None
    margin = (interval[1] - interval[0]) / 2 if interval else None
    return round(margin) if margin is not None and field.endswith("_ns") else margin


def best_columns(reports: Sequence[Report], slo_ns: int | None, verdicts: Sequence[Verdict]) -> BestColumns:
    """Return the best points of each report."""
    fastest, quickest = (
        [objective.best(report.points) for report in reports] for objective in (HIGHEST_THROUGHPUT, LOWEST_LATENCY)
    )
    within_slo = [best_within_slo(report, slo_ns) if slo_ns is not None else None for report in reports]
    tail_latencies = [tail_latency(point) if point else None for point in within_slo]
    objectives = {
        "most_samples": (fastest, HIGHEST_THROUGHPUT),
        "least_latency": (quickest, LOWEST_LATENCY),
        "slo": (within_slo, HIGHEST_THROUGHPUT),
    }
    columns: dict[str, list[Any]] = {}
    for name, (points, objective) in objectives.items():
        eligible = [
            [point for point in report.points if name != "slo" or (tail_latency(point) or (0, inf))[1] <= (slo_ns or 0)]
            for report in reports
        ]
        columns[f"{name}_batch"] = [point.batch if point else None for point in points]
        columns[f"{name}_alike"] = [
            equivalent_batches(candidates, point, objective) for candidates, point in zip(eligible, points, strict=True)
        ]
        columns[f"{name}_standing"] = standings(points, objective)
    return BestColumns(
        report=[report.id for report in reports],
        spec=[report.spec for report in reports],
        most_samples_per_s=[point.samples_per_s if point else None for point in fastest],
        least_latency_ns=[point.p50_ns if point else None for point in quickest],
        slo_samples_per_s=[point.samples_per_s if point else None for point in within_slo],
        slo_percentile=[percentile_latency[0] if percentile_latency else None for percentile_latency in tail_latencies],
        slo_latency_ns=[percentile_latency[1] if percentile_latency else None for percentile_latency in tail_latencies],
        verdicts=[
            list(dict.fromkeys(verdict.id for verdict in verdicts if verdict.report == report.id)) for report in reports
        ],
        **columns,
    )
