"""Precision-recall and ROC curves that a training program logged, with areas computed from their counts."""

from __future__ import annotations

from dataclasses import dataclass

from visualprof.reader.run_data.curves import parse_curve
from visualprof.reader.run_data.rows import unix_seconds
from visualprof.reader.run_data.run import RunData
from visualprof.views import Params, View
from visualprof.views.answers.kinds import CountColumn, NameColumn, RatioColumn
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.run_data.lines import line_name, needs_run_data, rows_of, select_series
from visualprof.views.measure.run_data.rates import areas_of, rates_of


@dataclass(frozen=True)
class CurvesParams(Params):
    """Parameters of the view.

    Attributes:
        tag: Regular expression that a part of the tag must match.
    """

    tag: str = ""


class CurvesColumns(Columns):
    """Curves, by tag, run and step.

    Attributes:
        wall_time_s: Unix time.
        thresholds: Number of thresholds.
        positives: Number of positive examples.
        negatives: Number of negative examples.
        average_precision_ratio: Area under the precision-recall curve.
        roc_area_ratio: Area under the ROC curve.
    """

    tag: NameColumn
    run: NameColumn
    step: CountColumn
    wall_time_s: CountColumn
    thresholds: CountColumn
    positives: CountColumn
    negatives: CountColumn
    average_precision_ratio: RatioColumn
    roc_area_ratio: RatioColumn


class CurvesAnswer(Table[CurvesColumns]):
    """Curves of the matching tags.

    Attributes:
        warnings: Skipped parts of the files.
    """

    warnings: list[str]


def compute(data: RunData, params: CurvesParams) -> CurvesAnswer:
    """Return every curve, sorted by tag, line and step."""
    series = select_series(data, ("pr_curve", "roc_curve"), params.tag)
    rows: list[list[object]] = []
    for entry, row in rows_of(series):
        counts = entry.decode(row, parse_curve)
        size = len(counts.threshold)
        positives = float(counts.true_positive[0] + counts.false_negative[0]) if size else None
        negatives = float(counts.false_positive[0] + counts.true_negative[0]) if size else None
        wall_s = float(unix_seconds(entry.wall_ns[row : row + 1])[0])
        name = line_name(entry.line, entry.writer)
        areas = areas_of(rates_of(counts))
        rows.append([entry.tag, name, int(entry.step[row]), wall_s, size, positives, negatives, areas.pr, areas.roc])
    return CurvesAnswer(columns=from_rows(CurvesColumns, rows), warnings=data.warnings())


VIEW = View("curves", 8, needs_run_data, CurvesParams, compute, subject="data")
