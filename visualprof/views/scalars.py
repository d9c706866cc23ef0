"""Scalars that a training program logged: every point of every tag."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visualprof.errors import BadParameter, MissingData
from visualprof.messages import msg
from visualprof.reader.run_data.rows import unix_seconds
from visualprof.reader.run_data.run import RunData, ScalarTag
from visualprof.views import Params, View
from visualprof.views.answers.kinds import CountColumn, NameColumn
from visualprof.views.answers.table import Columns, LazyTextColumn, Table
from visualprof.views.measure.run_data.lines import compile_pattern, line_name, needs_run_data

MAX_POINTS = 20_000_000


@dataclass(frozen=True)
class ScalarsParams(Params):
    """Parameters of the view.

    Attributes:
        tag: Regular expression that a part of the tag must match.
    """

    tag: str = ""


class ScalarsColumns(Columns):
    """Points, by tag, run and step.

    Attributes:
        run: Folder of the line below the run, and the file if parallel writers logged the tag.
        wall_time_s: Unix time.
    """

    tag: NameColumn
    run: NameColumn
    step: CountColumn
    wall_time_s: CountColumn
    value: CountColumn


class ScalarsAnswer(Table[ScalarsColumns]):
    """Points of the matching tags.

    Attributes:
        warnings: Skipped parts of the files.
    """

    warnings: list[str]


def select_tags(data: RunData, pattern: str) -> list[ScalarTag]:
    """Return the tags that match a regular expression.

    Raises:
        BadParameter: The expression is invalid or too long.
    """
    compiled = compile_pattern(pattern)
    return [row for row in data.scalar_tags() if compiled.search(row.tag)]


def compute(data: RunData, params: ScalarsParams) -> ScalarsAnswer:
    """Return every point that is not superseded, sorted by tag, line and step."""
    rows = select_tags(data, params.tag)
    if not rows:
        raise MissingData(
            msg("views.no_scalars", "there are no scalars of such a tag"),
            msg("views.log_scalars", "log some with the writer of TensorBoard or VisualDL"),
        )
    if sum(row.points for row in rows) > MAX_POINTS:
        raise BadParameter(
            msg("views.too_many_points", f"there are more than {MAX_POINTS:,} points"),
            msg("views.select_fewer_tags", "select fewer tags: --param tag=loss"),
        )
    parts = [
        next(part for part in data.points(row.line, row.tag) if row.writer in ("", part.file)).points for row in rows
    ]
    tag_rows = np.repeat(np.arange(len(rows)), [len(part.step) for part in parts])
    wall_ns = np.concatenate([part.wall_ns for part in parts])
    return ScalarsAnswer(
        columns=ScalarsColumns(
            tag=LazyTextColumn(tag_rows, lambda i: rows[i].tag),
            run=LazyTextColumn(tag_rows, lambda i: line_name(rows[i].line, rows[i].writer)),
            step=np.concatenate([part.step for part in parts]),
            wall_time_s=unix_seconds(wall_ns),
            value=np.concatenate([part.value.astype(np.float64) for part in parts]),
        ),
        warnings=data.warnings(),
    )


VIEW = View("scalars", 5, needs_run_data, ScalarsParams, compute, subject="data")
