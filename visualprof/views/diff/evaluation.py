"""Comparison of two measurements: of models by batch size, of servers by load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.views.answers.table import Table, from_rows
from visualprof.views.diff import serving_loads
from visualprof.views.diff.answer import DiffAnswer, DiffNote, DiffParts, DiffPoints, DiffRows, DiffRun
from visualprof.views.measure.reports.significance import SIGNIFICANCE_LEVEL, p_value
from visualprof.views.measure.reports.verdicts import effective_precision

FIGURES = ("p50_ns", "p90_ns", "p95_ns", "p99_ns", "mean_ns", "qps", "samples_per_s")


def compare_reports(base_path: str, base: Sequence[Report], new_path: str, new: Sequence[Report]) -> DiffAnswer:
    """Compare reports with the same run configuration, or the only reports of two folders, by batch size and load.

    Raises:
        MissingData: No batch size and no load of a server was measured in both.
    """
    pairs = _pairs(base, new)
    points = [row for pair in pairs for row in _figures(*pair)]
    loads = [row for pair in pairs for row in serving_loads.compare_loads(*pair)]
    if not any(row[-4] is not None and row[-3] is not None for row in (*points, *loads)):
        if any(report.serving for report in (*base, *new)):
            raise MissingData(
                msg("views.no_load_common", f"{base_path} and {new_path} have no load level in common"),
                msg("views.measure_both_same_load", "measure both with the same concurrency and request rate"),
            )
        raise MissingData(
            msg("views.no_spec_batch_common", f"{base_path} and {new_path} have no spec and batch in common"),
            msg("views.measure_both_same_batch", "measure both with the same --batch"),
        )
    return DiffAnswer(
        view="evaluation",
        base=_run(base_path, [a for a, _ in pairs]),
        new=_run(new_path, [b for _, b in pairs]),
        step=None,
        parts=Table(columns=from_rows(DiffParts, [])),
        rows=Table(columns=from_rows(DiffRows, [])),
        explained_ratio=None,
        not_explained_ns=None,
        detectable_ratio=None,
        causes=[],
        notes=list({repr(note): note for pair in pairs for note in _notes(*pair)}.values()),
        evaluation=Table(columns=_columns(points, loads)),
    )


def _pairs(base: Sequence[Report], new: Sequence[Report]) -> list[tuple[Report, Report]]:
    if len(base) == len(new) == 1:
        return [(base[0], new[0])]
    by_configuration = {_configuration(report): report for report in base}
    keys = ((_configuration(report), report) for report in new)
    return [(by_configuration[key], report) for key, report in keys if key in by_configuration]


def _configuration(report: Report) -> tuple[str, str]:
    return report.spec, report.model if report.serving else ""


def _columns(points: list[tuple[Any, ...]], loads: list[tuple[Any, ...]]) -> DiffPoints:
    """Return the columns of both kinds of rows; the columns of a kind without rows are absent."""
    rows = [(*row[:3], None, None, *row[3:]) for row in points]
    rows += [(row[0], None, None, *row[1:]) for row in loads]
    columns = from_rows(DiffPoints, rows)
    if not points and loads:
        columns.batch = columns.scenario = None
    if not loads:
        columns.concurrency = columns.offered_per_s = None
    return columns


def _run(path: str, reports: Sequence[Report]) -> DiffRun:
    named = (dict.fromkeys(getattr(r, key) for r in reports) for key in ("backend", "version", "device"))
    return DiffRun(path, *(", ".join(filter(None, names)) for names in named), steps=0)


def _figures(base: Report, new: Report) -> Iterator[tuple[Any, ...]]:
    then = {(p.batch, p.load.scenario): p for p in base.points}
    now = {(p.batch, p.load.scenario): p for p in new.points}
    for key in dict.fromkeys((*then, *now)):
        for figure in FIGURES:
            a, b = (getattr(side[key], figure) if key in side else None for side in (then, now))
            if a is None and b is None:
                continue
            ratio = b / a - 1 if a and b is not None else None
            sure = _significant(then[key], now[key], figure) if key in then and key in now else None
            yield new.spec, *key, figure.removesuffix("_ns"), a, b, ratio, sure


def _significant(base: Point, new: Point, figure: str) -> bool | None:
    """Return whether the repeats differ significantly; None if one side has fewer than two."""
    values = ([v for repeat in point.repeats if (v := getattr(repeat, figure)) is not None] for point in (base, new))
    likely = p_value(*values)
    return None if likely is None else likely < SIGNIFICANCE_LEVEL


def _notes(base: Report, new: Report) -> Iterator[DiffNote]:
    unlike = {
        "framework": (base.backend, new.backend),
        "version": (base.version, new.version),
        "device": (base.device, new.device),
        "host": (base.agent, new.agent),
        "precision": (effective_precision(base), effective_precision(new)),
    }
    for name, (a, b) in unlike.items():
        if a and b and a != b:
            yield DiffNote(name, a, b)  # pyright: ignore[reportArgumentType]
    busy = ["yes" if any(p.host_busy for p in report.points) else None for report in (base, new)]
    if any(busy):
        yield DiffNote("host_busy", busy[0], busy[1])
    if note := serving_loads.unlike_inputs(base, new):
        yield note
