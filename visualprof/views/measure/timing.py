"""The columns that most tables share: calls, total, mean, largest and smallest duration by name."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Rows, Trace
from visualprof.views.answers.kinds import Column, CountColumn, DurationColumn, NameColumn
from visualprof.views.answers.table import Columns, take_rows
from visualprof.views.measure.groups import Groups, group


class CallColumns(Columns):
    """Calls by name."""

    name: NameColumn
    calls: CountColumn
    total_ns: DurationColumn
    mean_ns: DurationColumn
    max_ns: DurationColumn
    min_ns: DurationColumn


def duration_columns(trace: Trace, rows: Rows, groups: Groups) -> dict[str, Column]:
    """`calls, total_ns, mean_ns, max_ns, min_ns` of the groups of event rows."""
    dur = np.maximum(trace.events.dur[rows], 0)
    total = groups.sum(dur)
    return {
        "calls": groups.count,
        "total_ns": total,
        "mean_ns": total / np.maximum(groups.count, 1),
        "max_ns": groups.max(dur),
        "min_ns": groups.min(dur),
    }


def call_columns(trace: Trace, rows: Rows) -> CallColumns:
    """Event rows by name, the largest total first."""
    groups = group(trace.events.name[rows])
    columns = {
        "name": name_texts(trace, trace.events.name[rows][groups.first]),
        **duration_columns(trace, rows, groups),
    }
    return CallColumns(**sort_columns(columns, "total_ns"))


def name_texts(trace: Trace, ids: Rows) -> list[str]:
    """Texts of string ids."""
    return [trace.strings[int(i)] for i in ids]


def sort_columns(columns: dict[str, Column], by: str) -> dict[str, Column]:
    """The columns sorted by one of them, the largest first."""
    order = np.argsort(-np.asarray(columns[by]), kind="stable")
    return {k: take_rows(v, order) for k, v in columns.items()}
