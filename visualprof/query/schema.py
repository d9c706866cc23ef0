"""Declarations of the tables and columns that queries can use: kinds (units), types and definitions.

The reference in docs/query-schema.md, `visualprof query --schema` and the web UI are generated from these declarations,
which are in English and Chinese.
A test compares them with the tables that DuckDB describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from visualprof.query.chinese import CHINESE, CHINESE_LAST_COLUMNS, CHINESE_MACROS, CHINESE_UNITS
from visualprof.query.declarations import DECLARATIONS, MACROS
from visualprof.views.answers.kinds import KINDS, Kind

SqlType = Literal["BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN"]
_TYPES: dict[Kind, SqlType] = {
    "name": "VARCHAR",
    "text": "VARCHAR",
    "word": "VARCHAR",
    "dims": "VARCHAR",
    "id": "BIGINT",
    "flag": "BOOLEAN",
    "count": "BIGINT",
    "ratio": "DOUBLE",
    "ns": "BIGINT",
    "bytes": "BIGINT",
    "rate": "DOUBLE",
    "flo": "DOUBLE",
    "flop_rate": "DOUBLE",
    "joule": "DOUBLE",
    "moment": "BIGINT",
}
UNITS: dict[Kind, str] = {
    "ns": "ns",
    "bytes": "bytes",
    "ratio": "0 to 1",
    "rate": "bytes/s",
    "flo": "operations",
    "moment": "ns since 1970",
}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Name of the column.
        kind: Kind of its values, which gives the unit.
        type: Type in SQL.
        definition: Meaning of a value.
        definition_zh: The same in Chinese.
    """

    name: str
    kind: Kind
    type: SqlType
    definition: str
    definition_zh: str

    @property
    def unit(self) -> str:
        """Return the unit, "" for texts, ids and counts."""
        return UNITS.get(self.kind, "")

    @property
    def unit_zh(self) -> str:
        """Return the unit in Chinese."""
        return CHINESE_UNITS.get(self.unit, self.unit)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: Name of the table.
        definition: Meaning of a row.
        definition_zh: The same in Chinese.
        columns: Columns by name, in order.
    """

    name: str
    definition: str
    definition_zh: str
    columns: dict[str, Column]


@dataclass(frozen=True)
class Macro:
    """A function that queries can call.

    Attributes:
        name: Name of the function.
        call: How it is called.
        definition: Returned value.
        definition_zh: The same in Chinese.
    """

    name: str
    call: str
    definition: str
    definition_zh: str


def _parse_column(line: str, chinese: Mapping[str, str]) -> Column:
    name, kind, definition = line.split(None, 2)
    kind, _, sql_type = kind.partition(":")
    if kind not in KINDS:
        raise ValueError(f"{name} has the unknown kind {kind!r}")
    return Column(name, kind, cast("SqlType", sql_type or _TYPES[kind]), definition, chinese[name])


def _parse_table(name: str, text: str) -> Table:
    definition, *lines = text.strip().splitlines()
    definition_zh, *lines_zh = CHINESE[name].strip().splitlines()
    pairs = (line.partition(" ") for line in (*lines_zh, *CHINESE_LAST_COLUMNS.strip().splitlines()))
    chinese = {column: meaning for column, _, meaning in pairs}
    columns = [_parse_column(line, chinese) for line in (*lines, *_LAST_COLUMNS)]
    return Table(name, definition, definition_zh, {column.name: column for column in columns})


_LAST_COLUMNS = (
    "rank id Rank of the process that recorded the row; NULL if unknown.",
    "trace id Number of the trace, see the table `trace`; 0 if one trace is open.",
)
TABLES: dict[str, Table] = {name: _parse_table(name, text) for name, text in DECLARATIONS.items()}
FUNCTIONS: dict[str, Macro] = {
    name: Macro(name, call, text, CHINESE_MACROS[call])
    for name, call, text in ((call.partition("(")[0], call, text) for call, text in MACROS)
}


# Tables with one row per event, whose `id` is the event
EVENT_TABLES = frozenset({"slice", "kernel", "op", "copy", "collective", "range", "module", "python"})


def kind_of_result(name: str) -> Kind | None:
    """Return the kind of a column of a result by its name, such as `dur`, `sum(dur)` or `total_ns`; None if unknown."""
    text = name.strip().strip('"').lower()
    for function in ("sum(", "avg(", "min(", "max(", "median(", "any_value(", "first(", "last("):
        if text.startswith(function) and text.endswith(")"):
            text = text.removeprefix(function)[:-1]
            if function in ("avg(", "median(") and _KINDS.get(text) == "id":
                return None
            break
    if text.startswith(("count(", "count_star(")):
        return "count"
    if text.startswith("covered("):
        return "ns"
    text = text.rpartition(".")[2].strip('"')
    if text in _KINDS:
        return _KINDS[text]
    endings: dict[str, Kind] = {"_ns": "ns", "_bytes": "bytes", "_ratio": "ratio", "_id": "id"}
    return next((kind for ending, kind in endings.items() if text.endswith(ending)), None)


def _kinds_by_name() -> dict[str, Kind]:
    """Return the kinds of column names that mean the same in all tables."""
    kinds: dict[str, set[Kind]] = {}
    for table in TABLES.values():
        for column in table.columns.values():
            kinds.setdefault(column.name, set()).add(column.kind)
    return {name: next(iter(known_kinds)) for name, known_kinds in kinds.items() if len(known_kinds) == 1}


_KINDS = _kinds_by_name()
