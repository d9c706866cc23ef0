"""A table of columns: what every view answers, sorted, filtered and paged on the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import NO_ADDRESS, Ints, Mask, Rows, Values
from visualprof.views.answers.kinds import Column, Kind, kinds_of


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
        texts, of = self.distinct()
        return map(texts.__getitem__, of.tolist())

    def distinct(self) -> tuple[list[str | None], Ints]:
        """The text of each distinct value, in order of the values, and the place of each row's among them, (n,)."""
        low, high = (int(self.values.min()), int(self.values.max())) if len(self) else (0, 0)
        if high - low > len(self):
            values, of = np.unique(self.values, return_inverse=True)
            return [self.text(value) for value in values.tolist()], of
        at = (self.values - self.values.dtype.type(low)).astype(np.int64)  # in their own type: addresses take all bits
        there = np.zeros(high - low + 1, bool)
        there[at] = True
        places: list[int] = np.flatnonzero(there).tolist()
        return [self.text(low + place) for place in places], (np.cumsum(there) - 1)[at]

    def at(self, rows: Rows) -> Coded:
        """The column at the given rows."""
        return self.take(self.values[rows])

    def take(self, values: Rows) -> Coded:
        """A column of other values that read the same way."""
        return Coded(values, self.text, self.ordered)

    def where(self, holds: Callable[[str | None], bool]) -> Mask:
        """For each row: does its text meet a condition? Each distinct value is asked once."""
        texts, of = self.distinct()
        return np.array([holds(text) for text in texts], bool)[of]

    def keys(self) -> Values:
        """(n,) numbers by which the rows are sorted, NaN for unknown ones."""
        if self.ordered:
            return self.values
        texts, of = self.distinct()
        place = {t: i for i, t in enumerate(sorted({t.casefold() for t in texts if t is not None}))}
        return np.array([np.nan if t is None else place[t.casefold()] for t in texts])[of]


class Addresses(Coded):
    """A column of addresses, (n,) of 64 bits without a sign; `NO_ADDRESS` is unknown."""

    def __init__(self, values: Rows) -> None:
        super().__init__(values, lambda value: None if value == NO_ADDRESS else hex(value), ordered=True)

    def take(self, values: Rows) -> Addresses:
        """A column of other addresses."""
        return Addresses(values)


class Columns(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Columns of equal length, a field each, in the order in which they are shown; one that is None is absent."""


C = TypeVar("C")
TableT = TypeVar("TableT", bound="Table[Any]")
ColumnsT = TypeVar("ColumnsT", bound=Columns)


def from_rows(kind: type[ColumnsT], rows: Sequence[Sequence[Any]]) -> ColumnsT:
    """Columns of rows that have a value for each field, in its place."""
    return kind(**{name: [row[i] for row in rows] for i, name in enumerate(kind.__struct_fields__)})


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a view answers. kinds: what is under each key of it, tables aside, which tell theirs."""

    kinds: dict[str, Kind] = {}

    def __post_init__(self) -> None:
        """Read the kinds off the declaration."""
        self.kinds = {**kinds_of(type(self)), **self.kinds}

    def tables(self) -> dict[str, Table[Any]]:
        """Every table by its name, FIELD or FIELD.FIELD; the answer itself is "", and columns alone are one too."""
        return dict(_tables(self))


class Table(Answer, Generic[C], kw_only=True, omit_defaults=True):
    """Columns with the number of their rows; the key of a column ends in its unit.

    columns: declared, or, where only the file knows their names, by name, and then `kinds` come with them.
    matching_rows, offset: set by `page`.
    """

    columns: C
    total_rows: int = -1
    matching_rows: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        """Count the rows and reads the kinds off the declaration."""
        self.kinds = {**kinds_of(type(self)), **kinds_of(type(self.columns)), **self.kinds}
        if self.total_rows < 0:
            self.total_rows = len(self)

    def __len__(self) -> int:
        return len(next(iter(self.named().values()), ()))

    def named(self) -> dict[str, Column]:
        """The columns by name, in order."""
        return columns_of(cast("Columns | dict[str, Column]", self.columns))

    def to_csv(self, separator: str = ",") -> str:
        """Text by commas, or another separator, with a header line; what a spreadsheet would run is quoted with '."""
        import csv
        import io

        out = io.StringIO()
        rows = csv.writer(out, delimiter=separator, lineterminator="\n")
        columns = self.named()
        rows.writerow(columns)
        rows.writerows(zip(*(map(_cell, plain(column)) for column in columns.values()), strict=True))
        return out.getvalue()


def columns_of(columns: Columns | dict[str, Column]) -> dict[str, Column]:
    """The columns that are there by name, in order."""
    if isinstance(columns, dict):
        return columns
    return {name: column for name in columns.__struct_fields__ if (column := getattr(columns, name)) is not None}


def _tables(answer: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, Table[Any]]]:
    names, whole = answer.__struct_fields__, isinstance(answer, Table)
    if whole:
        yield prefix.rstrip("."), cast("Any", answer)
    for name in names:
        value: object = getattr(answer, name)
        if isinstance(value, Columns):
            if not whole:
                yield f"{prefix}{name}", Table(columns=value)
        elif isinstance(value, msgspec.Struct):
            yield from _tables(value, f"{prefix}{name}.")


