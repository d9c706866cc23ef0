"""Find the events of file rows, to which arguments and links refer."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import ArgColumn
from visualprof.reader.trace.order import sort_unique
from visualprof.reader.trace.types import Ids, Ints, Rows, Values


def index_rows(row: Ints) -> Ids:
    """Return the event of each file row, from row -1 to one after the last; -1 for a row that became no event."""
    event_of_row = np.full(int(row.max()) + 3 if len(row) else 2, -1, np.int32)
    event_of_row[1:][row] = np.arange(len(row), dtype=np.int32)
    return event_of_row


def lookup(event_of_row: Ids, rows: Rows) -> Ids:
    """Return the events of file rows, -1 for rows that became no event."""
    return event_of_row.take(rows + 1, mode="clip")


def build_arg_columns(args: dict[str, list[tuple[Rows, Values, bool]]], event_of_row: Ids) -> dict[str, ArgColumn]:
    """Return the argument columns. Arguments with the same rows, which are common, share their event column."""
    columns: dict[str, ArgColumn] = {}
    orders: dict[int, tuple[Rows, Ids, Ints | None]] = {}  # by number of rows
    for name in list(args):
        parts = args.pop(name)
        rows, values, text = parts[0]
        if len(parts) > 1:
            rows, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        if len(rows) not in orders or not np.array_equal(rows, orders[len(rows)][0]):
            orders[len(rows)] = rows, *_sort_events(lookup(event_of_row, rows), len(event_of_row))
        _, events, order = orders[len(rows)]
        columns[name] = ArgColumn(events, values if order is None else values[order], text)
    return columns


def _sort_events(events: Ids, limit: int) -> tuple[Ids, Ints | None]:
    """Return events in ascending order and their positions, or `None` if they are sorted already, as in most files."""
    if not len(events) or (events[0] >= 0 and (events[1:] > events[:-1]).all()):
        return events, None
    return sort_unique(events, limit)
