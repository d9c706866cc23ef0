"""Results of a settings search.

They are the tried settings as a table, and charts of their cost over trials and over a constraint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from visualprof.reader.results.report import Report
from visualprof.reader.results.search import Bound, Search, TrialRow
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns

METRICS = (
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "samples_per_s",
    "rss_bytes",
    "device_bytes",
    "error",
    "size_bytes",
    "energy_j_per_sample",
    "load_ns",
)
UNITS = {"ns": "ns", "bytes": "bytes", "j_per_sample": "joule"}
SEARCH_STATES = ("feasible", "infeasible")
MAX_LIMIT_RATIO = 2
FEASIBLE_STYLE = {"itemStyle": {"color": "@c:feasible"}}


class SearchColumns(Columns):
    """One row per setting; `None` where a value is unknown or was not measured.

    Most fields are those of `reader.results.search.TrialRow`.

    Attributes:
        kind: The default setting, a trial, or one of the best trials measured again.
        best: Whether the row is the resulting trial, or that trial measured again.
    """

    report: kinds.TextColumn
    kind: kinds.WordColumn
    trial: kinds.CountColumn
    setting: kinds.TextColumn
    state: kinds.WordColumn
    verdict: kinds.WordColumn
    ratio: kinds.RatioColumn
    ratio_low: kinds.RatioColumn
    ratio_high: kinds.RatioColumn
    margin_ratio: kinds.RatioColumn
    p50_ns: kinds.DurationColumn
    p90_ns: kinds.DurationColumn
    p99_ns: kinds.DurationColumn
    samples_per_s: kinds.CountColumn
    rss_bytes: kinds.SizeColumn
    device_bytes: kinds.SizeColumn
    error: kinds.CountColumn
    size_bytes: kinds.SizeColumn
    energy_j_per_sample: kinds.EnergyColumn
    load_ns: kinds.DurationColumn
    best: kinds.FlagColumn
    why: kinds.TextColumn


class SearchedColumns(Columns):
    """One row per search: its objective, and how much of the space was tried.

    Attributes:
        data_rows: Rows of the user's own data, 0 without any.
    """

    report: kinds.TextColumn
    objective: kinds.WordColumn
    where: kinds.ListColumn
    method: kinds.WordColumn
    tried: kinds.CountColumn
    total: kinds.CountColumn
    settings: kinds.CountColumn
    data_rows: kinds.CountColumn
    complete: kinds.FlagColumn


def trial_columns(reports: Sequence[Report]) -> SearchColumns:
    """Return every setting of the reports' searches, in the order of the reports."""
    rows = [(report, search, row) for report, search in _reports_with_search(reports) for row in search.rows]
    copied_fields = ("kind", "trial", "state", "verdict", "ratio", "ratio_low", "ratio_high", "margin_ratio", "why")
    return SearchColumns(
        report=[report.id for report, _, _ in rows],
        setting=[setting_text(row) for _, _, row in rows],
        best=[row.trial is not None and row.trial == search.best for _, search, row in rows],
        **{name: [getattr(row, name) for _, _, row in rows] for name in copied_fields},
        **{name: [row.figure(name) for _, _, row in rows] for name in METRICS},
    )


def search_columns(reports: Sequence[Report]) -> SearchedColumns:
    """Return the searches of the reports."""
    rows = list(_reports_with_search(reports))
    copied_fields = ("objective", "method", "tried", "total", "settings", "data_rows", "complete")
    return SearchedColumns(
        report=[report.id for report, _ in rows],
        where=[[bound.text for bound in search.where] for _, search in rows],
        **{name: [getattr(search, name) for _, search in rows] for name in copied_fields},
    )


def setting_text(row: TrialRow) -> str:
    """Return a setting in words, as `batch 4, threads 2`."""
    return ", ".join(f"{name} {value}" for name, value in row.setting)


def _reports_with_search(reports: Sequence[Report]) -> Iterator[tuple[Report, Search]]:
    """Yield the reports that contain a search."""
    for report in reports:
        if report.search:
            yield report, report.search


