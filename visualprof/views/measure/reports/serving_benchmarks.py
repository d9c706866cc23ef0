"""Runs of load generators against inference servers: a table, and charts over the load.

Source: docs/views/evaluation.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from visualprof.reader.results.benchmark_run import BenchmarkRun
from visualprof.reader.results.report import Report
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns

LATENCIES = ("ttft", "tpot", "itl", "request")
STATISTICS = ("mean_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns")
LINE = {"p50_ns": "solid", "p99_ns": "dashed"}
LOADS = ("concurrency", "offered_per_s", "achieved_per_s")


class ServingColumns(Columns):
    """One row per run of a load generator; `None` where the tool reports nothing.

    Attributes:
        concurrency: Limit of requests at the same time.
        offered_per_s: Requests sent per second; `None` if they are sent as fast as possible.
        n: Completed requests.
        ttft_mean_ns: Time to the first token. `tpot`: mean time per later token of a request; `itl`: time
            between two tokens; `request`: time of a whole request.
    """

    report: kinds.TextColumn
    spec: kinds.NameColumn
    concurrency: kinds.CountColumn
    offered_per_s: kinds.CountColumn
    achieved_per_s: kinds.CountColumn
    output_tokens_per_s: kinds.CountColumn
    total_tokens_per_s: kinds.CountColumn
    ttft_mean_ns: kinds.DurationColumn
    ttft_p50_ns: kinds.DurationColumn
    ttft_p90_ns: kinds.DurationColumn
    ttft_p95_ns: kinds.DurationColumn
    ttft_p99_ns: kinds.DurationColumn
    tpot_mean_ns: kinds.DurationColumn
    tpot_p50_ns: kinds.DurationColumn
    tpot_p90_ns: kinds.DurationColumn
    tpot_p95_ns: kinds.DurationColumn
    tpot_p99_ns: kinds.DurationColumn
    itl_mean_ns: kinds.DurationColumn
    itl_p50_ns: kinds.DurationColumn
    itl_p90_ns: kinds.DurationColumn
    itl_p95_ns: kinds.DurationColumn
    itl_p99_ns: kinds.DurationColumn
    request_mean_ns: kinds.DurationColumn
    request_p50_ns: kinds.DurationColumn
    request_p90_ns: kinds.DurationColumn
    request_p95_ns: kinds.DurationColumn
    request_p99_ns: kinds.DurationColumn
    n: kinds.CountColumn
    failed: kinds.CountColumn
    input_tokens: kinds.CountColumn
    output_tokens: kinds.CountColumn
    duration_ns: kinds.DurationColumn


def serving_columns(reports: Sequence[Report]) -> ServingColumns:
    """Return the runs of the reports, in the order of the reports and of the load."""
    rows = [(report, run) for report in reports for run in report.serving]
    plain = [name for name in ServingColumns.__struct_fields__ if name in BenchmarkRun.__dataclass_fields__]
    return ServingColumns(
        report=[report.id for report, _ in rows],
        spec=[report.spec for report, _ in rows],
        **{name: [getattr(run, name) for _, run in rows] for name in plain},
        **{
            f"{latency}_{statistic}": [getattr(getattr(run, latency), statistic) for _, run in rows]
            for latency in LATENCIES
            for statistic in STATISTICS
        },
    )


def serving_charts(reports: Sequence[Report], names: Sequence[str]) -> dict[str, charts.Option]:
    """Return the charts of the runs, with one line per report, under the names of the reports.

    - `serving_tokens`: generated tokens/s over the load
    - `serving_ttft`: time to the first token over the load, median solid, p99 dashed
    """
    load = _load_axis(reports)
    tokens = _series(reports, names, load, lambda run: run.output_tokens_per_s)
    out = {"serving_ttft": _first_token_chart(reports, names, load)}
    if any(points for _, points in tokens):
        fields = (
            (f"@t:column.{load}", "count"),
            ("@t:column.in_evaluation.output_tokens_per_s", "count"),
            *_DETAILS,
        )
        lines = [charts.line_through(name, points) for name, points in tokens if points]
        out["serving_tokens"] = charts.scatter(tokens, fields, lines, ("value", "value"))
    return out


_DETAILS = (
    ("@t:column.concurrency", "count"),
    ("@t:column.offered_per_s", "count"),
    ("@t:column.in_evaluation.ttft_p99_ns", "ns"),
    ("@t:column.in_evaluation.tpot_p99_ns", "ns"),
)


def _first_token_chart(reports: Sequence[Report], names: Sequence[str], load: str) -> charts.Option:
    curves = {key: _series(reports, names, load, lambda run, k=key: getattr(run.ttft, k)) for key in LINE}
    lines = [
        charts.line_through(name, points, LINE[key]) | {"id": f"{report.id}|{key}"}
        for key, curve in curves.items()
        for report, (name, points) in zip(reports, curve, strict=True)
        if points
    ]
    if not lines:
        return {}
    shown = "p50_ns" if any(points for _, points in curves["p50_ns"]) else "p99_ns"
    fields = ((f"@t:column.{load}", "count"), (f"@t:column.in_evaluation.ttft_{shown}", "ns"), *_DETAILS)
    return charts.scatter(curves[shown], fields, lines, ("value", "log"))


def _load_axis(reports: Sequence[Report]) -> str:
    """Return the first measure of the load that every run has; runs without any are not drawn."""
    runs = [run for report in reports for run in report.serving]
    return next((name for name in LOADS if all(getattr(run, name) is not None for run in runs)), LOADS[-1])


def _series(
    reports: Sequence[Report], names: Sequence[str], load: str, value: Callable[[BenchmarkRun], float | None]
) -> list[tuple[str, list[charts.Option]]]:
    """Return per report its name and its runs that have a load and a positive value, by load."""
    series: list[tuple[str, list[charts.Option]]] = []
    for report, name in zip(reports, names, strict=True):
        points = [
            {"name": "", "id": f"{report.id}|serving {i}", "value": [x, y, *_details(run)], "symbolSize": 8}
            for i, run in enumerate(report.serving)
            if (x := getattr(run, load)) is not None and (y := value(run))
        ]
        series.append((name, sorted(points, key=lambda point: point["value"][0])))
    return series


def _details(run: BenchmarkRun) -> list[float | None]:
    return [run.concurrency, run.offered_per_s, run.ttft.p99_ns, run.tpot.p99_ns]
