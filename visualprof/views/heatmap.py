"""Heat map: one metric of all ranks and steps of a run, ordered, grouped and reduced to the size of the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from visualprof.reader.trace import Floats, Ints
from visualprof.views import Params, RunView
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns
from visualprof.views.measure.columns.bins import bin_edges, merge_bins
from visualprof.views.measure.columns.row_order import similarity_order
from visualprof.views.measure.ranks.processes import (
    NO_COMMUNICATION_HINT,
    has_several_ranks,
    summary_takes_part,
    takes_part,
)
from visualprof.views.measure.ranks.rank_metrics import RankMetrics
from visualprof.views.measure.ranks.rank_summary import rank_summary
from visualprof.views.measure.ranks.run_analysis import RunAnalysis, analyze_run

Figure = Literal["total", "own", "computation", "communication", "exposed", "overlap", "other", "wait", "transfer"]
Group = Literal["none", "host", "rack", "data", "tensor", "pipeline", "expert"]
ONE_BIN = np.array([0, 1])  # boundaries of a single bin
FIGURES: tuple[Figure, ...] = get_args(Figure)
GROUPS: tuple[Group, ...] = get_args(Group)
MAX_SIDE = 512  # rows and columns of an answer
TAIL_RATIO = 0.01  # share of the cells beyond each end of the color scale
Place = Annotated[int, Meta(ge=0, le=2**31)]
Size = Annotated[int, Meta(ge=1, le=MAX_SIDE)]


@dataclass(frozen=True)
class HeatmapParams(Params):
    """Metric, order, visible part and size of the map.

    Attributes:
        figure: Metric of the cells.
        by: Order of the ranks in their groups. With `value`, the largest mean comes first, and groups are ordered by
            their means.
        grouped: Grouping of the ranks; `pipeline` groups by stage.
        excess: Subtract the median of the step over the ranks.
        merge: How merged cells combine: the largest value or the mean.
        row: First row of the part.
        rows: Number of rows; 0 for all that follow.
        column: First column of the part.
        columns: Number of columns; 0 for all that follow.
        height: Maximum number of rows in the answer; more are merged.
        width: Maximum number of columns in the answer; more are merged.
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
    """Rows of cells.

    Attributes:
        place: Index among all rows.
        ranks: Number of merged ranks.
        rank: The first of these ranks.
        mean_ns: Mean over all steps of these ranks.
    """

    place: kinds.CountColumn
    ranks: kinds.CountColumn
    rank: kinds.IdentifierColumn
    worker: kinds.WordColumn
    host: kinds.WordColumn
    group: kinds.WordColumn
    mean_ns: kinds.DurationColumn


class HeatmapStepColumns(Columns):
    """Columns of cells.

    Attributes:
        place: Index among all columns.
        steps: Number of merged steps.
        step: The first of these steps.
        last: The last of these steps.
        median_ns: Median over the ranks, the largest of these steps.
    """

    place: kinds.CountColumn
    steps: kinds.CountColumn
    step: kinds.WordColumn
    last: kinds.WordColumn
    median_ns: kinds.DurationColumn


class HeatmapGroupColumns(Columns):
    """Visible groups.

    Attributes:
        place: Index of its first row among all rows.
        ranks: Number of ranks.
        mean_ns: Mean of its ranks.
    """

    group: kinds.WordColumn
    place: kinds.CountColumn
    ranks: kinds.CountColumn
    mean_ns: kinds.DurationColumn


