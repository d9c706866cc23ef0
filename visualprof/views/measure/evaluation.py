"""What measured reports say when laid over each other: the table of points, the best ones, and what is wrong."""

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
from visualprof.views.measure.best_points import (
    HIGHEST_THROUGHPUT,
    LOWEST_LATENCY,
    best_within_slo,
    equivalent_batches,
    is_doubtful,
    standings,
    tail_latency,
)
from visualprof.views.measure.loads import cost_per_million, energy_per_million
from visualprof.views.measure.significance import confidence_interval

MIN_SAMPLES = {50: 11, 90: 64, 95: 130, 99: 662}  # samples for 99 % confidence with one over it allowed; docs/remote.md
MIN_THROUGHPUT_SHARE = 0.95  # samples/s below this share of the best size's are a loss
SLOW_FIRST_RUN_FACTOR = 10  # the first run takes longer than so many medians
Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_LOW_PRECISION = {"bf16", "f16"}
_ON_GPU = re.compile(r"cuda|tensorrt|rocm|migraphx", re.IGNORECASE)


class PointColumns(Columns):
    """One row a point; None where unknown, or where n is too small for a percentile.

    repeats: how often it was measured, each time in a process of its own; the numbers are the means. Margins: half of
    the 95 % confidence interval of the mean, None with a single repeat.
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
    """Per report its best point by each objective, None without one, and the ids of its verdicts.

    alike: sizes of the report that are not significantly worse, None where that cannot be told. standing: `Standing`
    among the best points of all reports.
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


# The numbers of a verdict, those of its rule.
VerdictEvidence = Annotated[
    Mapping[str, int | float | str | None],
    kinds_by_key(
        pressure_ratio="ratio", involuntary_switches_per_s="count", spread_ratio="ratio", least_p50_ns="ns",
        most_p50_ns="ns", samples_per_s="count", best_samples_per_s="count", best_batch="count", first_ns="ns",
        p50_ns="ns", n="count", needed_n="count", percentile="count", chance_ratio="ratio", cpu="name", day="word",
    ),
]  # fmt: skip


class Verdict(msgspec.Struct, frozen=True):
    """Something to know before a number is believed.

    severity: high (the number is not what was asked for), medium (it may differ the next time), low.
    batch: where it is worst, None for the whole report; batches: wherever it holds.
    """

    id: str
    severity: Severity
    report: str
    batch: int | None
    batches: tuple[int, ...]
    evidence: VerdictEvidence


MARGIN_FIELDS = {"samples_per_s_margin": "samples_per_s", "p50_margin_ns": "p50_ns", "p99_margin_ns": "p99_ns"}


def point_columns(reports: Sequence[Report]) -> PointColumns:
    """Every point of the reports, in their order."""
    rows = [(report, point) for report in reports for point in report.points]
    own = [name for name in PointColumns.__struct_fields__ if name in Point.__dataclass_fields__ and name != "repeats"]
    return PointColumns(
        report=[r.id for r, _ in rows],
        spec=[r.spec for r, _ in rows],
        repeats=[len(p.repeats) or 1 for _, p in rows],
        energy_j_per_million=[energy_per_million(p) for _, p in rows],
        cost_per_million=[cost_per_million(r, p) for r, p in rows],
        scenario=[p.load.scenario or None for _, p in rows],
        concurrency=[p.load.step.concurrency for _, p in rows],
        offered_per_s=[p.load.step.offered_per_s for _, p in rows],
        verdict=[p.load.verdict or None for _, p in rows],
        **{name: [confidence_margin(p.repeats, of) for _, p in rows] for name, of in MARGIN_FIELDS.items()},
        **{name: [getattr(point, name) for _, point in rows] for name in own},
    )


def confidence_margin(repeats: Sequence[object], number: str) -> float | None:
    """Half of the 95 % confidence interval of a number of repeats, of its unit; None for fewer than two."""
    known = [value for repeat in repeats if (value := getattr(repeat, number)) is not None]
    between = confidence_interval(known) if len(known) == len(repeats) else None
    half = (between[1] - between[0]) / 2 if between else None
    return round(half) if half is not None and number.endswith("_ns") else half


