"""Histograms that a training program logged, as quantiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visualprof.reader.run_data.histograms import parse_histogram
from visualprof.reader.run_data.rows import unix_seconds
from visualprof.reader.run_data.run import RunData
from visualprof.views import Params, View
from visualprof.views.answers.kinds import CountColumn, NameColumn
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.run_data.bins import quantiles
from visualprof.views.measure.run_data.lines import line_name, needs_run_data, rows_of, select_series

_SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class DistributionsParams(Params):
    """Parameters of the view.

    Attributes:
        tag: Regular expression that a part of the tag must match.
    """

    tag: str = ""


class DistributionsColumns(Columns):
    """Histograms, by tag, run and step.

    Attributes:
        wall_time_s: Unix time.
        count: Number of values.
        min: Left edge of the first bucket that is not empty.
        p05: Value below which 5 % of the values lie, interpolated within its bucket; the other quantiles likewise.
        max: Right edge of the last bucket that is not empty.
    """

    tag: NameColumn
    run: NameColumn
    step: CountColumn
    wall_time_s: CountColumn
    count: CountColumn
    min: CountColumn
    p05: CountColumn
    p25: CountColumn
    median: CountColumn
    p75: CountColumn
    p95: CountColumn
    max: CountColumn


class DistributionsAnswer(Table[DistributionsColumns]):
    """Histograms of the matching tags.

    Attributes:
        warnings: Skipped parts of the files.
    """

    warnings: list[str]


def compute(data: RunData, params: DistributionsParams) -> DistributionsAnswer:
    """Return every histogram, sorted by tag, line and step."""
    series = select_series(data, ("histogram",), params.tag)
    rows: list[list[object]] = []
    for entry, row in rows_of(series):
        histogram = entry.decode(row, parse_histogram)
        wall_s = float(unix_seconds(entry.wall_ns[row : row + 1])[0])
        name = line_name(entry.line, entry.writer)
        values = [float(value) for value in quantiles(histogram, _SHARES)]
        rows.append([entry.tag, name, int(entry.step[row]), wall_s, float(np.sum(histogram.counts)), *values])
    return DistributionsAnswer(columns=from_rows(DistributionsColumns, rows), warnings=data.warnings())


VIEW = View("distributions", 7, needs_run_data, DistributionsParams, compute, subject="data")
