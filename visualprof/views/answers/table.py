"""Tables of columns, the answers of all views. They are sorted, filtered and paged on the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast, get_args, get_origin

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import NO_ADDRESS, Ints, Mask, Rows, Values
from visualprof.views.answers.kinds import Column, Kind, kinds_of


class LazyTextColumn(Sequence[Any]):
    """Column of texts that are stored as integers and made on access, so a million rows need no million strings.

    Args:
        values: (n,) integers.
        text: Return the text of a value; None for unknown.
        ordered: Sort rows by the integers, not by the texts.
    """

    def __init__(self, values: Rows, text: Callable[[int], str | None], ordered: bool = False) -> None:
        self.values = values
        self.text = text
        self.ordered = ordered

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the distinct texts instead of the function."""
        texts, index = self.distinct()
        return LazyTextColumn, (index, texts.__getitem__, self.ordered)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.with_values(self.values[index]) if isinstance(index, slice) else self.text(int(self.values[index]))

    def __iter__(self) -> Iterator[Any]:
        texts, index = self.distinct()
        return map(texts.__getitem__, index.tolist())

    def distinct(self) -> tuple[list[str | None], Ints]:
        """Return the texts of the distinct values, ascending by value, and each row's index into them, (n,)."""
        low, high = (int(self.values.min()), int(self.values.max())) if len(self) else (0, 0)
        if high - low > len(self):
            values, index = np.unique(self.values, return_inverse=True)
            return [self.text(value) for value in values.tolist()], index
        # Subtract in the type of the values: addresses need all 64 bits.
        offsets = (self.values - self.values.dtype.type(low)).astype(np.int64)
        present = np.zeros(high - low + 1, bool)
        present[offsets] = True
        distinct: list[int] = np.flatnonzero(present).tolist()
        return [self.text(low + offset) for offset in distinct], (np.cumsum(present) - 1)[offsets]

    def take_rows(self, rows: Rows) -> LazyTextColumn:
        """Return the column at the given rows."""
        return self.with_values(self.values[rows])

    def with_values(self, values: Rows) -> LazyTextColumn:
        """Return a column of other values with the same texts."""
        return LazyTextColumn(values, self.text, self.ordered)

    def matches(self, holds: Callable[[str | None], bool]) -> Mask:
        """Return for each row whether its text meets a condition, which is evaluated once per distinct value."""
        texts, index = self.distinct()
        return np.array([holds(text) for text in texts], bool)[index]

    def sort_keys(self) -> Values:
        """Return the sort keys of the rows, (n,). Unknown texts have NaN."""
        if self.ordered:
            return self.values
        texts, index = self.distinct()
        rank = {t: i for i, t in enumerate(sorted({t.casefold() for t in texts if t is not None}))}
        return np.array([np.nan if t is None else rank[t.casefold()] for t in texts])[index]