def best_columns(reports: Sequence[Report], slo_ns: int | None, verdicts: Sequence[Verdict]) -> BestColumns:
    """The best points of each report."""
    most, least = ([goal.best(r.points) for r in reports] for goal in (HIGHEST_THROUGHPUT, LOWEST_LATENCY))
    held = [best_within_slo(r, slo_ns) if slo_ns is not None else None for r in reports]
    tails = [tail_latency(p) if p else None for p in held]
    goals = {
        "most_samples": (most, HIGHEST_THROUGHPUT),
        "least_latency": (least, LOWEST_LATENCY),
        "slo": (held, HIGHEST_THROUGHPUT),
    }
    compared: dict[str, list[Any]] = {}
    for name, (points, goal) in goals.items():
        fitting = [
            [p for p in r.points if name != "slo" or (tail_latency(p) or (0, inf))[1] <= (slo_ns or 0)] for r in reports
        ]
        compared[f"{name}_batch"] = [p.batch if p else None for p in points]
        compared[f"{name}_alike"] = [equivalent_batches(each, p, goal) for each, p in zip(fitting, points, strict=True)]
        compared[f"{name}_standing"] = standings(points, goal)
    return BestColumns(
        report=[r.id for r in reports],
        spec=[r.spec for r in reports],
        most_samples_per_s=[p.samples_per_s if p else None for p in most],
        least_latency_ns=[p.p50_ns if p else None for p in least],
        slo_samples_per_s=[p.samples_per_s if p else None for p in held],
        slo_percentile=[t[0] if t else None for t in tails],
        slo_latency_ns=[t[1] if t else None for t in tails],
        verdicts=[list(dict.fromkeys(v.id for v in verdicts if v.report == r.id)) for r in reports],
        **compared,
    )


def find_verdicts(reports: Sequence[Report]) -> list[Verdict]:
    """Everything that is to be known of some reports, the most severe first."""
    alone = (verdict for report in reports for rule in VERDICT_RULES for verdict in rule(report))
    return sorted([*alone, *find_joint_verdicts(reports)], key=lambda v: SEVERITIES.index(v.severity))


def find_joint_verdicts(reports: Sequence[Report]) -> list[Verdict]:
    """What is to be known of them because they are laid over each other."""
    return [*_precision_differs(reports), *_not_significant(reports)]


def _worst(
    report: Report,
    name: str,
    severity: Severity,
    measure: Callable[[Point], float | None],
    **evidence: Callable[[Point], float | None],
) -> Iterator[Verdict]:
    """One verdict for the points for which the measure is a number, with the evidence of that where it is largest."""
    hit = [(value, p) for p in report.points if (value := measure(p)) is not None]
    if hit:
        worst = max(hit, key=lambda h: h[0])[1]
        numbers = {key: value(worst) for key, value in evidence.items()}
        yield Verdict(name, severity, report.id, worst.batch, tuple(p.batch for _, p in hit), numbers)


def _report_verdict(report: Report, name: str, severity: Severity, **evidence: str | None) -> Iterator[Verdict]:
    """One verdict for all points."""
    yield Verdict(name, severity, report.id, None, tuple(p.batch for p in report.points), evidence)


def _spread(point: Point) -> float | None:
    """Largest over smallest median of the thirds, less 1."""
    known = [v for v in point.window_p50_ns if v > 0]
    return max(known) / min(known) - 1 if known else None


def _switches_per_s(point: Point) -> float | None:
    if point.involuntary_switches is None or not point.duration_ns:
        return None
    return point.involuntary_switches * 1e9 / point.duration_ns


def _host_busy(report: Report) -> Iterator[Verdict]:
    return _worst(
        report, "host_busy", "medium",
        lambda p: (p.pressure or (_switches_per_s(p) or 0.0) / 1e6) if p.host_busy else None,
        pressure_ratio=lambda p: p.pressure, involuntary_switches_per_s=_switches_per_s,
    )  # fmt: skip


def _unstable(report: Report) -> Iterator[Verdict]:
    """Not of points whose median is not known: that says it all."""
    return _worst(
        report, "unstable", "medium",
        lambda p: (_spread(p) or 0.0) if p.stable is False and p.n >= MIN_SAMPLES[50] else None,
        spread_ratio=_spread, least_p50_ns=lambda p: min(p.window_p50_ns, default=None),
        most_p50_ns=lambda p: max(p.window_p50_ns, default=None),
    )  # fmt: skip


def _throttled(report: Report) -> Iterator[Verdict]:
    return _worst(report, "throttled", "medium", lambda p: float(p.batch) if p.throttled else None)


def precision_name(text: str) -> str:
    """`<Type: 'bfloat16'>` as `bf16`, TensorFloat as `tf32`; "" for what names none."""
    match = re.search(r"\b([bt]?)f(?:loat|p)?_?(16|32|64)\b", text.lower())
    return f"{match[1]}f{match[2]}" if match else "int8" if re.search(r"\bint8\b", text.lower()) else ""


def _precision_changed(report: Report) -> Iterator[Verdict]:
    """The runtime calculates in another precision than was asked for; its own choice of a low one is a note."""
    really = precision_name(report.effective.get("precision", ""))
    asked = precision_name(report.precision)
    if (asked and really and really != asked) or (not asked and really in _LOW_PRECISION):
        severity = "high" if asked else "low"
        yield from _report_verdict(
            report, "precision_changed", severity, asked=report.precision or None, effective=really
        )