class HeatmapAnswer(Answer):
    """A part of the map.

    Attributes:
        ranks: Number of all ranks.
        steps: Number of all steps.
        figures: Metrics that the run has.
        groupings: Groupings that the run has.
        cells_ns: Cells row by row; null if a rank lacks the step.
        least_ns: Smallest of all cells.
        most_ns: Largest of all cells.
        low_ns: 1st percentile of all cells.
        high_ns: 99th percentile of all cells.
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


def compute(run: RunAnalysis, params: HeatmapParams) -> HeatmapAnswer:
    """Return a part of the map, at most 512 x 512 cells.

    Source: docs/views/heatmap.md
    """
    return heat_map(run.metrics, params)


def heat_map(run: RankMetrics, params: HeatmapParams) -> HeatmapAnswer:
    """Return a part of the map of some metrics."""
    steps = [i for i, name in enumerate(run.steps) if params.step in ("", name)]
    values = run.metric(params.figure)[:, steps]
    medians = _reduce_known(np.nanmedian, values, axis=0)
    shown = values - medians if params.excess else values
    means = _reduce_known(np.nanmean, shown, axis=1)
    labels = run.labels.get(params.grouped, ("",) * len(run.ranks))
    order = _order(values - medians, means, labels, params.by)
    rows, columns = (
        start + bin_edges(count, most)
        for start, count, most in (
            (*_part(params.row, params.rows, len(order)), params.height),
            (*_part(params.column, params.columns, len(steps)), params.width),
        )
    )
    part = shown[order[rows[0] : rows[-1]], columns[0] : columns[-1]]
    cells = merge_bins(part, rows - rows[0], columns - columns[0], params.merge == "mean")
    least, low_ns, high_ns, most = _scale(shown)
    return HeatmapAnswer(
        ranks=len(run.ranks),
        steps=len(steps),
        steps_left_out=run.dropped_step_count,
        figures=[name for name in FIGURES if not np.isnan(run.metric(name)).all()],
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


def _reduce_known(reduce: Callable[..., Floats], values: Floats, axis: int) -> Floats:
    """Return medians or means of the known values; NaN without any."""
    out = np.full(int(values.shape[1 - axis]), np.nan)
    some = ~np.isnan(values).all(axis=axis)
    if some.any():
        out[some] = reduce(values[:, some] if axis == 0 else values[some], axis=axis)
    return out


def _order(deviations: Floats, means: Floats, labels: Sequence[str], by: str) -> Ints:
    """Return the rows of the ranks in display order, with the ranks of a group together.

    Args:
        deviations: Differences from the medians of the steps.
    """
    mean = np.nan_to_num(means, nan=-np.inf)
    ranks: Ints = np.arange(len(mean))
    if by == "value":
        ranks = np.argsort(-mean, kind="stable")
    elif by == "similarity":
        ranks = similarity_order(deviations)
    first: dict[str, int] = {}
    at: list[int] = ranks.tolist()
    group_of_rank = np.array([first.setdefault(labels[i], len(first)) for i in at], np.int64)
    if by == "value" and len(first) > 1:
        size = np.bincount(group_of_rank)
        group_mean = np.bincount(group_of_rank, np.nan_to_num(means)[ranks]) / np.maximum(size, 1)
        group_of_rank = np.argsort(np.argsort(-group_mean, kind="stable"), kind="stable")[group_of_rank]
    return ranks[np.argsort(group_of_rank, kind="stable")]


def _scale(values: Floats) -> list[int] | list[None]:
    """Return the minimum, the 1st and the 99th percentile, and the maximum; None without values."""
    known_values = values[~np.isnan(values)]
    if not len(known_values):
        return [None] * 4
    return [round(float(value)) for value in np.quantile(known_values, (0.0, TAIL_RATIO, 1 - TAIL_RATIO, 1.0))]


def _whole(values: Floats) -> Floats | Ints:
    """Round to integers, which are shorter as text, if all values are known."""
    whole = np.rint(values)
    return whole if np.isnan(whole).any() else whole.astype(np.int64)


def _part(first: int, count: int, total: int) -> tuple[int, int]:
    """Return the start and the number of the requested rows or columns, limited to the available ones."""
    start = min(first, max(total - 1, 0))
    return start, min(count or total, total - start)


def _rows(run: RankMetrics, order: Ints, rows: Ints, labels: Sequence[str], means: Floats) -> HeatmapRowColumns:
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


def _columns(run: RankMetrics, steps: list[int], columns: Ints, medians: Floats) -> HeatmapStepColumns:
    first: list[int] = columns[:-1].tolist()
    last: list[int] = (columns[1:] - 1).tolist()
    part = medians[None, columns[0] : columns[-1]]
    return HeatmapStepColumns(
        place=columns[:-1],
        steps=np.diff(columns),
        step=[run.steps[steps[i]] for i in first],
        last=[run.steps[steps[i]] for i in last],
        median_ns=np.rint(merge_bins(part, ONE_BIN, columns - columns[0])[0]),
    )


def _groups(order: Ints, rows: Ints, labels: Sequence[str], means: Floats) -> HeatmapGroupColumns:
    """Return the visible groups of the ranks in display order."""
    at: list[int] = order.tolist()
    named = [labels[i] for i in at]
    first = [i for i, name in enumerate(named) if i == 0 or named[i - 1] != name]
    until = dict(pairwise([*first, len(named)]))
    seen = [i for i in first if named[i] and until[i] > rows[0] and i < rows[-1]][:MAX_SIDE]
    return HeatmapGroupColumns(
        group=[named[i] for i in seen],
        place=seen,
        ranks=[until[i] - i for i in seen],
        mean_ns=[_mean_of(means[order], np.array([i, until[i]]))[0] for i in seen],
    )


def _mean_of(means: Floats, rows: Ints) -> Floats:
    """Return the mean of each bin of rows."""
    part = means[rows[0] : rows[-1], None]
    return np.rint(merge_bins(part, rows - rows[0], ONE_BIN, mean=True)[:, 0])


VIEW = RunView(
    "heatmap",
    59,
    takes_part,
    HeatmapParams,
    compute,
    map=rank_summary,
    has_data=summary_takes_part,
    has_run_data=has_several_ranks,
    reduce=analyze_run,
    empty_hint=NO_COMMUNICATION_HINT,
)
