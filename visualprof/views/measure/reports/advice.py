"""Candidates of advice reports, as a table and as a chart of latency over error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from visualprof.reader.results.advice import AdviceRow
from visualprof.reader.results.report import Report
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns

MIN_DRAWN_ERROR = 1e-8  # an error of 0 has no logarithm; it is drawn here
VERDICTS = ("faster", "equal", "slower", "undecided", "wrong")


class AdviceColumns(Columns):
    """One row per candidate; `None` where a value is unknown or was not measured.

    Most fields are those of `reader.results.advice.AdviceRow`.

    Attributes:
        report: The report whose original model the candidate was compared with.
        ratio: Latency as a share of the original's latency, measured in the same rounds.
        places: Number of operators per device or provider that ran them.
        operators: The same operators by type.
    """

    report: kinds.TextColumn
    candidate: kinds.NameColumn
    kind: kinds.WordColumn
    verdict: kinds.WordColumn
    ratio: kinds.RatioColumn
    ratio_low: kinds.RatioColumn
    ratio_high: kinds.RatioColumn
    margin_ratio: kinds.RatioColumn
    batch: kinds.CountColumn
    latency_ns: kinds.DurationColumn
    latency_low_ns: kinds.DurationColumn
    latency_high_ns: kinds.DurationColumn
    original_ns: kinds.DurationColumn
    samples_per_s: kinds.CountColumn
    ratios: kinds.TextColumn
    error: kinds.CountColumn
    random_error: kinds.CountColumn
    max_abs_error: kinds.CountColumn
    cosine_error: kinds.CountColumn
    agreed: kinds.CountColumn
    rows: kinds.CountColumn
    agreed_low_ratio: kinds.RatioColumn
    metric: kinds.CountColumn
    size_bytes: kinds.SizeColumn
    rss_bytes: kinds.SizeColumn
    device_bytes: kinds.SizeColumn
    convert_ns: kinds.DurationColumn
    load_ns: kinds.DurationColumn
    backend: kinds.WordColumn
    version: kinds.WordColumn
    ran: kinds.TextColumn
    places: kinds.TextColumn
    operators: kinds.TextColumn
    passes: kinds.FlagColumn
    front: kinds.FlagColumn
    why: kinds.TextColumn
    files: kinds.ListColumn


def advice_columns(reports: Sequence[Report]) -> AdviceColumns:
    """Return every candidate of the reports, in the order of the reports."""
    rows = [(report, row) for report in reports if report.advice for row in report.advice.rows]
    copied_fields = [
        name
        for name in AdviceColumns.__struct_fields__
        if name not in ("report", "ratios", "places", "operators", "files")
    ]
    return AdviceColumns(
        report=[report.id for report, _ in rows],
        ratios=[_ratio_text(row) for _, row in rows],
        places=[_counts_text(_operators_by_place(row)) for _, row in rows],
        operators=[
            "; ".join(f"{place}: {_counts_text(types)}" for place, types in row.places.items()) or None
            for _, row in rows
        ],
        files=[list(row.files) for _, row in rows],
        **{name: [getattr(row, name) for _, row in rows] for name in copied_fields},
    )


def _ratio_text(row: AdviceRow) -> str | None:
    """Return the share of the original's latency per batch size, as `1: 56.1 %, 8: 40.6 %`."""
    return ", ".join(f"{batch}: {ratio * 100:.1f} %" for batch, ratio in (row.ratios or {}).items()) or None


def _operators_by_place(row: AdviceRow) -> dict[str, int]:
    """Return the number of operators per place that ran them."""
    return {place: sum(kinds.values()) for place, kinds in row.places.items()}


def _counts_text(counts: Mapping[str, int]) -> str | None:
    """Return counts as `Conv 12, Gemm 1`, the largest first."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or None


def advice_chart(reports: Sequence[Report]) -> charts.Option:
    """Return the latency relative to the original over the error, one series per verdict.

    Vertical lines are 95 % confidence intervals.
    """
    rows = [(report, row) for report in reports if report.advice for row in report.advice.rows]
    points = [(report, row) for report, row in rows if row.kind != "original" and row.ratio and row.error is not None]
    if not points:
        return {}
    series = [
        (f"@t:advice.verdict.{verdict}", [_dot(report, row) for report, row in points if row.verdict == verdict])
        for verdict in VERDICTS
    ]
    fields = (
        ("@t:column.error", "count"),
        ("@t:column.ratio_to_original", "ratio"),
        ("@t:column.size_bytes", "bytes"),
        ("@t:column.latency_ns", "ns"),
    )
    line_points = [end for _, row in points for end in _interval_line(row)]
    line = {"type": "line", "name": "@t:advice.interval", "data": line_points, "showSymbol": False, "silent": True}
    style = {"lineStyle": {"width": 1.5, "opacity": 0.5}}
    return charts.scatter([item for item in series if item[1]], fields, [line | style], ("log", "value"))


def _drawn_error(row: AdviceRow) -> float:
    """Return the error at which a candidate is drawn."""
    return max(row.error or 0.0, MIN_DRAWN_ERROR)


def _dot(report: Report, row: AdviceRow) -> charts.Option:
    """Return the point of one candidate."""
    size = 8 if not row.size_bytes else min(18.0, max(6.0, 3 * log10(row.size_bytes) - 6))
    label = {"show": row.passes and row.front, "position": "left", "formatter": "{b}"}
    value = [_drawn_error(row), row.ratio, row.size_bytes, row.latency_ns]
    dot = {"name": row.candidate, "id": f"{report.id}|{row.candidate}", "value": value, "symbolSize": size}
    return dot | {"label": label, "symbol": "circle" if row.front else "emptyCircle"}


def _interval_line(row: AdviceRow) -> list[list[Any]]:
    """Return the line of a candidate's confidence interval, followed by a break."""
    return (
        [[_drawn_error(row), row.ratio_low], [_drawn_error(row), row.ratio_high], [_drawn_error(row), None]]
        if row.ratio_low
        else []
    )
