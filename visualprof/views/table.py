"""A table of columns: what every view answers, sorted, filtered and paged on the server."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from visualprof.errors import BadParameter
from visualprof.reader.trace import Mask, Rows, Values


class Coded(Sequence[Any]):
    """A column of text kept as numbers until it is shown: a million rows cost what their numbers cost.

    Args:
        values: (n,) integers.
        text: what a value reads as, None for unknown.
        ordered: rows are sorted by the numbers, not by the texts.
    """

    def __init__(self, values: Rows, text: Callable[[int], str | None], ordered: bool = False) -> None:
        self.values = values
        self.text = text
        self.ordered = ordered

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.take(self.values[index]) if isinstance(index, slice) else self.text(int(self.values[index]))

    def __iter__(self) -> Iterator[Any]:
        return map(self.text, self.values.tolist())

    def at(self, rows: Rows) -> Coded:
        """The column at the given rows."""
        return self.take(self.values[rows])

    def take(self, values: Rows) -> Coded:
        """A column of other values that read the same way."""
        return Coded(values, self.text, self.ordered)

    def where(self, holds: Callable[[str | None], bool]) -> Mask:
        """For each row: does its text meet a condition? Each distinct value is asked once."""
        distinct, of = np.unique(self.values, return_inverse=True)
        return np.array([holds(self.text(v)) for v in distinct.tolist()], bool)[of]

    def keys(self) -> Values:
        """(n,) numbers by which the rows are sorted, NaN for unknown ones."""
        distinct, of = np.unique(self.values, return_inverse=True)
        texts: list[str | None] = [None] * len(distinct) if self.ordered else [self.text(v) for v in distinct.tolist()]
        if self.ordered:
            return self.values
        place = {t: i for i, t in enumerate(sorted({t.casefold() for t in texts if t is not None}))}
        return np.array([np.nan if t is None else place[t.casefold()] for t in texts])[of]


Column = Values | Sequence[Any]


@dataclass(frozen=True)
class Table:
    """Columns of equal length; the key of a column ends in its unit.

    columns: numpy arrays, or lists (text, or values that may be None). NaN means unknown.
    matching_rows, offset: set by `page`.
    """

    columns: Mapping[str, Column]
    total_rows: int = -1
    matching_rows: int = -1
    offset: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def take(self, rows: Rows) -> dict[str, Column]:
        """The columns at the given rows, in that order."""
        return {k: at(v, rows) for k, v in self.columns.items()}

    def to_json(self) -> dict[str, Any]:
        """`{"columns": {name: [..]}, "total_rows": n}` with None for unknown numbers."""
        out: dict[str, object] = {
            "columns": {k: plain(v) for k, v in self.columns.items()},
            "total_rows": len(self) if self.total_rows < 0 else self.total_rows,
        }
        if self.matching_rows >= 0:
            out |= {"matching_rows": self.matching_rows, "offset": self.offset}
        return out

    def to_csv(self) -> str:
        """Comma-separated text with a header line; text that a spreadsheet would run is quoted with '."""
        out = io.StringIO()
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(self.columns)
        rows.writerows(zip(*(map(_cell, plain(v)) for v in self.columns.values()), strict=True))
        return out.getvalue()


@dataclass(frozen=True)
class Query:
    """Which rows of a table, in which order.

    sort: column; "" keeps the view's order. search: part of a column's text, any case. equal: exact text.
    least, most: bounds of a numeric column; unknown values meet none.
    """

    sort: str = ""
    descending: bool = True
    search: Mapping[str, str] = field(default_factory=dict[str, str])
    equal: Mapping[str, str] = field(default_factory=dict[str, str])
    least: Mapping[str, float] = field(default_factory=dict[str, float])
    most: Mapping[str, float] = field(default_factory=dict[str, float])
    offset: int = 0
    limit: int | None = None