def effective_precision(report: Report) -> str:
    """The precision that really ran, as far as the runtime says it; else what was asked for."""
    effective = report.effective.get("precision", "")
    return precision_name(effective) or effective or report.precision


def _precision_differs(reports: Sequence[Report]) -> Iterator[Verdict]:
    """Beside others of the same model it calculates in a lower precision; a note where that was asked for."""
    for report in reports:
        ran = precision_name(effective_precision(report))
        same = [other for other in reports if other is not report and other.model_sha256 == report.model_sha256]
        others = dict.fromkeys(
            effective_precision(other) for other in same if precision_name(effective_precision(other)) in ("", "f32")
        )
        if ran not in ("", "f32") and any(others):
            evidence = {"effective": ran, "others": ", ".join(filter(None, others))}
            batches = tuple(p.batch for p in report.points)
            asked = precision_name(report.precision) == ran
            yield Verdict("precision_differs", "low" if asked else "high", report.id, None, batches, evidence)


def _not_significant(reports: Sequence[Report]) -> Iterator[Verdict]:
    """Its best point gives as many samples a second as the best of all, as far as the repeats can tell."""
    tops = [HIGHEST_THROUGHPUT.best(r.points) for r in reports]
    leader = HIGHEST_THROUGHPUT.best(p for p in tops if p and not is_doubtful(p))
    known = zip(reports, tops, standings(tops, HIGHEST_THROUGHPUT), strict=True)
    for report, top, standing in known:
        if leader and top and top is not leader and standing == "not_significant":
            evidence = {
                "samples_per_s": top.samples_per_s, "best_samples_per_s": leader.samples_per_s,
                "best_spec": next(r.spec for r, p in zip(reports, tops, strict=True) if p is leader),
                "chance_ratio": HIGHEST_THROUGHPUT.p_value(leader, top),
            }  # fmt: skip
            yield Verdict("not_significant", "low", report.id, top.batch, (top.batch,), evidence)


def _fallback(report: Report) -> Iterator[Verdict]:
    """A GPU was asked for, and the first provider is none of a GPU. Our backends end such a task; others need not."""
    effective = report.effective.get("providers") or report.effective.get("device") or ""
    first = effective.partition(",")[0].strip()
    if report.device.startswith("cuda") and first and not _ON_GPU.search(first):
        yield from _report_verdict(report, "fallback_provider", "high", asked=report.device, effective=first)


def _slower_with_batch(report: Report) -> Iterator[Verdict]:
    top = HIGHEST_THROUGHPUT.best(report.points)
    if top is None or not (peak := top.samples_per_s):
        return iter(())
    limit = peak * MIN_THROUGHPUT_SHARE
    return _worst(
        report, "slower_with_batch", "low",
        lambda p: peak - p.samples_per_s
        if p.batch > top.batch and p.samples_per_s is not None and p.samples_per_s < limit else None,
        samples_per_s=lambda p: p.samples_per_s, best_samples_per_s=lambda p: peak, best_batch=lambda p: top.batch,
    )  # fmt: skip


def _first_run_slow(report: Report) -> Iterator[Verdict]:
    return _worst(
        report, "first_run_slow", "low",
        lambda p: p.first_ns / p.p50_ns
        if p.first_ns and p.p50_ns and p.first_ns > SLOW_FIRST_RUN_FACTOR * p.p50_ns else None,
        first_ns=lambda p: p.first_ns, p50_ns=lambda p: p.p50_ns,
    )  # fmt: skip


def _n_too_small(report: Report) -> Iterator[Verdict]:
    least = any(p.n < MIN_SAMPLES[50] for p in report.points)
    return _worst(
        report, "n_too_small", "high" if least else "low", lambda p: 1 / p.n if p.n < MIN_SAMPLES[99] else None,
        n=lambda p: p.n, needed_n=lambda p: MIN_SAMPLES[99],
        percentile=lambda p: max((k for k, v in MIN_SAMPLES.items() if p.n >= v), default=0),
    )  # fmt: skip


def _sample(report: Report) -> Iterator[Verdict]:
    """Numbers of a machine and a day that are not those of who looks at them."""
    if report.sample:
        day = time.strftime("%Y-%m-%d", time.gmtime(report.finished_ns // 10**9))
        yield from _report_verdict(report, "sample", "low", cpu=report.environment.get("cpu"), day=day)


VERDICT_RULES: tuple[Callable[[Report], Iterator[Verdict]], ...] = (
    _precision_changed, _fallback, _host_busy, _unstable, _throttled, _slower_with_batch, _first_run_slow, _n_too_small,
    _sample,
)  # fmt: skip
