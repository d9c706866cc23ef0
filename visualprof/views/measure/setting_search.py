"""Settings that a search tried as a table, their cost over the trials, and over the figure that is constrained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from visualprof.reader.results.report import Report
from visualprof.reader.results.search import Bound, Search, TrialRow
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns

METRICS = (
    "p50_ns", "p90_ns", "p99_ns", "samples_per_s", "rss_bytes", "device_bytes", "error", "size_bytes",
    "energy_j_per_sample", "load_ns",
)  # fmt: skip
UNITS = {"ns": "ns", "bytes": "bytes", "j_per_sample": "joule"}
STATES = ("feasible", "infeasible")
MAX_LIMIT_RATIO = 2
FEASIBLE_STYLE = {"itemStyle": {"color": "@c:feasible"}}


class SearchColumns(Columns):
    """One row a setting; None where unknown or not measured. Fields: `reader.results.search.TrialRow`.

    kind: the default setting, a trial, or one of the best measured again. best: the trial that is the result, and the
    same measured again.
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
    """One row a search: what was looked for, and how much of it was tried. data_rows: 0 without any of the user's."""

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
    """Every setting of the reports' searches, in their order."""
    rows = [(report, search, row) for report, search in _searches(reports) for row in search.rows]
    own = ("kind", "trial", "state", "verdict", "ratio", "ratio_low", "ratio_high", "margin_ratio", "why")
    return SearchColumns(
        report=[report.id for report, _, _ in rows],
        setting=[setting_text(row) for _, _, row in rows],
        best=[row.trial is not None and row.trial == search.best for _, search, row in rows],
        **{name: [getattr(row, name) for _, _, row in rows] for name in own},
        **{name: [row.figure(name) for _, _, row in rows] for name in METRICS},
    )


def search_columns(reports: Sequence[Report]) -> SearchedColumns:
    """The searches of the reports."""
    rows = list(_searches(reports))
    own = ("objective", "method", "tried", "total", "settings", "data_rows", "complete")
    return SearchedColumns(
        report=[report.id for report, _ in rows],
        where=[[bound.text for bound in search.where] for _, search in rows],
        **{name: [getattr(search, name) for _, search in rows] for name in own},
    )


def setting_text(row: TrialRow) -> str:
    """A setting in words, `batch 4, threads 2`."""
    return ", ".join(f"{name} {value}" for name, value in row.setting)


def _searches(reports: Sequence[Report]) -> Iterator[tuple[Report, Search]]:
    for report in reports:
        if report.search:
            yield report, report.search


def trials_chart(reports: Sequence[Report]) -> charts.Option:
    """The cost of each trial as a share of the default setting's, and the least feasible one so far as a line."""
    searches = [(report, search, _measured(search)) for report, search in _searches(reports)]
    if not any(rows for _, _, rows in searches):
        return {}
    dots = [(row.state, _dot(report, search, row, row.trial)) for report, search, rows in searches for row in rows]
    lines = [_best_so_far(rows) for _, _, rows in searches]
    fields = (("@t:column.trial", "count"), ("@t:column.ratio_to_default", "ratio"))
    return charts.scatter(_by_state(dots), fields, lines, ("value", "value"))


def constraint_chart(reports: Sequence[Report]) -> charts.Option:
    """The cost over the figure of the first constraint, with the area in which that is kept."""
    for report, search in _searches(reports):
        rows = _measured(search)
        for bound in search.where:
            drawn = [row for row in rows if row.figure(bound.field) is not None]
            if len({row.figure(bound.field) for row in drawn}) > 1:
                return _beside(report, search, drawn, bound)
    return {}


def _beside(report: Report, search: Search, rows: Sequence[TrialRow], bound: Bound) -> charts.Option:
    values = [row.figure(bound.field) or 0.0 for row in rows]
    top = 1.05 * max(row.ratio or 0.0 for row in rows)
    far = bound.limit > MAX_LIMIT_RATIO * max(values)  # then all of the chart lies on one side of it
    high = 1.05 * max(values) if far else max(1.05 * max(values), 1.2 * bound.limit)
    ends = (0.0, min(bound.limit, high)) if bound.sign.startswith("<") else (min(bound.limit, high), high)
    line = {"type": "line", "name": "@t:search.kept", "showSymbol": False, "silent": True} | FEASIBLE_STYLE
    area = {"data": [[end, top] for end in ends], "lineStyle": {"opacity": 0}, "areaStyle": {"opacity": 0.12}}
    edge = {"data": [[bound.limit, 0], [bound.limit, top]], "lineStyle": {"width": 1.5, "type": "dashed"}}
    dots = [(row.state, _dot(report, search, row, row.figure(bound.field))) for row in rows]
    unit = next((unit for suffix, unit in UNITS.items() if bound.field.endswith(f"_{suffix}")), "count")
    fields = ((f"@t:column.{bound.field}", unit), ("@t:column.ratio_to_default", "ratio"))
    extra = [line | area] if far else [line | area, line | edge]
    return charts.scatter(_by_state(dots), fields, extra, ("value", "value"))


def _by_state(dots: Sequence[tuple[str, charts.Option]]) -> list[tuple[str, list[charts.Option]]]:
    """A series a state that some dot has."""
    series = [(f"@t:search.state.{state}", [dot for own, dot in dots if own == state]) for state in STATES]
    return [one for one in series if one[1]]


def _measured(search: Search) -> list[TrialRow]:
    return [row for row in search.rows if row.kind == "trial" and row.state in STATES and row.ratio is not None]


def _dot(report: Report, search: Search, row: TrialRow, at: float | None) -> charts.Option:
    best = row.trial == search.best
    shown = {"name": setting_text(row), "id": f"{report.id}|trial {row.trial}", "value": [at, row.ratio]}
    symbol = "circle" if row.state == "feasible" else "emptyCircle"
    return shown | {"symbolSize": 14 if best else 8, "symbol": symbol}


def _best_so_far(rows: Sequence[TrialRow]) -> charts.Option:
    data: list[list[Any]] = []
    least = float("inf")
    for row in rows:
        if row.state == "feasible":
            least = min(least, row.ratio or least)
        if least < float("inf"):
            data.append([row.trial, least])
    line = {"type": "line", "name": "@t:search.best_so_far", "data": data, "showSymbol": False, "silent": True}
    return line | {"step": "end", "lineStyle": {"width": 1.5, "opacity": 0.6}} | FEASIBLE_STYLE
