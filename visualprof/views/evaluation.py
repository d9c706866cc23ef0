"""Evaluation: reports of measured models, overlaid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from visualprof.reader.results.points import Point, Step
from visualprof.reader.results.report import Report
from visualprof.views import View
from visualprof.views.answers import charts
from visualprof.views.answers.table import Table
from visualprof.views.measure.reports.advice import AdviceColumns, advice_chart, advice_columns
from visualprof.views.measure.reports.evaluation import (
    BestColumns,
    PointColumns,
    best_columns,
    confidence_margin,
    point_columns,
)
from visualprof.views.measure.reports.loads import LoadColumns, load_columns, load_curves
from visualprof.views.measure.reports.report_history import ReportHistory
from visualprof.views.measure.reports.serving_benchmarks import ServingColumns, serving_charts, serving_columns
from visualprof.views.measure.reports.setting_search import (
    SearchColumns,
    SearchedColumns,
    constraint_chart,
    search_columns,
    trial_columns,
    trials_chart,
)
from visualprof.views.measure.reports.verdicts import Verdict, find_verdicts

LATENCY_METRICS = {"p50_ns", "p90_ns", "p95_ns", "p99_ns"}
LINE = {"p50_ns": "solid", "p95_ns": "dashed", "p99_ns": "dotted"}


@dataclass(frozen=True)
class EvaluationParams:
    """Parameters of the view.

    Attributes:
        slo_ns: Limit of the tail latency, for one of the objectives.
        history: newest: of reports with the same configuration, only the newest complete one has rows; all: every
            report has.
    """

    slo_ns: int | None = None
    history: Literal["newest", "all"] = "newest"


class Overlay(Table[PointColumns]):
    """The points of some reports, the best point of each, and reasons to doubt them.

    Attributes:
        loads: Steps of points that were measured with concurrent or rate-limited runs.
        advice: Candidates of the advice.
        search: Settings that were tried in the search for the best.
        searched: One row per search.
        serving: One row per run of a load generator against a server.
    """

    best: Table[BestColumns]
    loads: Table[LoadColumns]
    advice: Table[AdviceColumns]
    search: Table[SearchColumns]
    searched: Table[SearchedColumns]
    serving: Table[ServingColumns]
    verdicts: list[Verdict]


def compute(
    reports: Sequence[Report], params: EvaluationParams, all_reports: Sequence[Report] | None = None
) -> Overlay:
    """Return the overlaid reports.

    Args:
        reports: The reports.
        params: Parameters of the view.
        all_reports: Reports that may be earlier measurements of the same configurations (default: `reports`).

    Source: docs/views/evaluation.md
    """
    history = ReportHistory(reports if all_reports is None else all_reports)
    if params.history == "newest":
        reports = [report for report in reports if history.is_shown(report)]
    verdicts = find_verdicts(reports)
    measured = [report for report in reports if not report.serving]
    best_points = Table(columns=best_columns(measured, params.slo_ns, verdicts))
    return Overlay(
        columns=point_columns(reports, history),
        best=best_points,
        loads=Table(columns=load_columns(reports)),
        advice=Table(columns=advice_columns(reports)),
        search=Table(columns=trial_columns(reports)),
        searched=Table(columns=search_columns(reports)),
        serving=Table(columns=serving_columns(reports)),
        verdicts=verdicts,
    )


def overlay_charts(reports: Sequence[Report]) -> dict[str, charts.Option]:
    """Return the charts of some reports, with one line per report. A report has the same name and color in all charts.

    - `throughput` (samples/s), `qps` and `latency` over the batch size
    - `tradeoff`: samples/s over the latency
    - `load`: tail latency over the rate of runs, for jobs with several rates or concurrencies
    - `advice`: latency of the candidates over their error
    - `search`: cost of settings over the trials
    - `search_where`: cost of settings over the constrained metric
    - `serving_tokens`, `serving_ttft`: generated tokens/s and time to the first token over the load of a server
    """
    names = labels(reports)
    out = {
        "throughput": _over_batch(reports, names, "samples_per_s"),
        "qps": _over_batch(reports, names, "qps"),
        "latency": _latency(reports, names),
        "tradeoff": _tradeoff(reports, names),
        "load": _load(reports, names),
        "advice": advice_chart(reports),
        "search": trials_chart(reports),
        "search_where": constraint_chart(reports),
        **serving_charts(reports, names),
    }
    return {name: option for name, option in out.items() if option}


def labels(reports: Sequence[Report]) -> list[str]:
    """Return a name per report: its run configuration.

    If several reports have the same one, the name of the job is added, or finally the id.
    """
    for names in ([r.spec for r in reports], [f"{r.name} / {r.spec}" for r in reports]):
        if len(set(names)) == len(names):
            return names
    return [r.id for r in reports]


def _intervals(name: str, report: Report, key: str) -> list[charts.Option]:
    """Return the 95 % confidence intervals of a metric over the batch size: error bars, and a band between them.

    The band has rows of (batch, low, high) and breaks at points that were measured once. It is empty without repeats.
    """
    rows: list[list[float | None]] = []
    for point in sorted((p for p in report.points if p.batch > 0), key=lambda p: p.batch):
        mean, half = getattr(point, key), confidence_margin(point.repeats, key)
        rows.append([point.batch, *((None, None) if half is None else (max(mean - half, 0), mean + half))])
    ends = [[[batch, low], [batch, high], [batch, None]] for batch, low, high in rows if low is not None]
    if not ends:
        return []
    common = {"name": name, "silent": True}
    line = common | {"type": "line", "data": [end for stroke in ends for end in stroke], "showSymbol": False}
    return [
        common | {"type": "custom", "data": rows, "id": f"{report.id}|{key}|band"},
        line | {"id": f"{report.id}|{key}|interval", "lineStyle": {"width": 3, "opacity": 0.6}},
    ]


def _dot(report: Report, point: Point, *value: float | None, size: int = 8) -> charts.Option:
    return {"name": str(point.batch), "id": f"{report.id}|{point.batch}", "value": list(value), "symbolSize": size}


def _series(
    reports: Sequence[Report], names: Sequence[str], shown: Callable[[Point], Any], keys: Sequence[str]
) -> list[tuple[str, list[charts.Option]]]:
    """Return per report its name and its points with values for the metrics."""
    return [
        (name, [_dot(report, p, *(getattr(p, key) for key in keys)) for p in report.points if shown(p)])
        for report, name in zip(reports, names, strict=True)
    ]


def _over_batch(reports: Sequence[Report], names: Sequence[str], key: str) -> charts.Option:
    series = _series(reports, names, lambda p: p.batch > 0 and getattr(p, key) is not None, ("batch", key, "p50_ns"))
    if not any(points for _, points in series):
        return {}
    fields = (("@t:column.batch", "count"), (f"@t:column.{key}", "count"), ("@t:column.p50_ns", "ns"))
    lines = [charts.line_through(name, points) for name, points in series if points]
    lines += [bar for report, name in zip(reports, names, strict=True) for bar in _intervals(name, report, key)]
    return charts.scatter(series, fields, lines, ("log2", "value"))


def _latency(reports: Sequence[Report], names: Sequence[str]) -> charts.Option:
    """Return the chart of the median with its points, and of p95 and p99, where n suffices, as broken lines."""
    curves = {
        key: _series(reports, names, lambda p, k=key: p.batch > 0 and getattr(p, k), ("batch", key, "p95_ns", "p99_ns"))
        for key in LINE
    }
    lines = [
        charts.line_through(name, points, LINE[key]) | {"id": f"{report.id}|{key}"}
        for i, report in enumerate(reports)
        for key, (name, points) in ((key, curve[i]) for key, curve in curves.items())
        if points
    ]
    if not lines:
        return {}
    lines += [bar for report, name in zip(reports, names, strict=True) for bar in _intervals(name, report, "p50_ns")]
    fields = [("@t:column.batch", "count"), *((f"@t:column.{key}", "ns") for key in LINE)]
    return charts.scatter(curves["p50_ns"], fields, lines, ("log2", "log"))


def _tradeoff(reports: Sequence[Report], names: Sequence[str]) -> charts.Option:
    """Return the chart of samples/s over p99, or over the median if a point has no p99, labeled by batch size."""
    shown = [p for r in reports for p in r.points if p.samples_per_s and p.p50_ns]
    key = "p99_ns" if shown and all(p.p99_ns for p in shown) else "p50_ns"
    if not shown:
        return {}
    series = _series(reports, names, lambda p: p.samples_per_s and p.p50_ns, (key, "samples_per_s", "batch"))
    fields = ((f"@t:column.{key}", "ns"), ("@t:column.samples_per_s", "count"), ("@t:column.batch", "count"))
    option = charts.scatter(series, fields, [charts.line_through(name, points) for name, points in series if points])
    drawn: Any = option["series"]
    for line in drawn:
        if line["type"] == "scatter":
            line["label"] = {"show": True, "position": "top", "formatter": "{b}"}
    return option


def _load(reports: Sequence[Report], names: Sequence[str]) -> charts.Option:
    """Return the chart of the tail latency over the rate, one line per point and concurrency.

    Symbols are hollow where it is uncertain whether the limit is met.
    """
    series: list[tuple[str, list[charts.Option]]] = []
    lines: list[charts.Option] = []
    for report, name in zip(reports, names, strict=True):
        drawn = [[_step(report, p, step) for step in steps] for p in report.points for steps in load_curves(p)]
        series.append((name, [dot for dots in drawn for dot in dots]))
        lines += [charts.line_through(name, dots) | {"id": f"{report.id}|{i}"} for i, dots in enumerate(drawn)]
    if not lines:
        return {}
    percentiles = {
        f"p{p.load.percentile:g}_ns" for r in reports for p in r.points if p.load.steps and p.load.percentile
    }
    tail = (
        next(iter(percentiles)) if len(percentiles) == 1 and percentiles < LATENCY_METRICS else "in_evaluation.tail_ns"
    )
    fields = (
        ("@t:column.achieved_per_s", "count"),
        (f"@t:column.{tail}", "ns"),
        ("@t:column.percentile", "count"),
        ("@t:column.concurrency", "count"),
        ("@t:column.offered_per_s", "count"),
        ("@t:column.batch", "count"),
    )
    return charts.scatter(series, fields, lines, ("value", "log"))


def _step(report: Report, point: Point, step: Step) -> charts.Option:
    shown = point.load.percentile, step.concurrency, step.offered_per_s, point.batch
    dot = _dot(report, point, step.achieved_per_s, step.tail_ns, *shown)
    return dot | {"symbol": "circle" if step.verdict in ("PASS", "") else "emptyCircle"}


VIEW = View("evaluation", 90, lambda trace: False, EvaluationParams, compute, subject="reports")
