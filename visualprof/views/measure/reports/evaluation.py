"""Measured reports compared: the table of points, the best points, and verdicts on their reliability."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Annotated, Any, Literal, get_args

import msgspec

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import kinds_by_key
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

MIN_SAMPLES = {
    50: 11,
    90: 64,
    95: 130,
    99: 662,
}  # samples per percentile: 99 % confidence, one sample above allowed; docs/measuring.md
MIN_THROUGHPUT_SHARE = 0.95  # below this share of the best batch size's throughput, a larger batch is a loss
SLOW_FIRST_RUN_FACTOR = 10  # a first run is slow if it takes longer than this many medians
Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_LOW_PRECISION = {"bf16", "f16"}
_ON_GPU = re.compile(r"cuda|tensorrt|rocm|migraphx", re.IGNORECASE)


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


# The numbers that a verdict is based on; which ones depends on the rule.
VerdictEvidence = Annotated[
    Mapping[str, int | float | str | None],
    kinds_by_key(
        pressure_ratio="ratio",
        involuntary_switches_per_s="count",
        spread_ratio="ratio",
        least_p50_ns="ns",
        most_p50_ns="ns",
        mean_spread_ratio="ratio",
        p99_spread_ratio="ratio",
        samples_per_s="count",
        best_samples_per_s="count",
        best_batch="count",
        first_ns="ns",
        p50_ns="ns",
        n="count",
        needed_n="count",
        percentile="count",
        chance_ratio="ratio",
        cpu="name",
        day="word",
    ),
]


class Verdict(msgspec.Struct, frozen=True):
    """A reason to be careful with a number.

    Attributes:
        severity: high: the number is not what was requested; medium: it may not be reproducible;
            low: for information.
        batch: Batch size for which the evidence is strongest; `None` for the whole report.
        batches: All batch sizes that are affected.
    """

    id: str
    severity: Severity
    report: str
    batch: int | None
    batches: tuple[int, ...]
    evidence: VerdictEvidence


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


def find_verdicts(reports: Sequence[Report]) -> list[Verdict]:
    """Return all verdicts on some reports, the most severe first."""
    single = (verdict for report in reports for rule in VERDICT_RULES for verdict in rule(report))
    return sorted([*single, *find_joint_verdicts(reports)], key=lambda verdict: SEVERITIES.index(verdict.severity))


def find_joint_verdicts(reports: Sequence[Report]) -> list[Verdict]:
    """Return the verdicts that follow from comparing the reports."""
    return [*_precision_differs(reports), *_not_significant(reports)]


def _worst_point_verdict(
    report: Report,
    name: str,
    severity: Severity,
    measure: Callable[[Point], float | None],
    **evidence: Callable[[Point], float | None],
) -> Iterator[Verdict]:
    """Yield one verdict for all points with a measure, with the evidence of the point where it is largest."""
    affected = [(value, point) for point in report.points if (value := measure(point)) is not None]
    if affected:
        worst = max(affected, key=lambda item: item[0])[1]
        numbers = {key: value(worst) for key, value in evidence.items()}
        yield Verdict(name, severity, report.id, worst.batch, tuple(point.batch for _, point in affected), numbers)


def _report_verdict(report: Report, name: str, severity: Severity, **evidence: str | None) -> Iterator[Verdict]:
    """Yield one verdict for all points of a report."""
    yield Verdict(name, severity, report.id, None, tuple(point.batch for point in report.points), evidence)


def _unstable_spreads(point: Point) -> dict[str, float | None]:
    """Return how much the median, mean and p99 of the thirds differ, `None` where they agree or are unknown.

    Limits as in `visualprof.remote.child.measure`.
    """
    limits = {"spread_ratio": (point.window_p50_ns, 0.1), "mean_spread_ratio": (point.window_mean_ns, 0.1)}
    if point.n >= MIN_SAMPLES[99]:
        limits["p99_spread_ratio"] = (point.window_p99_ns, 0.5)
    spreads = {name: (_spread(values), limit) for name, (values, limit) in limits.items()}
    return {name: spread if spread and spread > limit else None for name, (spread, limit) in spreads.items()}


def _spread(values: Sequence[int]) -> float | None:
    """Return the largest over the smallest value, minus 1."""
    positive = [value for value in values if value > 0]
    return max(positive) / min(positive) - 1 if positive else None


def _switches_per_s(point: Point) -> float | None:
    """Return the involuntary context switches per second of a point."""
    if point.involuntary_switches is None or not point.duration_ns:
        return None
    return point.involuntary_switches * 1e9 / point.duration_ns


def _host_busy(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for points that were measured on a busy host."""
    return _worst_point_verdict(
        report,
        "host_busy",
        "medium",
        lambda point: (point.pressure or (_switches_per_s(point) or 0.0) / 1e6) if point.host_busy else None,
        pressure_ratio=lambda point: point.pressure,
        involuntary_switches_per_s=_switches_per_s,
    )