class AddressColumn(LazyTextColumn):
    """Column of addresses, (n,) unsigned 64-bit integers; `NO_ADDRESS` is unknown."""

    def __init__(self, values: Rows) -> None:
        super().__init__(values, lambda value: None if value == NO_ADDRESS else hex(value), ordered=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the addresses."""
        return AddressColumn, (self.values,)

    def with_values(self, values: Rows) -> AddressColumn:
        """Return a column of other addresses."""
        return AddressColumn(values)


class Columns(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Columns of equal length, one per field, in display order. A field that is None is absent."""


C = TypeVar("C")
TableT = TypeVar("TableT", bound="Table[Any]")
ColumnsT = TypeVar("ColumnsT", bound=Columns)


def none_if_nan(value: float) -> float | None:
    """Return a number, or `None` for NaN."""
    return None if np.isnan(value) else float(value)


def from_rows(kind: type[ColumnsT], rows: Sequence[Sequence[Any]]) -> ColumnsT:
    """Build columns from rows that have one value per field, in the order of the fields."""
    return kind(**{name: [row[i] for row in rows] for i, name in enumerate(kind.__struct_fields__)})


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Answer of a view.

    Attributes:
        kinds: Kind of the value under each key. Tables have kinds of their own.
        short_names: Short names of kernels by full name, unique in the answer; absent for names that stay as they are.
    """

    kinds: dict[str, Kind] = {}
    short_names: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Derive the kinds from the declaration."""
        self.kinds = {**kinds_of(type(self)), **self.kinds}

    def tables(self) -> dict[str, Table[Any]]:
        """Return the tables by name: FIELD or FIELD.FIELD, "" for the answer itself. `Columns` fields are tables."""
        return dict(_tables(self))


class Table(Answer, Generic[C], kw_only=True, omit_defaults=True):
    """Columns with their row count. The key of a column ends in its unit.

    Attributes:
        columns: A struct of columns; a dictionary, with `kinds`, if the names come from the file.
        total_rows: Rows before selection; -1 to count them.
        matching_rows: Rows that match the filters; set by `select_rows`.
        offset: Index of the first row among the matching rows; set by `select_rows`.
    """

    columns: C
    total_rows: int = -1
    matching_rows: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        """Count the rows and derive the kinds from the declaration."""
        self.kinds = {**kinds_of(type(self)), **kinds_of(type(self.columns)), **self.kinds}
        if self.total_rows < 0:
            self.total_rows = len(self)

    def __len__(self) -> int:
        return len(next(iter(self.columns_by_name().values()), ()))

    def columns_by_name(self) -> dict[str, Column]:
        """Return the columns by name, in display order."""
        return columns_of(cast("Columns | dict[str, Column]", self.columns))

    def to_csv(self, separator: str = ",") -> str:
        """Return the table as CSV with a header line. Cells that a spreadsheet would execute get a leading '."""
        import csv
        import io

        out = io.StringIO()
        rows = csv.writer(out, delimiter=separator, lineterminator="\n")
        columns = self.columns_by_name()
        rows.writerow(columns)
        rows.writerows(zip(*(map(_cell, to_python(column)) for column in columns.values()), strict=True))
        return out.getvalue()


def columns_of(columns: Columns | dict[str, Column]) -> dict[str, Column]:
    """Return the columns that are present by name, in display order."""
    if isinstance(columns, dict):
        return columns
    return {name: column for name in columns.__struct_fields__ if (column := getattr(columns, name)) is not None}


def _tables(answer: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, Table[Any]]]:
    names, is_table = answer.__struct_fields__, isinstance(answer, Table)
    if is_table:
        yield prefix.rstrip("."), cast("Any", answer)
    for name in names:
        value: object = getattr(answer, name)
        if isinstance(value, Columns):
            if not is_table:
                yield f"{prefix}{name}", Table(columns=value)
        elif isinstance(value, msgspec.Struct):
            yield from _tables(value, f"{prefix}{name}.")


def _list_tables(answer: Answer) -> Iterator[tuple[str, Table[Any]]]:
    """Yield the lists of structs of an answer as tables, by field."""
    for field in msgspec.structs.fields(answer):
        row_type = next(iter(get_args(field.type)), None)
        if get_origin(field.type) is list and isinstance(row_type, type) and issubclass(row_type, msgspec.Struct):
            rows = getattr(answer, field.name)
            columns = {key: [getattr(row, key) for row in rows] for key in row_type.__struct_fields__}
            yield field.name, Table(columns=columns, kinds=kinds_of(row_type))


def named_table(answer: Answer, name: str) -> Table[Any]:
    """Return a table of an answer by name; "" is the main table.

    Raises:
        BadParameter: There is no table with this name.
    """
    tables = {**answer.tables(), **dict(_list_tables(answer))}
    if name in tables:
        table = tables[name]
        return replace(table, short_names=answer.short_names) if name and answer.short_names else table
    error = (
        msg("views.there_no_table_view", f"there is no table {name!r} in this view")
        if name
        else msg("views.view_several_tables", "this view has several tables")
    )
    raise BadParameter(error, msg("views.tables", f"tables: {', '.join(filter(None, tables))}"))


class Selection(msgspec.Struct, frozen=True):
    """Filter, sort order and page of a table.

    Attributes:
        sort: Columns to sort by, the most significant one first, and whether each is descending. Empty keeps the order
            of the view.
        search: By column, a part of its text or of the short name of a kernel; case is ignored.
        equal: By column, its exact text or the short name of a kernel.
        empty: Columns whose value is unknown or an empty text.
        least: By column, the lower bound. Unknown values never match.
        most: By column, the upper bound. Unknown values never match.
        offset: Number of matching rows to skip.
        limit: Maximum number of rows; None for all.
    """

    sort: tuple[tuple[str, bool], ...] = ()
    search: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    equal: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    empty: Sequence[str] = ()
    least: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    most: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    offset: int = 0
    limit: int | None = None


def take_rows(column: Column, rows: Rows) -> Column:
    """Return a column at the given rows, in their order."""
    if isinstance(column, np.ndarray):
        return cast("Values", column)[rows]
    return column.take_rows(rows) if isinstance(column, LazyTextColumn) else [column[i] for i in rows]


def to_python(column: Column) -> list[Any]:
    """Return a column as Python values. NaN and infinity become None."""
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]


