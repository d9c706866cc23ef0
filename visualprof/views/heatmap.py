"""Heat map: one figure of every rank and step of a run, ordered and grouped, as much of it as a screen shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from visualprof.reader.trace import Floats, Ints
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns
from visualprof.views.measure.bins import bins, merged
from visualprof.views.measure.processes import LACKS, part_takes_part, takes_part
from visualprof.views.measure.rank_metrics import RankFigures
from visualprof.views.measure.rank_summary import rank_part
from visualprof.views.measure.row_order import similar
from visualprof.views.measure.run_analysis import WholeRun, whole_run

Figure = Literal[
    "total", "own", "computation", "communication", "exposed", "overlap", "other", "wait", "transfer"
]  # fmt: skip
Group = Literal["none", "host", "rack", "data", "tensor", "pipeline", "expert"]
ONE = np.array([0, 1])  # the borders of one bin
FIGURES: tuple[Figure, ...] = get_args(Figure)
GROUPS: tuple[Group, ...] = get_args(Group)
MOST = 512  # rows and columns of an answer
FEW = 0.01  # of the cells at either end are beyond the scale
Place = Annotated[int, Meta(ge=0, le=2**31)]
Size = Annotated[int, Meta(ge=1, le=MOST)]


@dataclass(frozen=True)
class HeatmapParams(Params):
    """Which figure, in which order, and which part of the map on how large a screen.

    by: the order of the ranks within their groups; by `value` the largest mean is first, as are the groups by theirs.
    grouped: a pipeline's are its stages.
    excess: less the median of the step over the ranks. row, rows, column, columns: the part, 0 for all that follow.
    height, width: rows and columns that there is room for; more are merged. merge: to the largest value, or the mean.
    """

    figure: Figure = "own"
    by: Literal["rank", "value", "similarity"] = "rank"
    grouped: Group = "none"
    excess: bool = False
    merge: Literal["max", "mean"] = "max"
    row: Place = 0
    rows: Place = 0
    column: Place = 0
    columns: Place = 0
    height: Size = 256
    width: Size = 256


class HeatmapRowColumns(Columns):
    """A row of cells: the first of its ranks, and how many it merges. mean_ns: of all their steps."""

    place: kinds.CountColumn
    ranks: kinds.CountColumn
    rank: kinds.IdentifierColumn
    worker: kinds.WordColumn
    host: kinds.WordColumn
    group: kinds.WordColumn
    mean_ns: kinds.DurationColumn


class HeatmapStepColumns(Columns):
    """A column of cells: its first and last step, and how many it merges. median_ns: over the ranks, the largest."""

    place: kinds.CountColumn
    steps: kinds.CountColumn
    step: kinds.WordColumn
    last: kinds.WordColumn
    median_ns: kinds.DurationColumn


class HeatmapGroupColumns(Columns):
    """The groups in sight: where each begins among all rows, its ranks and their mean."""

    group: kinds.WordColumn
    place: kinds.CountColumn
    ranks: kinds.CountColumn
    mean_ns: kinds.DurationColumn


class HeatmapAnswer(Answer):
    """A part of the map.

    ranks, steps: of the whole. figures, groups: those that the run has. cells_ns: row by row, null where a rank has no
    such step. least_ns, most_ns: of all cells; low_ns, high_ns: 1 % of them are below, and above.
    """

    ranks: kinds.Count
    steps: kinds.Count
    steps_left_out: kinds.Count
    figures: list[str]
    groupings: list[str]
    ranks_shown: HeatmapRowColumns
    steps_shown: HeatmapStepColumns
    groups_shown: HeatmapGroupColumns
    cells_ns: kinds.DurationColumn
    least_ns: kinds.Duration | None
    most_ns: kinds.Duration | None
    low_ns: kinds.Duration | None
    high_ns: kinds.Duration | None


def compute(run: WholeRun, params: HeatmapParams) -> HeatmapAnswer:
    """A part of the map, of at most 512 x 512 cells.

    Source: docs/views.md#heatmap.
    """
    return heat_map(run.figures, params)


def heat_map(run: RankFigures, params: HeatmapParams) -> HeatmapAnswer:
    """The same from the figures."""
    steps = [i for i, name in enumerate(run.steps) if params.step in ("", name)]
    values = run.figure(params.figure)[:, steps]
    medians = _over(np.nanmedian, values, axis=0)
    shown = values - medians if params.excess else values
    means = _over(np.nanmean, shown, axis=1)
    labels = run.labels.get(params.grouped, ("",) * len(run.ranks))
    order = _order(values - medians, means, labels, params.by)
    rows, columns = (
        start + bins(count, most)
        for start, count, most in (
            (*_part(params.row, params.rows, len(order)), params.height),
            (*_part(params.column, params.columns, len(steps)), params.width),
        )
    )
    part = shown[order[rows[0] : rows[-1]], columns[0] : columns[-1]]
    cells = merged(part, rows - rows[0], columns - columns[0], params.merge == "mean")
    least, low_ns, high_ns, most = _scale(shown)
    return HeatmapAnswer(
        ranks=len(run.ranks),
        steps=len(steps),
        steps_left_out=run.steps_left_out,
        figures=[name for name in FIGURES if not np.isnan(run.figure(name)).all()],
        groupings=[name for name in GROUPS if name in run.labels],
        ranks_shown=_rows(run, order, rows, labels, means),
        steps_shown=_columns(run, steps, columns, medians),
        groups_shown=_groups(order, rows, labels, means),
        cells_ns=_whole(cells.ravel()),
        least_ns=least,
        low_ns=low_ns,
        high_ns=high_ns,
        most_ns=most,
    )


def _over(what: Callable[..., Floats], values: Floats, axis: int) -> Floats:
    """Medians or means of what is known; NaN where nothing is."""
    out = np.full(int(values.shape[1 - axis]), np.nan)
    some = ~np.isnan(values).all(axis=axis)
    if some.any():
        out[some] = what(values[:, some] if axis == 0 else values[some], axis=axis)
    return out


def _order(apart: Floats, means: Floats, labels: Sequence[str], by: str) -> Ints:
    """Rows of the ranks in the order in which they are shown, those of a group together. apart: from the medians."""
    mean = np.nan_to_num(means, nan=-np.inf)
    ranks: Ints = np.arange(len(mean))
    if by == "value":
        ranks = np.argsort(-mean, kind="stable")
    elif by == "similarity":
        ranks = similar(apart)
    first: dict[str, int] = {}
    at: list[int] = ranks.tolist()
    of = np.array([first.setdefault(labels[i], len(first)) for i in at], np.int64)
    if by == "value" and len(first) > 1:
        size = np.bincount(of)
        group_mean = np.bincount(of, np.nan_to_num(means)[ranks]) / np.maximum(size, 1)
        of = np.argsort(np.argsort(-group_mean, kind="stable"), kind="stable")[of]
    return ranks[np.argsort(of, kind="stable")]


def _scale(values: Floats) -> list[int] | list[None]:
    """The least value, those that 1 % are below and above, and the largest; None without any."""
    known = values[~np.isnan(values)]
    if not len(known):
        return [None] * 4
    return [round(float(value)) for value in np.quantile(known, (0.0, FEW, 1 - FEW, 1.0))]


def _whole(values: Floats) -> Floats | Ints:
    """Whole numbers, which are shorter as text, where all are known."""
    whole = np.rint(values)
    return whole if np.isnan(whole).any() else whole.astype(np.int64)


def _part(first: int, count: int, of: int) -> tuple[int, int]:
    """The first one and the number of those that are asked for, of so many."""
    start = min(first, max(of - 1, 0))
    return start, min(count or of, of - start)


def _rows(run: RankFigures, order: Ints, rows: Ints, labels: Sequence[str], means: Floats) -> HeatmapRowColumns:
    first: list[int] = order[rows[:-1]].tolist()
    hosts = run.labels.get("host", ("",) * len(run.ranks))
    return HeatmapRowColumns(
        place=rows[:-1],
        ranks=np.diff(rows),
        rank=[run.ranks[i] for i in first],
        worker=[run.workers[i] for i in first],
        host=[hosts[i] for i in first],
        group=[labels[i] for i in first],
        mean_ns=_mean_of(means[order], rows),
    )


def _columns(run: RankFigures, steps: list[int], columns: Ints, medians: Floats) -> HeatmapStepColumns:
    first: list[int] = columns[:-1].tolist()
    last: list[int] = (columns[1:] - 1).tolist()
    part = medians[None, columns[0] : columns[-1]]
    return HeatmapStepColumns(
        place=columns[:-1],
        steps=np.diff(columns),
        step=[run.steps[steps[i]] for i in first],
        last=[run.steps[steps[i]] for i in last],
        median_ns=np.rint(merged(part, ONE, columns - columns[0])[0]),
    )


def _groups(order: Ints, rows: Ints, labels: Sequence[str], means: Floats) -> HeatmapGroupColumns:
    """Of the ranks in the order in which they are shown: where another group begins, of those in sight."""
    at: list[int] = order.tolist()
    named = [labels[i] for i in at]
    first = [i for i, name in enumerate(named) if i == 0 or named[i - 1] != name]
    until = dict(pairwise([*first, len(named)]))
    seen = [i for i in first if named[i] and until[i] > rows[0] and i < rows[-1]][:MOST]
    return HeatmapGroupColumns(
        group=[named[i] for i in seen],
        place=seen,
        ranks=[until[i] - i for i in seen],
        mean_ns=[_mean_of(means[order], np.array([i, until[i]]))[0] for i in seen],
    )


def _mean_of(means: Floats, rows: Ints) -> Floats:
    """Of each bin of rows."""
    part = means[rows[0] : rows[-1], None]
    return np.rint(merged(part, rows - rows[0], ONE, mean=True)[:, 0])


VIEW = View(
    "heatmap",
    59,
    takes_part,
    HeatmapParams,
    compute,
    subject="run",
    map=rank_part,
    has_data=part_takes_part,
    reduce=whole_run,
    empty_hint=LACKS,
)
