"""What measured reports say when laid over each other: the table of points, the best ones, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.table import Column, Table

ENOUGH = {50: 11, 90: 64, 95: 130, 99: 662}  # samples for 99 % confidence with one over it allowed; docs/remote.md
FALLS = 0.95  # samples/s below this share of the best size's are a loss
SLOW_FIRST = 10  # the first run takes longer than so many medians
COLUMNS = (
    "batch", "qps", "samples_per_s", "whole_samples_per_s", "mean_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p95_ns",
    "p99_ns", "n", "first_ns", "load_ns", "rss_bytes", "gpu_memory_bytes", "energy_j_per_sample", "stable", "host_busy",
    "throttled", "pressure", "involuntary_switches",
)  # fmt: skip
_LOW_PRECISION = {"bf16", "f16"}
_ON_GPU = re.compile(r"cuda|tensorrt|rocm|migraphx", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """Something to know before a number is believed.

    severity: high (the number is not what was asked for), medium (it may differ the next time), low.
    batch: where it is worst, None for the whole report; batches: wherever it holds.
    evidence: numbers by name, with their unit in it.
    """

    id: str
    severity: str
    report: str
    batch: int | None
    batches: tuple[int, ...]
    evidence: dict[str, float | int | str | None]


def table(reports: Sequence[Report]) -> Table:
    """One row a point: `report`, `spec` and COLUMNS; None where unknown, or where n is too small for a percentile."""
    rows = [(report, point) for report in reports for point in report.points]
    columns: dict[str, Column] = {"report": [r.id for r, _ in rows], "spec": [r.spec for r, _ in rows]}
    return Table(columns | {name: [getattr(point, name) for _, point in rows] for name in COLUMNS})


def most_samples(report: Report) -> Point | None:
    """The point of most samples a second; of equal ones the smallest."""
    known = [p for p in report.points if p.samples_per_s is not None]
    return max(known, key=lambda p: p.samples_per_s or 0.0, default=None)


def least_latency(report: Report) -> Point | None:
    """The point of least median latency."""
    return min((p for p in report.points if p.p50_ns is not None), key=lambda p: p.p50_ns or 0, default=None)


def tail(point: Point) -> tuple[int, int] | None:
    """The highest percentile up to 99 for which n suffices, and its latency; None below p90."""
    for percent, value in ((99, point.p99_ns), (95, point.p95_ns), (90, point.p90_ns)):
        if value is not None:
            return percent, value
    return None


def within(report: Report, slo_ns: int) -> Point | None:
    """The point of most samples a second whose tail stays within a limit."""
    known = [p for p in report.points if p.samples_per_s is not None and (tail(p) or (0, slo_ns + 1))[1] <= slo_ns]
    return max(known, key=lambda p: p.samples_per_s or 0.0, default=None)


def best(reports: Sequence[Report], slo_ns: int | None, verdicts: Sequence[Verdict]) -> Table:
    """Per report its best point by each objective, None without one, and the ids of its verdicts."""
    most, least = [most_samples(r) for r in reports], [least_latency(r) for r in reports]
    held = [within(r, slo_ns) if slo_ns is not None else None for r in reports]
    tails = [tail(p) if p else None for p in held]
    columns: dict[str, Column] = {
        "report": [r.id for r in reports],
        "spec": [r.spec for r in reports],
        "most_samples_batch": [p.batch if p else None for p in most],
        "most_samples_per_s": [p.samples_per_s if p else None for p in most],
        "least_latency_batch": [p.batch if p else None for p in least],
        "least_latency_ns": [p.p50_ns if p else None for p in least],
        "slo_batch": [p.batch if p else None for p in held],
        "slo_samples_per_s": [p.samples_per_s if p else None for p in held],
        "slo_percentile": [t[0] if t else None for t in tails],
        "slo_latency_ns": [t[1] if t else None for t in tails],
        "verdicts": [list(dict.fromkeys(v.id for v in verdicts if v.report == r.id)) for r in reports],
    }
    return Table(columns)


def judge(reports: Sequence[Report]) -> list[Verdict]:
    """Everything that is to be known of some reports, the most severe first."""
    found = [verdict for report in reports for rule in RULES for verdict in rule(report)]
    return sorted(found, key=lambda v: ("high", "medium", "low").index(v.severity))


def _worst(
    report: Report,
    name: str,
    severity: str,
    measure: Callable[[Point], float | None],
    evidence: Callable[[Point], dict[str, float | int | str | None]],
) -> Iterator[Verdict]:
    """One verdict for the points for which the measure is a number, at the one where it is largest."""
    hit = [(value, p) for p in report.points if (value := measure(p)) is not None]
    if hit:
        worst = max(hit, key=lambda h: h[0])[1]
        yield Verdict(name, severity, report.id, worst.batch, tuple(p.batch for _, p in hit), evidence(worst))


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
        lambda p: {"pressure_ratio": p.pressure, "involuntary_switches_per_s": _switches_per_s(p)},
    )  # fmt: skip


def _unstable(report: Report) -> Iterator[Verdict]:
    """Not of points whose median is not known: that says it all."""
    return _worst(
        report, "unstable", "medium",
        lambda p: (_spread(p) or 0.0) if p.stable is False and p.n >= ENOUGH[50] else None,
        lambda p: {"spread_ratio": _spread(p), "least_p50_ns": min(p.window_p50_ns, default=None),
                   "most_p50_ns": max(p.window_p50_ns, default=None)},
    )  # fmt: skip


def _throttled(report: Report) -> Iterator[Verdict]:
    return _worst(report, "throttled", "medium", lambda p: float(p.batch) if p.throttled else None, lambda p: {})


def precision_name(told: str) -> str:
    """`<Type: 'bfloat16'>` as `bf16`; "" for what names none."""
    found = re.search(r"\b(b?)f(?:loat|p)?_?(16|32|64)\b", told.lower())
    return f"{found[1]}f{found[2]}" if found else ""


def _precision_changed(report: Report) -> Iterator[Verdict]:
    """The runtime calculates in another precision than was asked for; its own choice of a low one is a note."""
    really = precision_name(report.effective.get("precision", ""))
    asked = precision_name(report.precision)
    if (asked and really and really != asked) or (not asked and really in _LOW_PRECISION):
        batches = tuple(p.batch for p in report.points)
        evidence: dict[str, float | int | str | None] = {"asked": report.precision or None, "effective": really}
        yield Verdict("precision_changed", "high" if asked else "low", report.id, None, batches, evidence)


def _fallback(report: Report) -> Iterator[Verdict]:
    """A GPU was asked for, and the first provider is none of a GPU. Our backends end such a task; others need not."""
    told = report.effective.get("providers") or report.effective.get("device") or ""
    first = told.partition(",")[0].strip()
    if report.device.startswith("cuda") and first and not _ON_GPU.search(first):
        batches = tuple(p.batch for p in report.points)
        yield Verdict(
            "fallback_provider", "high", report.id, None, batches, {"asked": report.device, "effective": first}
        )


def _slower_with_batch(report: Report) -> Iterator[Verdict]:
    top = most_samples(report)
    if top is None or not top.samples_per_s:
        return iter(())
    limit, peak = top.samples_per_s * FALLS, top.samples_per_s
    return _worst(
        report, "slower_with_batch", "low",
        lambda p: peak - p.samples_per_s
        if p.batch > top.batch and p.samples_per_s is not None and p.samples_per_s < limit else None,
        lambda p: {"samples_per_s": p.samples_per_s, "best_samples_per_s": peak, "best_batch": top.batch},
    )  # fmt: skip


def _first_run_slow(report: Report) -> Iterator[Verdict]:
    return _worst(
        report, "first_run_slow", "low",
        lambda p: p.first_ns / p.p50_ns if p.first_ns and p.p50_ns and p.first_ns > SLOW_FIRST * p.p50_ns else None,
        lambda p: {"first_ns": p.first_ns, "p50_ns": p.p50_ns},
    )  # fmt: skip


def _n_too_small(report: Report) -> Iterator[Verdict]:
    least = [p for p in report.points if p.n < ENOUGH[50]]
    return _worst(
        report, "n_too_small", "high" if least else "low",
        lambda p: 1 / p.n if p.n < ENOUGH[99] else None,
        lambda p: {"n": p.n, "needed_n": ENOUGH[99],
                   "percentile": max((k for k, v in ENOUGH.items() if p.n >= v), default=0)},
    )  # fmt: skip


RULES: tuple[Callable[[Report], Iterator[Verdict]], ...] = (
    _precision_changed, _fallback, _host_busy, _unstable, _throttled, _slower_with_batch, _first_run_slow, _n_too_small,
)  # fmt: skip