def select_rows(table: TableT, query: Selection) -> TableT:
    """Return the selected rows of a table, filtered, sorted and paged.

    Raises:
        BadParameter: A column is unknown, or has bounds and no numbers.
    """
    rows = np.arange(len(table))
    for name, part in query.search.items():
        needle = part.casefold()
        rows = rows[_matching(table, name, rows, lambda text, n=needle: n in text.casefold())]
    for name, value in query.equal.items():
        rows = rows[_matching(table, name, rows, lambda text, v=value: text == v)]
    for name in query.empty:
        column = to_python(take_rows(_column(table, name), rows))
        rows = rows[np.array([value in (None, "") for value in column], bool)]
    for name, bound in query.least.items():
        rows = rows[_numbers(table, name, rows) >= bound]
    for name, bound in query.most.items():
        rows = rows[_numbers(table, name, rows) <= bound]
    # Each order is stable, so the least significant column comes first.
    for name, descending in reversed(query.sort):
        rows = rows[_order(_column(table, name), rows, descending)]
    shown = rows[query.offset : None if query.limit is None else query.offset + query.limit]
    columns = {name: take_rows(column, shown) for name, column in table.columns_by_name().items()}
    return replace(
        table,
        columns=columns if isinstance(table.columns, dict) else type(table.columns)(**columns),
        short_names=_shown_names(table, columns),
        total_rows=len(table),
        matching_rows=len(rows),
        offset=query.offset,
    )


def _shown_names(table: Table[Any], shown: Mapping[str, Column]) -> dict[str, str]:
    """Return the short names of the shown rows."""
    if not table.short_names or len(shown) == 0:
        return table.short_names
    names = [name for name in shown if table.kinds.get(name) == "name"]
    shown_values = {value for name in names for value in shown[name]}
    other_values = {value for name in names for value in table.columns_by_name()[name]} - shown_values
    return {name: short for name, short in table.short_names.items() if name not in other_values}


def _column(table: Table[Any], name: str) -> Column:
    columns = table.columns_by_name()
    if name not in columns:
        raise BadParameter(
            msg("views.there_no_column", f"there is no column {name!r}"),
            msg("views.columns", f"columns: {', '.join(columns)}"),
        )
    return columns[name]


def _matching(table: Table[Any], name: str, rows: Rows, holds: Callable[[str], bool]) -> Mask:
    """Return whether the text of each row, or its short name, meets a condition."""
    column, short = _column(table, name), table.short_names
    if isinstance(column, LazyTextColumn):
        return column.take_rows(rows).matches(lambda value: holds(str(value)))
    texts = [str(column[i]) for i in rows]
    return np.array([holds(text) or (text in short and holds(short[text])) for text in texts], bool)


def _numbers(table: Table[Any], name: str, rows: Rows) -> NDArray[np.float64]:
    column = _column(table, name)
    try:
        values = take_rows(column, rows)
        return np.asarray(list(values) if isinstance(values, LazyTextColumn) else cast("Values", values), np.float64)
    except ValueError as error:
        raise BadParameter(
            msg("views.column_no_number", f"the column {name!r} is no number"),
            msg("views.min_max_take_columns", "min. and max. take columns of numbers"),
        ) from error


def _order(column: Column, rows: Rows, descending: bool) -> Rows:
    """Return the rows in stable order of a column. Unknown values come last in both directions."""
    keys = column.take_rows(rows).sort_keys() if isinstance(column, LazyTextColumn) else take_rows(column, rows)
    if isinstance(keys, np.ndarray):
        numbers = cast("Values", keys)
        if numbers.dtype.kind in "biuf":
            return _order_of_numbers(numbers, descending)
    values = to_python(cast("Column", keys))
    known_rows = [i for i, v in enumerate(values) if v is not None]
    unknown = [i for i, v in enumerate(values) if v is None]
    numeric = all(isinstance(values[i], (int, float)) for i in known_rows)
    ranks = values if numeric else [str(v).casefold() for v in values]
    known_rows.sort(key=ranks.__getitem__, reverse=descending)
    return np.array(known_rows + unknown, np.int64)


def _order_of_numbers(keys: Values, descending: bool) -> Rows:
    unknown = ~np.isfinite(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), bool)
    known_rows = np.flatnonzero(~unknown)
    if descending:  # equal rows keep their order, as in ascending order
        order = known_rows[::-1][np.argsort(keys[known_rows][::-1], kind="stable")][::-1]
    else:
        order = known_rows[np.argsort(keys[known_rows], kind="stable")]
    return np.concatenate((order, np.flatnonzero(unknown)))


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
