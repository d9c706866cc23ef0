"""The schema as text: for terminals and assistants, and as Markdown for the documentation."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.query.schema import FUNCTIONS, TABLES, Column, Macro, Table
from visualprof.query.stored import STORED

LINE_CHARS = 100  # of the Markdown page


def schema_text(name: str = "") -> str:
    """Return the tables with their definitions, or the columns of one table with units and definitions.

    Raises:
        NotFound: There is no such table.
    """
    if name:
        if name not in TABLES:
            tables = ", ".join(TABLES)
            raise NotFound(
                msg("query.no_table", f"there is no table {name!r}"), msg("query.tables", f"tables: {tables}")
            )
        return _table_text(TABLES[name])
    size = max(map(len, TABLES))
    lines = [f"{table.name:{size}}  {table.definition}" for table in TABLES.values()]
    return "\n".join(
        [*lines, "", *_function_lines(), "", "visualprof query --schema TABLE prints the columns of a table."]
    )


def full_schema_text() -> str:
    """Return all tables with their columns, and the functions."""
    tables = "\n\n".join(_table_text(table) for table in TABLES.values())
    return f"{tables}\n\nFunctions in addition to those of DuckDB:\n" + "\n".join(_function_lines())


def _table_text(table: Table) -> str:
    columns = table.columns.values()
    size = max(len(column.name) for column in columns)
    lines = [f"  {c.name:{size}}  {c.type:7}  {c.unit:9}  {c.definition}" for c in columns]
    return "\n".join([f"{table.name}: {table.definition}", *lines])


def _function_lines() -> list[str]:
    return [f"{function.call:24}  {function.definition}" for function in FUNCTIONS.values()]


def stored_text() -> str:
    """Return the stored queries with their questions and parameters."""
    size = max(map(len, STORED))
    return "\n".join(
        f"{query.id:{size}}  {query.question}" + (f" (-p {', '.join(query.parameters)})" if query.parameters else "")
        for query in STORED.values()
    )


@dataclass(frozen=True)
class _PageTexts:
    """Texts of the reference in one language.

    Attributes:
        head: Title and introduction.
        tables: Heading of the tables.
        functions: Heading of the functions.
        table_columns: Columns of the list of tables.
        column_columns: Columns of the list of columns.
        function_columns: Columns of the list of functions.
    """

    head: str
    tables: str
    functions: str
    table_columns: tuple[str, ...]
    column_columns: tuple[str, ...]
    function_columns: tuple[str, ...]


_PAGES = {
    "en": _PageTexts(
        """# Tables for SQL

These are the tables and functions that [queries](query.md) can use. The page is generated from
`visualprof/query/declarations.py` (`python -m visualprof.query.reference`).

Times are in ns and count from the first event of the trace, sizes are in bytes. Unknown values are
`NULL`. Ids of events are their rows in the trace. With several traces, ids are unique over all.""",
        "Tables",
        "Functions",
        ("Table", "Rows"),
        ("Column", "Type", "Unit", "Meaning"),
        ("Function", "Meaning"),
    ),
    "zh": _PageTexts(
        """# SQL 表

[查询](query.md)可用的表和函数。本页由 `visualprof/query/chinese.py` 生成（`python -m visualprof.query.reference zh`）。

时间以 ns 为单位，从 trace 的第一个事件算起；大小以字节为单位。未知的值为 `NULL`。
事件的 id 是其在 trace 中的行号。打开多个 trace 时，id 在所有 trace 中唯一。""",
        "表",
        "函数",
        ("表", "行"),
        ("列", "类型", "单位", "含义"),
        ("函数", "含义"),
    ),
}


def schema_markdown(language: str = "en") -> str:
    """Return the reference of all tables and functions in English ("en") or Chinese ("zh")."""
    texts = _PAGES[language]

    def definition(item: Table | Column | Macro) -> str:
        return item.definition_zh if language == "zh" else item.definition

    tables = [(f"[{name}](#{name})", definition(table)) for name, table in TABLES.items()]
    parts = [texts.head, f"## {texts.tables}", _rows(texts.table_columns, tables)]
    for table in TABLES.values():
        columns = [
            (f"`{c.name}`", c.type, c.unit_zh if language == "zh" else c.unit, definition(c))
            for c in table.columns.values()
        ]
        parts += [
            f"## {table.name}",
            textwrap.fill(definition(table), LINE_CHARS),
            _rows(texts.column_columns, columns),
        ]
    functions = [(f"`{function.call}`", definition(function)) for function in FUNCTIONS.values()]
    parts += [f"## {texts.functions}", _rows(texts.function_columns, functions)]
    return "\n\n".join(parts) + "\n"


def _rows(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [names, tuple("---" for _ in names), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)


if __name__ == "__main__":
    import sys

    sys.stdout.write(schema_markdown(*sys.argv[1:2]))