def _unstable(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for points whose median, mean or p99 changed during the measurement.

    Points with too few runs for a median are left out: `n_too_small` covers them.
    """

    def spread_of(name: str) -> Callable[[Point], float | None]:
        return lambda point: _unstable_spreads(point).get(name)

    def median_of(choose: Callable[[Sequence[int]], int]) -> Callable[[Point], float | None]:
        return lambda point: choose(point.window_p50_ns) if spread_of("spread_ratio")(point) else None

    return _worst_point_verdict(
        report,
        "unstable",
        "medium",
        lambda point: (
            max(filter(None, _unstable_spreads(point).values()), default=0.0)
            if point.stable is False and point.n >= MIN_SAMPLES[50]
            else None
        ),
        spread_ratio=spread_of("spread_ratio"),
        least_p50_ns=median_of(min),
        most_p50_ns=median_of(max),
        mean_spread_ratio=spread_of("mean_spread_ratio"),
        p99_spread_ratio=spread_of("p99_spread_ratio"),
    )


def _throttled(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for points that were measured while the device was throttled."""
    return _worst_point_verdict(
        report, "throttled", "medium", lambda point: float(point.batch) if point.throttled else None
    )


def precision_name(text: str) -> str:
    """Return `bf16` for `<Type: 'bfloat16'>`, `tf32` for TensorFloat, and "" for a text without a precision."""
    match = re.search(r"\b([bt]?)f(?:loat|p)?_?(16|32|64)\b", text.lower())
    return f"{match[1]}f{match[2]}" if match else "int8" if re.search(r"\bint8\b", text.lower()) else ""


def _precision_changed(report: Report) -> Iterator[Verdict]:
    """Yield a verdict if the runtime used another precision than requested.

    Its own choice of a low precision has low severity.
    """
    effective = precision_name(report.effective.get("precision", ""))
    requested = precision_name(report.precision)
    if (requested and effective and effective != requested) or (not requested and effective in _LOW_PRECISION):
        severity = "high" if requested else "low"
        yield from _report_verdict(
            report, "precision_changed", severity, asked=report.precision or None, effective=effective
        )


def effective_precision(report: Report) -> str:
    """Return the precision that really ran, as far as the runtime reports it; otherwise the requested one."""
    effective = report.effective.get("precision", "")
    return precision_name(effective) or effective or report.precision


def _precision_differs(reports: Sequence[Report]) -> Iterator[Verdict]:
    """Yield a verdict for reports with a lower precision than others of the same model.

    Low severity if it was requested.
    """
    for report in reports:
        precision = precision_name(effective_precision(report))
        comparable = [
            candidate
            for candidate in reports
            if candidate is not report and candidate.model_sha256 == report.model_sha256
        ]
        other_precisions = dict.fromkeys(
            effective_precision(candidate)
            for candidate in comparable
            if precision_name(effective_precision(candidate)) in ("", "f32")
        )
        if precision not in ("", "f32") and any(other_precisions):
            evidence = {"effective": precision, "others": ", ".join(filter(None, other_precisions))}
            batches = tuple(point.batch for point in report.points)
            requested = precision_name(report.precision) == precision
            yield Verdict("precision_differs", "low" if requested else "high", report.id, None, batches, evidence)


def _not_significant(reports: Sequence[Report]) -> Iterator[Verdict]:
    """Yield a verdict for reports whose best throughput does not differ significantly from the best of all."""
    best_points = [HIGHEST_THROUGHPUT.best(other.points) for other in reports]
    leader = HIGHEST_THROUGHPUT.best(filter(None, best_points))
    compared = zip(reports, best_points, standings(best_points, HIGHEST_THROUGHPUT), strict=True)
    for report, point, standing in compared:
        if leader and point and point is not leader and standing == "not_significant":
            evidence = {
                "samples_per_s": point.samples_per_s,
                "best_samples_per_s": leader.samples_per_s,
                "best_spec": next(other.spec for other, top in zip(reports, best_points, strict=True) if top is leader),
                "chance_ratio": HIGHEST_THROUGHPUT.p_value(leader, point),
            }
            yield Verdict("not_significant", "low", report.id, point.batch, (point.batch,), evidence)


def _fallback(report: Report) -> Iterator[Verdict]:
    """Yield a verdict if a GPU was requested and the first provider does not use one.

    The project's own backends fail such a task; reports of other tools may contain one.
    """
    effective = report.effective.get("providers") or report.effective.get("device") or ""
    provider = effective.partition(",")[0].strip()
    if report.device.startswith("cuda") and provider and not _ON_GPU.search(provider):
        yield from _report_verdict(report, "fallback_provider", "high", asked=report.device, effective=provider)


def _slower_with_batch(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for batch sizes with a lower throughput than a smaller batch size."""
    best = HIGHEST_THROUGHPUT.best(report.points)
    if best is None or not (peak := best.samples_per_s):
        return iter(())
    limit = peak * MIN_THROUGHPUT_SHARE
    return _worst_point_verdict(
        report,
        "slower_with_batch",
        "low",
        lambda point: (
            peak - point.samples_per_s
            if point.batch > best.batch and point.samples_per_s is not None and point.samples_per_s < limit
            else None
        ),
        samples_per_s=lambda point: point.samples_per_s,
        best_samples_per_s=lambda _: peak,
        best_batch=lambda _: best.batch,
    )


def _first_run_slow(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for points whose first run took many medians."""
    return _worst_point_verdict(
        report,
        "first_run_slow",
        "low",
        lambda point: (
            point.first_ns / point.p50_ns
            if point.first_ns and point.p50_ns and point.first_ns > SLOW_FIRST_RUN_FACTOR * point.p50_ns
            else None
        ),
        first_ns=lambda point: point.first_ns,
        p50_ns=lambda point: point.p50_ns,
    )


def _n_too_small(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for points with too few runs for a percentile."""
    no_median = any(point.n < MIN_SAMPLES[50] for point in report.points)
    return _worst_point_verdict(
        report,
        "n_too_small",
        "high" if no_median else "low",
        lambda point: 1 / point.n if point.n < MIN_SAMPLES[99] else None,
        n=lambda point: point.n,
        needed_n=lambda point: MIN_SAMPLES[99],
        percentile=lambda point: max((p for p, needed in MIN_SAMPLES.items() if point.n >= needed), default=0),
    )


def _sample(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for bundled samples: their numbers come from another machine and day."""
    if report.sample:
        day = time.strftime("%Y-%m-%d", time.gmtime(report.finished_ns // 10**9))
        yield from _report_verdict(report, "sample", "low", cpu=report.environment.get("cpu"), day=day)


VERDICT_RULES: tuple[Callable[[Report], Iterator[Verdict]], ...] = (
    _precision_changed,
    _fallback,
    _host_busy,
    _unstable,
    _throttled,
    _slower_with_batch,
    _first_run_slow,
    _n_too_small,
    _sample,
)
