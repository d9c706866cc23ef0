"""Columns that most tables share: calls, and total, mean, largest and smallest duration by name."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Rows, Trace
from visualprof.views.answers.kinds import Column, CountColumn, DurationColumn, NameColumn
from visualprof.views.answers.table import Columns, take_rows
from visualprof.views.measure.columns.groups import Groups, group


class CallColumns(Columns):
    """Calls by name."""

    name: NameColumn
    calls: CountColumn
    total_ns: DurationColumn
    mean_ns: DurationColumn
    max_ns: DurationColumn
    min_ns: DurationColumn


def duration_columns(trace: Trace, rows: Rows, groups: Groups) -> dict[str, Column]:
    """Return the columns `calls, total_ns, mean_ns, max_ns, min_ns` of groups of events."""
    dur = np.maximum(trace.events.dur[rows], 0)
    total = groups.sum(dur)
    return {
        "calls": groups.count,
        "total_ns": total,
        "mean_ns": total / np.maximum(groups.count, 1),
        "max_ns": groups.max(dur),
        "min_ns": groups.min(dur),
    }


def share_columns(values: Column, whole: float) -> dict[str, Column]:
    """Return the columns `share_ratio` and `cumulative_ratio` of values, which may be in any order.

    The cumulative share of a row is the share of the row and of all rows with larger values. Both are unknown if
    `whole` is 0.
    """
    sizes = np.asarray(values, np.float64)
    order = np.argsort(-sizes, kind="stable")
    cumulative = np.empty(len(sizes))
    cumulative[order] = np.cumsum(sizes[order])
    divisor = whole if whole > 0 else np.nan
    return {"share_ratio": sizes / divisor, "cumulative_ratio": cumulative / divisor}


def call_columns(trace: Trace, rows: Rows) -> CallColumns:
    """Return events by name, the largest total first."""
    groups = group(trace.events.name[rows])
    columns = {
        "name": name_texts(trace, trace.events.name[rows][groups.first]),
        **duration_columns(trace, rows, groups),
    }
    return CallColumns(**sort_columns(columns, "total_ns"))


def name_texts(trace: Trace, ids: Rows) -> list[str]:
    """Return the texts of string ids."""
    return [trace.strings[int(i)] for i in ids]


def sort_columns(columns: dict[str, Column], by: str) -> dict[str, Column]:
    """Return the columns sorted by one of them, the largest value first."""
    order = np.argsort(-np.asarray(columns[by]), kind="stable")
    return {name: take_rows(column, order) for name, column in columns.items()}