def named_table(answer: Answer, name: str) -> Table[Any]:
    """One of the tables of an answer; the main one is "".

    Raises: BadParameter: there is none of that name.
    """
    tables = answer.tables()
    if name in tables:
        return tables[name]
    what = (
        msg("views.there_no_table_view", f"there is no table {name!r} in this view")
        if name
        else msg("views.view_several_tables", "this view has several tables")
    )
    raise BadParameter(what, msg("views.tables", f"tables: {', '.join(filter(None, tables))}"))


class Selection(msgspec.Struct, frozen=True):
    """Which rows of a table, in which order.

    sort: column; "" keeps the view's order. search: part of a column's text, any case. equal: exact text.
    least, most: bounds of a numeric column; unknown values meet none.
    """

    sort: str = ""
    descending: bool = True
    search: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    equal: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    least: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    most: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    offset: int = 0
    limit: int | None = None


def at(column: Column, rows: Rows) -> Column:
    """A column at the given rows, in that order."""
    if isinstance(column, np.ndarray):
        return cast("Values", column)[rows]
    return column.at(rows) if isinstance(column, Coded) else [column[i] for i in rows]


def plain(column: Column) -> list[Any]:
    """A column as Python values, NaN and infinity as None."""
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]


def page(table: TableT, query: Selection) -> TableT:
    """The rows of a table that a query asks for.

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
    columns = {name: at(column, shown) for name, column in table.named().items()}
    return replace(
        table,
        columns=columns if isinstance(table.columns, dict) else type(table.columns)(**columns),
        total_rows=len(table),
        matching_rows=len(rows),
        offset=query.offset,
    )


def _column(table: Table[Any], name: str) -> Column:
    columns = table.named()
    if name not in columns:
        raise BadParameter(
            msg("views.there_no_column", f"there is no column {name!r}"),
            msg("views.columns", f"columns: {', '.join(columns)}"),
        )
    return columns[name]


def _matching(table: Table[Any], name: str, rows: Rows, holds: Callable[[Any], bool]) -> Mask:
    column = _column(table, name)
    if isinstance(column, Coded):
        return column.at(rows).where(holds)
    return np.array([holds(column[i]) for i in rows], bool)


def _numbers(table: Table[Any], name: str, rows: Rows) -> NDArray[np.float64]:
    column = _column(table, name)
    try:
        values = at(column, rows)
        return np.asarray(list(values) if isinstance(values, Coded) else cast("Values", values), np.float64)
    except ValueError as error:
        raise BadParameter(
            msg("views.column_no_number", f"the column {name!r} is no number"),
            msg("views.min_max_take_columns", "min. and max. take columns of numbers"),
        ) from error


def _order(column: Column, rows: Rows, descending: bool) -> Rows:
    """Stable order of the rows by a column; unknown values last in both directions."""
    keys = column.at(rows).keys() if isinstance(column, Coded) else at(column, rows)
    if isinstance(keys, np.ndarray):
        numbers = cast("Values", keys)
        if numbers.dtype.kind in "biuf":
            return _order_of_numbers(numbers, descending)
    values = plain(cast("Column", keys))
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


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
