"""Runs of one name over time: a figure of each, the levels between which it changed. Source: docs/views.md#trend."""

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
from visualprof.views.measure.best_points import doubtful
from visualprof.views.measure.change_points import band, changes
from visualprof.views.trend.figures import FIGURES, Figures, figures_of_point

MOST = 500  # measurements of a series, the newest
_PIECES = re.compile(r"([-_./ @+#]+)")
_COUNTED = re.compile(r"\d+|(build|run|job|ci|night|nightly|day|week|commit|rev|attempt)\d+|(\d{4,8}t)?\d+z?", re.I)
_HASH = re.compile(r"(?=.*\d)[0-9a-f]{7,40}", re.I)


class Measured(msgspec.Struct, frozen=True):
    """A recording, or a measured size of a report. at_ns: Unix epoch. doubtful: it may be another the next time.

    Args:
        series: what it is one of.
        run: id of its run or report; worker, span: of its recording, "" of a report.
        batch: of a report.
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
    """Series, first those whose last change is the worst. level: the last; change_ratio: of it against the one before.

    change: worse, better, or none. changed_run: the first run of the last level; before_run: the one before it.
    of: what its measurements are.
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
    """Every measurement in order of series and time. level, low, high: of the stretch that it belongs to and its noise.

    changed: it is the first of a new level. doubtful: unstable, or on a busy host; levels are found without it.
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
    """A figure of runs over time. metrics: those that are known of any. alone: runs that no other has the name of."""

    metric: str
    metrics: list[str]
    alone: kinds.Count
    series: Table[SeriesColumns]
    measurements: Table[MeasurementColumns]


def series_of(run: str) -> str:
    """What runs of one name share: numbers, dates and hashes that stand by themselves in an id become `*`.

    `nightly/resnet50-2026-11-20` and `nightly/resnet50-2026-11-21` are `nightly/resnet50-*`.
    """
    pieces = _PIECES.split(run)
    folded = ["*" if place % 2 == 0 and piece and _counts(piece) else piece for place, piece in enumerate(pieces)]
    return re.sub(r"\*([-_. :]?\*)+", "*", "".join(folded))


def _counts(piece: str) -> bool:
    return bool(_COUNTED.fullmatch(piece) or _HASH.fullmatch(piece))


def series_named(run: Run) -> str:
    """The series of a run: a log directory that is one itself has the id `.`, and a name."""
    return series_of(run.name if run.id == "." else run.id)


def recorded(runs: Iterable[Run]) -> list[tuple[Run, Span]]:
    """What is followed: every recording of the first worker of each run; of a run that is only live there is none."""
    return [(run, span) for run in runs for worker in run.workers[:1] for span in worker.spans]


def measured_in(run: Run, span: Span, figures: Figures) -> Measured:
    """A recording of the first worker of a run; of the time of its file, where it does not tell when it began."""
    at_ns = figures.at_ns or span.version.mtime_ns
    return Measured(series_named(run), run.id, at_ns, figures.figures, run.workers[0].id, span.id)


def measured_of(report: Report) -> list[Measured]:
    """The sizes of a report that were measured; nothing of one that came with visualprof."""
    name = " · ".join(part for part in (report.name, report.spec, report.agent) if part)
    return [
        Measured(
            f"{name} · batch={point.batch}", report.id, report.finished_ns, figures_of_point(point), batch=point.batch,
            doubtful=doubtful(point) or point.throttled is True,
        )
        for point in report.points if not report.sample
    ]  # fmt: skip


def trend(measured: Iterable[Measured], metric: str = "") -> Trend:
    """A figure over time, of everything that was measured more than once.

    Args: metric: of FIGURES; "" is the first that is known of something that was measured more than once.
    Raises: BadParameter: there is no such figure.
    """
    of_series = defaultdict[str, list[Measured]](list)
    for one in measured:
        of_series[one.series].append(one)
    several = {name: members for name, members in of_series.items() if len(members) > 1}
    known = {figure for members in several.values() for one in members for figure in one.figures}
    metrics = [figure for figure in FIGURES if figure in known]
    if metric and metric not in FIGURES:
        raise BadParameter(
            msg("views.there_no_figure", f"there is no figure {metric!r}"),
            msg("views.figures", f"figures: {', '.join(FIGURES)}"),
        )
    metric = metric or (metrics or ["step.total"])[0]
    found = [
        _followed(name, chosen, metric)
        for name, members in several.items()
        if len(chosen := sorted((m for m in members if metric in m.figures), key=lambda m: m.at_ns)[-MOST:]) > 1
    ]
    found.sort(key=lambda one: (-one.harm, one.row[0]))
    of_figure: dict[str, Kind] = dict.fromkeys(("value", "level", "low", "high"), FIGURES[metric].kind)
    rows = [row for one in found for row in one.measurements]
    return Trend(
        metric=metric,
        metrics=metrics,
        alone=len(of_series) - len(several),
        series=Table(columns=from_rows(SeriesColumns, [one.row for one in found]), kinds=of_figure),
        measurements=Table(columns=from_rows(MeasurementColumns, rows), kinds=of_figure),
    )


class _Followed(msgspec.Struct):
    """A series: its row, those of its measurements, and by how much its last change is for the worse."""

    row: tuple[Any, ...]
    measurements: list[tuple[Any, ...]]
    harm: float


def _followed(name: str, members: Sequence[Measured], metric: str) -> _Followed:
    values = [one.figures[metric] for one in members]
    sure = [place for place, one in enumerate(members) if not one.doubtful] or list(range(len(members)))
    starts = [sure[place] for place in changes([values[place] for place in sure])]
    stretches = list(zip([0, *starts], [*starts, len(members)], strict=True))
    bands = [band([values[place] for place in sure if first <= place < end]) for first, end in stretches]
    rows = [
        (name, one.run, one.worker, one.span, one.batch, one.at_ns, value, *levels, place in starts, one.doubtful)
        for (first, end), levels in zip(stretches, bands, strict=True)
        for place, one, value in zip(range(first, end), members[first:end], values[first:end], strict=True)
    ]
    level = bands[-1][0]
    ratio = level / bands[-2][0] - 1 if starts else None
    harm = 0.0 if ratio is None else ratio * FIGURES[metric].worse
    of = "recordings" if members[0].batch is None else "reports"
    changed, before = (members[starts[-1]], members[starts[-1] - 1]) if starts else (None, None)
    kind = ("worse" if harm > 0 else "better") if starts else "none"
    when, first, last = changed and changed.at_ns, changed and changed.run, before and before.run
    row = (name, of, len(members), level, kind, ratio, when, first, last)
    return _Followed(row, rows, harm)


def drawn(answer: Trend, series: str) -> charts.Option:
    """One series over time: its levels, changes for the worse and for the better apart; {} where it is not there."""
    rows, worse = answer.measurements.columns, FIGURES[answer.metric].worse
    points: dict[str, list[charts.Option]] = {"measured": [], "worse": [], "better": [], "doubtful": []}
    lines: list[charts.Option] = []
    mine = [place for place, name in enumerate(rows.series) if name == series]
    for number, place in enumerate(mine):
        level, at = rows.level[place], rows.at_ns[place]
        kind = "doubtful" if rows.doubtful[place] else "measured"
        if rows.changed[place]:
            kind = "worse" if (level - rows.level[mine[number - 1]]) * worse > 0 else "better"
        if not number or rows.changed[place]:
            lines.append(_line(len(lines)))
        lines[-1]["data"].append([at, level])
        value = [at, rows.value[place], level, rows.low[place], rows.high[place]]
        size = 12 if rows.changed[place] else 7
        points[kind].append({"name": rows.run[place], "id": str(number), "symbolSize": size, "value": value})
    return _chart(points, lines, FIGURES[answer.metric].kind) if mine else {}


def _chart(points: dict[str, list[charts.Option]], lines: list[charts.Option], unit: Kind) -> charts.Option:
    told = ("value", "level", "low", "high")
    fields = [("@t:column.at_ns", "moment"), *((f"@t:column.in_trend.{key}", unit) for key in told)]
    kinds_of_points = [(f"@t:trend.{kind}", dots) for kind, dots in points.items() if dots]
    option = charts.scatter(kinds_of_points, fields, lines, ("value", "value"))
    for one in option["series"]:
        if one["type"] == "scatter":
            one["itemStyle"] = {"color": f"@c:{one['name'].rpartition('.')[2]}"}
    for axis in ("xAxis", "yAxis"):
        option[axis] = {key: value for key, value in option[axis].items() if key != "name"} | {"scale": True}
    return option


def _line(number: int) -> charts.Option:
    return {
        "type": "line", "name": "@t:trend.level", "id": f"level{number}", "data": [], "showSymbol": False,
        "silent": True, "lineStyle": {"width": 2, "opacity": 0.7}, "itemStyle": {"color": "@c:measured"},
    }  # fmt: skip
