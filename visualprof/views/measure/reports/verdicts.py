"""Verdicts on the reliability of measured points."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, get_args

import msgspec

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.answers.kinds import kinds_by_key
from visualprof.views.measure.reports.best_points import HIGHEST_THROUGHPUT, standings

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


def _sizes_failed(report: Report) -> Iterator[Verdict]:
    """Yield a verdict for sizes of the sweep that failed while others were measured."""
    if report.not_measured:
        yield Verdict("sizes_failed", "high", report.id, None, report.not_measured, {})


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
    """Yield a verdict for points with a median, mean or p99 that changed during the measurement.

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
    """Yield a verdict for points with a first run of many medians."""
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
    _sizes_failed,
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