def trials_chart(reports: Sequence[Report]) -> charts.Option:
    """Return the cost of each trial relative to the default setting, with the best feasible cost so far as a line."""
    searches = [(report, search, _measured_trials(search)) for report, search in _reports_with_search(reports)]
    if not any(rows for _, _, rows in searches):
        return {}
    dots = [(row.state, _dot(report, search, row, row.trial)) for report, search, rows in searches for row in rows]
    lines = [_best_line(rows) for _, _, rows in searches]
    fields = (("@t:column.trial", "count"), ("@t:column.ratio_to_default", "ratio"))
    return charts.scatter(_series_by_state(dots), fields, lines, ("value", "value"))


def constraint_chart(reports: Sequence[Report]) -> charts.Option:
    """Return the cost over the metric of the first constraint, with the area in which the constraint is satisfied."""
    for report, search in _reports_with_search(reports):
        rows = _measured_trials(search)
        for bound in search.where:
            points = [row for row in rows if row.figure(bound.field) is not None]
            if len({row.figure(bound.field) for row in points}) > 1:
                return _constraint_option(report, search, points, bound)
    return {}


def _constraint_option(report: Report, search: Search, rows: Sequence[TrialRow], bound: Bound) -> charts.Option:
    """Return the chart of one constraint."""
    values = [row.figure(bound.field) or 0.0 for row in rows]
    top = 1.05 * max(row.ratio or 0.0 for row in rows)
    is_limit_outside = bound.limit > MAX_LIMIT_RATIO * max(values)  # then the whole chart is on one side of the limit
    high = 1.05 * max(values) if is_limit_outside else max(1.05 * max(values), 1.2 * bound.limit)
    area_ends = (0.0, min(bound.limit, high)) if bound.sign.startswith("<") else (min(bound.limit, high), high)
    line = {"type": "line", "name": "@t:search.kept", "showSymbol": False, "silent": True} | FEASIBLE_STYLE
    area = {"data": [[end, top] for end in area_ends], "lineStyle": {"opacity": 0}, "areaStyle": {"opacity": 0.12}}
    edge = {"data": [[bound.limit, 0], [bound.limit, top]], "lineStyle": {"width": 1.5, "type": "dashed"}}
    dots = [(row.state, _dot(report, search, row, row.figure(bound.field))) for row in rows]
    unit = next((unit for suffix, unit in UNITS.items() if bound.field.endswith(f"_{suffix}")), "count")
    fields = ((f"@t:column.{bound.field}", unit), ("@t:column.ratio_to_default", "ratio"))
    extra = [line | area] if is_limit_outside else [line | area, line | edge]
    return charts.scatter(_series_by_state(dots), fields, extra, ("value", "value"))


def _series_by_state(dots: Sequence[tuple[str, charts.Option]]) -> list[tuple[str, list[charts.Option]]]:
    """Return one series per state that some point has."""
    series = [
        (f"@t:search.state.{state}", [dot for dot_state, dot in dots if dot_state == state]) for state in SEARCH_STATES
    ]
    return [item for item in series if item[1]]


def _measured_trials(search: Search) -> list[TrialRow]:
    """Return the trials that were measured."""
    return [row for row in search.rows if row.kind == "trial" and row.state in SEARCH_STATES and row.ratio is not None]


def _dot(report: Report, search: Search, row: TrialRow, position: float | None) -> charts.Option:
    """Return the point of a trial."""
    is_best = row.trial == search.best
    point = {"name": setting_text(row), "id": f"{report.id}|trial {row.trial}", "value": [position, row.ratio]}
    symbol = "circle" if row.state == "feasible" else "emptyCircle"
    return point | {"symbolSize": 14 if is_best else 8, "symbol": symbol}


def _best_line(rows: Sequence[TrialRow]) -> charts.Option:
    """Return the line of the best feasible cost so far."""
    data: list[list[Any]] = []
    lowest = float("inf")
    for row in rows:
        if row.state == "feasible":
            lowest = min(lowest, row.ratio or lowest)
        if lowest < float("inf"):
            data.append([row.trial, lowest])
    line = {"type": "line", "name": "@t:search.best_so_far", "data": data, "showSymbol": False, "silent": True}
    return line | {"step": "end", "lineStyle": {"width": 1.5, "opacity": 0.6}} | FEASIBLE_STYLE
