"""Candidates of reports as a table, and as points of latency over error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from visualprof.reader.results.advice import AdviceRow
from visualprof.reader.results.report import Report
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns

LEAST_ERROR = 1e-8  # an error of 0 is drawn there: a logarithm has none
VERDICTS = ("faster", "equal", "slower", "undecided", "wrong")


class AdviceColumns(Columns):
    """One row a candidate; None where unknown or not measured. Fields: `reader.results.advice.AdviceRow`.

    places: number of its operators by where they ran; operators: these by kind.
    report: whose original it was measured beside. ratio: latency as a share of the original's, in the same rounds.
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
    """Every candidate of the reports, in their order."""
    rows = [(report, row) for report in reports if report.advice for row in report.advice.rows]
    own = [
        name
        for name in AdviceColumns.__struct_fields__
        if name not in ("report", "ratios", "places", "operators", "files")
    ]
    return AdviceColumns(
        report=[report.id for report, _ in rows],
        ratios=[_by_batch(row) for _, row in rows],
        places=[_parts(_totals(row)) for _, row in rows],
        operators=["; ".join(f"{p}: {_parts(k)}" for p, k in row.places.items()) or None for _, row in rows],
        files=[list(row.files) for _, row in rows],
        **{name: [getattr(row, name) for _, row in rows] for name in own},
    )


def _by_batch(row: AdviceRow) -> str | None:
    """Shares of the original's latency at each size, `1: 56.1 %, 8: 40.6 %`."""
    return ", ".join(f"{batch}: {ratio * 100:.1f} %" for batch, ratio in (row.ratios or {}).items()) or None


def _totals(row: AdviceRow) -> dict[str, int]:
    return {place: sum(kinds.values()) for place, kinds in row.places.items()}


def _parts(counts: Mapping[str, int]) -> str | None:
    """`Conv 12, Gemm 1`, the most first."""
    return ", ".join(f"{n} {c:,}" for n, c in sorted(counts.items(), key=lambda one: -one[1])) or None


def advice_chart(reports: Sequence[Report]) -> charts.Option:
    """Latency as a share of the original's over the error, a series a verdict; upright strokes are 95 % intervals."""
    rows = [(report, row) for report in reports if report.advice for row in report.advice.rows]
    drawn = [(report, row) for report, row in rows if row.kind != "original" and row.ratio and row.error is not None]
    if not drawn:
        return {}
    series = [
        (f"@t:advice.verdict.{verdict}", [_dot(report, row) for report, row in drawn if row.verdict == verdict])
        for verdict in VERDICTS
    ]
    fields = (
        ("@t:column.error", "count"), ("@t:column.ratio_to_original", "ratio"), ("@t:column.size_bytes", "bytes"),
        ("@t:column.latency_ns", "ns"),
    )  # fmt: skip
    ends = [end for _, row in drawn for end in _stroke(row)]
    stroke = {"type": "line", "name": "@t:advice.interval", "data": ends, "showSymbol": False, "silent": True}
    style = {"lineStyle": {"width": 1.5, "opacity": 0.5}}
    return charts.scatter([one for one in series if one[1]], fields, [stroke | style], ("log", "value"))


def _at(row: AdviceRow) -> float:
    """Where its error is drawn."""
    return max(row.error or 0.0, LEAST_ERROR)


def _dot(report: Report, row: AdviceRow) -> charts.Option:
    size = 8 if not row.size_bytes else min(18.0, max(6.0, 3 * log10(row.size_bytes) - 6))
    label = {"show": row.passes and row.front, "position": "left", "formatter": "{b}"}
    value = [_at(row), row.ratio, row.size_bytes, row.latency_ns]
    dot = {"name": row.candidate, "id": f"{report.id}|{row.candidate}", "value": value, "symbolSize": size}
    return dot | {"label": label, "symbol": "circle" if row.front else "emptyCircle"}


def _stroke(row: AdviceRow) -> list[list[Any]]:
    return [[_at(row), row.ratio_low], [_at(row), row.ratio_high], [_at(row), None]] if row.ratio_low else []
