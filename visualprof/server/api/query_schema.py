"""Tables, columns, functions and common questions for queries."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from visualprof.query.schema import EVENT_TABLES, FUNCTIONS, TABLES, Column
from visualprof.query.service import MAX_ROWS
from visualprof.query.stored import STORED
from visualprof.views.answers.kinds import Kind


class SchemaColumn(msgspec.Struct):
    """A column of a table, in English and Chinese (`_zh`)."""

    name: str
    type: str
    kind: Kind
    unit: str
    unit_zh: str
    definition: str
    definition_zh: str


class SchemaTable(msgspec.Struct):
    """A table with its definition.

    Attributes:
        name: Name of the table.
        definition: Meaning of a row.
        definition_zh: The same in Chinese.
        has_events: Whether a row is an event, and `id` its number on the timeline.
        columns: The columns.
        rows: Number of rows in the requested span; None without one.
    """

    name: str
    definition: str
    definition_zh: str
    has_events: bool
    columns: list[SchemaColumn]
    rows: int | None = None


class SchemaFunction(msgspec.Struct):
    """A function for queries, in English and Chinese (`_zh`)."""

    name: str
    call: str
    definition: str
    definition_zh: str


class SchemaAnswer(msgspec.Struct):
    """Tables, columns and functions for queries.

    Attributes:
        available: Whether this server runs queries.
        reason: Why not, "" if it does.
        hint: What to do about it.
        tables: The tables.
        functions: Functions that visualprof adds to DuckDB.
        max_rows: Maximum number of rows of an answer.
    """

    available: bool
    reason: str
    hint: str
    tables: list[SchemaTable]
    functions: list[SchemaFunction]
    max_rows: int


class StoredRow(msgspec.Struct):
    """A common question with its SQL.

    Attributes:
        id: Name of the query.
        question: The question in English.
        question_zh: The question in Chinese.
        sql: The statement.
        parameters: Parameters with their default values.
    """

    id: str
    question: str
    question_zh: str
    sql: str
    parameters: dict[str, str | int | float]


class StoredAnswer(msgspec.Struct):
    """The stored queries."""

    queries: list[StoredRow]


def describe_schema(reason: str, hint: str, counts: Mapping[str, int]) -> SchemaAnswer:
    """Return the tables, columns and functions.

    Args:
        reason: Why the server runs no queries, "" if it does.
        hint: What to do about it.
        counts: Numbers of rows by table.
    """
    tables = [
        SchemaTable(
            table.name,
            table.definition,
            table.definition_zh,
            table.name in EVENT_TABLES,
            [_schema_column(column) for column in table.columns.values()],
            counts.get(table.name),
        )
        for table in TABLES.values()
    ]
    functions = [SchemaFunction(f.name, f.call, f.definition, f.definition_zh) for f in FUNCTIONS.values()]
    return SchemaAnswer(not reason, reason, hint, tables, functions, MAX_ROWS)


def stored_questions() -> StoredAnswer:
    """Return common questions with their SQL."""
    return StoredAnswer(
        [StoredRow(q.id, q.question, q.question_zh, q.text, dict(q.parameters)) for q in STORED.values()]
    )


def _schema_column(column: Column) -> SchemaColumn:
    return SchemaColumn(
        name=column.name,
        type=column.type,
        kind=column.kind,
        unit=column.unit,
        unit_zh=column.unit_zh,
        definition=column.definition,
        definition_zh=column.definition_zh,
    )