@dataclass(frozen=True)
class Result:
    """The answer of a view: at most one main table, and named values or tables beside it."""

    table: Table | None = None
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def tables(self) -> dict[str, Table]:
        """Every table by its name; the main one is ""."""
        named = {k: v for k, v in self.fields.items() if isinstance(v, Table)}
        return named if self.table is None else {"": self.table, **named}

    def to_json(self) -> dict[str, Any]:
        """One object: the keys of the main table and the named values."""
        out = {} if self.table is None else self.table.to_json()
        return out | {k: _json(v) for k, v in self.fields.items()}


def at(column: Column, rows: Rows) -> Column:
    """A column at the given rows, in that order."""
    if isinstance(column, np.ndarray):
        return column[rows]
    return column.at(rows) if isinstance(column, Coded) else [column[i] for i in rows]


def plain(column: Column) -> list[Any]:
    """A column as Python values, NaN and infinity as None."""
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]


def page(table: Table, query: Query) -> Table:
    """The rows that a query asks for.

    Raises: BadParameter: an unknown column.
    """
    rows = np.arange(len(table))
    for name, part in query.search.items():
        needle = part.casefold()
        rows = rows[_matching(table, name, rows, lambda v, n=needle: n in str(v).casefold())]
    for name, value in query.equal.items():
        rows = rows[_matching(table, name, rows, lambda v, w=value: str(v) == w)]
    for name, bound in query.least.items():
        rows = rows[_numbers(table, name, rows) >= bound]
    for name, bound in query.most.items():
        rows = rows[_numbers(table, name, rows) <= bound]
    if query.sort:
        rows = rows[_order(_column(table, query.sort), rows, query.descending)]
    shown = rows[query.offset : None if query.limit is None else query.offset + query.limit]
    return Table(table.take(shown), len(table), len(rows), query.offset)


def _column(table: Table, name: str) -> Column:
    if name not in table.columns:
        raise BadParameter(f"there is no column {name!r}", f"columns: {', '.join(table.columns)}")
    return table.columns[name]


def _matching(table: Table, name: str, rows: Rows, holds: Callable[[Any], bool]) -> Mask:
    column = _column(table, name)
    if isinstance(column, Coded):
        return column.at(rows).where(holds)
    return np.array([holds(v) for v in _text(table, name, rows)], bool)


def _text(table: Table, name: str, rows: Rows) -> list[Any]:
    column = _column(table, name)
    return [column[i] for i in rows]


def _numbers(table: Table, name: str, rows: Rows) -> NDArray[np.float64]:
    column = _column(table, name)
    try:
        return np.asarray(at(column, rows) if isinstance(column, np.ndarray) else _text(table, name, rows), np.float64)
    except ValueError as error:
        raise BadParameter(f"the column {name!r} is no number", "min. and max. take columns of numbers") from error


def _order(column: Column, rows: Rows, descending: bool) -> Rows:
    """Stable order of the rows by a column; unknown values last in both directions."""
    keys = column.at(rows).keys() if isinstance(column, Coded) else at(column, rows)
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "biuf":
        return _order_of_numbers(keys, descending)
    values = plain(keys)
    known = [i for i, v in enumerate(values) if v is not None]
    unknown = [i for i, v in enumerate(values) if v is None]
    numeric = all(isinstance(values[i], (int, float)) for i in known)
    ranks = values if numeric else [str(v).casefold() for v in values]
    known.sort(key=ranks.__getitem__, reverse=descending)
    return np.array(known + unknown, np.int64)


def _order_of_numbers(keys: Values, descending: bool) -> Rows:
    unknown = ~np.isfinite(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), bool)
    known = np.flatnonzero(~unknown)
    if descending:  # equal ones keep their order, as they do ascending
        order = known[::-1][np.argsort(keys[known][::-1], kind="stable")][::-1]
    else:
        order = known[np.argsort(keys[known], kind="stable")]
    return np.concatenate((order, np.flatnonzero(unknown)))


def _json(value: Any) -> object:
    if isinstance(value, Table):
        return value.to_json()
    if isinstance(value, np.ndarray):
        return plain(cast("Values", value))
    if isinstance(value, np.generic):
        return _json(value.item())
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_json(v) for v in cast("Sequence[object]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
