"""Trend of a metric over runs with the same name: series, and the levels they change between. docs/views/trend.md."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.logdir.listing import Run, Span
from visualprof.reader.results.report import Report
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column, Kind
from visualprof.views.answers.table import Answer, Columns, Table, from_rows
from visualprof.views.measure.reports.best_points import is_doubtful
from visualprof.views.measure.reports.change_points import find_change_points, level_band
from visualprof.views.trend.figures import FIGURES, Figures, figures_of_point

MAX_MEASUREMENTS = 500  # the newest measurements of a series
TIE_NS = 2 * 10**9  # times that differ by less do not tell which measurement came first
_PIECES = re.compile(r"([-_./ @+#]+)")
_COUNTED = re.compile(r"\d+|(build|run|job|ci|night|nightly|day|week|commit|rev|attempt)\d+|(\d{4,8}t)?\d+z?", re.I)
_HASH = re.compile(r"(?=.*\d)[0-9a-f]{7,40}", re.I)


class Measured(msgspec.Struct, frozen=True):
    """Metrics of a recording, or of a measured batch size of a report.

    Attributes:
        series: Name of its series.
        run: Id of its run or report.
        at_ns: Unix epoch.
        figures: Metrics by name.
        worker: Worker of a recording; "" for reports.
        span: Span of a recording; "" for reports.
        batch: Batch size of a report.
        doubtful: Whether the values may differ next time.
    """

    series: str
    run: str
    at_ns: int
    figures: dict[str, float]
    worker: str = ""
    span: str = ""
    batch: int | None = None
    doubtful: bool = False


class SeriesColumns(Columns):
    """Series, those with the worst last change first.

    Attributes:
        of: Source of its measurements.
        level: The last level.
        change: worse, better, or none.
        change_ratio: The last level relative to the one before.
        changed_run: The first run of the last level.
        before_run: The run before `changed_run`.
    """

    series: kinds.NameColumn
    of: kinds.WordColumn
    measurements: kinds.CountColumn
    level: Column
    change: kinds.WordColumn
    change_ratio: kinds.RatioColumn
    changed_at_ns: kinds.MomentColumn
    changed_run: kinds.TextColumn
    before_run: kinds.TextColumn


class MeasurementColumns(Columns):
    """Measurements by series and time.

    Attributes:
        level: Level of the interval that contains the measurement.
        low: Lower bound of the noise of that level.
        high: Upper bound of the noise of that level.
        changed: Whether it is the first of a new level.
        doubtful: Whether it is unstable or from a busy host; such measurements are not used to find levels.
    """

    series: kinds.NameColumn
    run: kinds.TextColumn
    worker: kinds.TextColumn
    span: kinds.TextColumn
    batch: kinds.IdentifierColumn
    at_ns: kinds.MomentColumn
    value: Column
    level: Column
    low: Column
    high: Column
    changed: kinds.FlagColumn
    doubtful: kinds.FlagColumn


class Trend(Answer):
    """A metric of runs over time.

    Attributes:
        metrics: Metrics that are known for any run.
        alone: Runs whose name no other run shares.
    """

    metric: str
    metrics: list[str]
    alone: kinds.Count
    series: Table[SeriesColumns]
    measurements: Table[MeasurementColumns]


def series_of(run: str) -> str:
    """Return the series of a run: its id with separate numbers, dates and hashes replaced by `*`.

    `nightly/resnet50-2026-11-20` and `nightly/resnet50-2026-11-21` are in `nightly/resnet50-*`.
    """
    pieces = _PIECES.split(run)
    folded = ["*" if place % 2 == 0 and piece and _is_counter(piece) else piece for place, piece in enumerate(pieces)]
    return re.sub(r"\*([-_. :]?\*)+", "*", "".join(folded))


def _is_counter(piece: str) -> bool:
    return bool(_COUNTED.fullmatch(piece) or _HASH.fullmatch(piece))


def series_named(run: Run) -> str:
    """Return the series of a run. A log directory that is itself a run has the id `.`, so its name is used."""
    return series_of(run.name if run.id == "." else run.id)


def in_order(measured: Iterable[Measured]) -> list[Measured]:
    """Return measurements by time, and at about the same time by the dates and numbers in their names.

    Files that were copied together have the time of the copy, not of the recording.
    """
    rows, clusters = sorted(measured, key=lambda row: (row.at_ns, _name_key(row))), list[list[Measured]]()
    for row in rows:
        if clusters and row.at_ns - clusters[-1][-1].at_ns < TIE_NS:
            clusters[-1].append(row)
        else:
            clusters.append([row])
    return [row for cluster in clusters for row in sorted(cluster, key=_name_key)]


def _name_key(row: Measured) -> list[tuple[int, str]]:
    """Return the names of a measurement as a key by which numbers sort as numbers, and so dates as dates."""
    pieces = re.split(r"(\d+)", f"{row.run} {row.worker} {row.span} {row.batch or 0}")
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def followed_recordings(runs: Iterable[Run]) -> list[tuple[Run, Span]]:
    """Return the followed recordings, from the first worker of each run. Live runs have none."""
    return [(run, span) for run in runs for worker in run.workers[:1] for span in worker.spans]


def measure_recording(run: Run, span: Span, figures: Figures) -> Measured:
    """Return the metrics of a recording, at the time of its file if the recording has no start time."""
    at_ns = figures.at_ns or span.version.mtime_ns
    return Measured(series_named(run), run.id, at_ns, figures.figures, run.workers[0].id, span.id)


def measure_report(report: Report) -> list[Measured]:
    """Return the metrics of the measured batch sizes of a report; nothing for reports bundled with visualprof."""
    name = " · ".join(part for part in (report.name, report.spec, report.agent) if part)
    return [
        Measured(
            f"{name} · batch={point.batch}",
            report.id,
            report.finished_ns,
            figures_of_point(point),
            batch=point.batch,
            doubtful=is_doubtful(point) or point.throttled is True,
        )
        for point in report.points
        if not report.sample
    ]


def trend(measured: Iterable[Measured], metric: str = "") -> Trend:
    """Return a metric over time for everything that was measured more than once.

    Args:
        metric: A key of FIGURES; "" for the first metric that is known for a series with several measurements.

    Raises:
        BadParameter: There is no such metric.
    """
    of_series = defaultdict[str, list[Measured]](list)
    for measurement in measured:
        of_series[measurement.series].append(measurement)
    several = {name: members for name, members in of_series.items() if len(members) > 1}
    available = {figure for members in several.values() for measurement in members for figure in measurement.figures}
    metrics = [figure for figure in FIGURES if figure in available]
    if metric and metric not in FIGURES:
        raise BadParameter(
            msg("views.there_no_figure", f"there is no figure {metric!r}"),
            msg("views.figures", f"figures: {', '.join(FIGURES)}"),
        )
    metric = metric or (metrics or ["step.total"])[0]
    followed = [
        _followed(name, chosen, metric)
        for name, members in several.items()
        if len(chosen := in_order(m for m in members if metric in m.figures)[-MAX_MEASUREMENTS:]) > 1
    ]
    followed.sort(key=lambda item: (-item.harm, item.row[0]))
    of_figure: dict[str, Kind] = dict.fromkeys(("value", "level", "low", "high"), FIGURES[metric].kind)
    rows = [row for item in followed for row in item.measurements]
    return Trend(
        metric=metric,
        metrics=metrics,
        alone=len(of_series) - len(several),
        series=Table(columns=from_rows(SeriesColumns, [item.row for item in followed]), kinds=of_figure),
        measurements=Table(columns=from_rows(MeasurementColumns, rows), kinds=of_figure),
    )


class _Followed(msgspec.Struct):
    """A series: its row, the rows of its measurements, and how bad its last change is."""

    row: tuple[Any, ...]
    measurements: list[tuple[Any, ...]]
    harm: float


def _followed(name: str, members: Sequence[Measured], metric: str) -> _Followed:
    values = [member.figures[metric] for member in members]
    sure = [place for place, member in enumerate(members) if not member.doubtful] or list(range(len(members)))
    starts = [sure[place] for place in find_change_points([values[place] for place in sure])]
    stretches = list(zip([0, *starts], [*starts, len(members)], strict=True))
    bands = [level_band([values[place] for place in sure if first <= place < end]) for first, end in stretches]
    rows = [
        (
            name,
            member.run,
            member.worker,
            member.span,
            member.batch,
            member.at_ns,
            value,
            *levels,
            place in starts,
            member.doubtful,
        )
        for (first, end), levels in zip(stretches, bands, strict=True)
        for place, member, value in zip(range(first, end), members[first:end], values[first:end], strict=True)
    ]
    level = bands[-1][0]
    ratio = level / bands[-2][0] - 1 if starts else None
    harm = 0.0 if ratio is None else ratio * FIGURES[metric].worse
    source = "recordings" if members[0].batch is None else "reports"
    changed, before = (members[starts[-1]], members[starts[-1] - 1]) if starts else (None, None)
    kind = ("worse" if harm > 0 else "better") if starts else "none"
    when, first, last = changed and changed.at_ns, changed and changed.run, before and before.run
    row = (name, source, len(members), level, kind, ratio, when, first, last)
    return _Followed(row, rows, harm)


def series_chart(answer: Trend, series: str) -> charts.Option:
    """Return the chart of one series with its levels, regressions and improvements; {} if there is no such series."""
    rows, worse = answer.measurements.columns, FIGURES[answer.metric].worse
    points: dict[str, list[charts.Option]] = {"measured": [], "worse": [], "better": [], "doubtful": []}
    lines: list[charts.Option] = []
    places = [place for place, name in enumerate(rows.series) if name == series]
    for number, place in enumerate(places):
        level, at = rows.level[place], rows.at_ns[place]
        kind = "doubtful" if rows.doubtful[place] else "measured"
        if rows.changed[place]:
            kind = "worse" if (level - rows.level[places[number - 1]]) * worse > 0 else "better"
        if not number or rows.changed[place]:
            lines.append(_line(len(lines)))
        lines[-1]["data"].append([at, level])
        value = [at, rows.value[place], level, rows.low[place], rows.high[place]]
        size = 12 if rows.changed[place] else 7
        points[kind].append({"name": rows.run[place], "id": str(number), "symbolSize": size, "value": value})
    return _chart(points, lines, FIGURES[answer.metric].kind) if places else {}


def _chart(points: dict[str, list[charts.Option]], lines: list[charts.Option], unit: Kind) -> charts.Option:
    keys = ("value", "level", "low", "high")
    fields = [("@t:column.at_ns", "moment"), *((f"@t:column.in_trend.{key}", unit) for key in keys)]
    kinds_of_points = [(f"@t:trend.{kind}", dots) for kind, dots in points.items() if dots]
    option = charts.scatter(kinds_of_points, fields, lines, ("value", "value"))
    for line in option["series"]:
        if line["type"] == "scatter":
            line["itemStyle"] = {"color": f"@c:{line['name'].rpartition('.')[2]}"}
    for axis in ("xAxis", "yAxis"):
        option[axis] = {key: value for key, value in option[axis].items() if key != "name"} | {"scale": True}
    return option


def _line(number: int) -> charts.Option:
    return {
        "type": "line",
        "name": "@t:trend.level",
        "id": f"level{number}",
        "data": [],
        "showSymbol": False,
        "silent": True,
        "lineStyle": {"width": 2, "opacity": 0.7},
        "itemStyle": {"color": "@c:measured"},
    }
