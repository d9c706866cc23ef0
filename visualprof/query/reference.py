"""The schema as text: for terminals and assistants, and as Markdown for the documentation."""

from __future__ import annotations

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.query.schema import FUNCTIONS, TABLES, Table
from visualprof.query.stored import STORED


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


def schema_markdown() -> str:
    """Return the reference of all tables and functions."""
    parts = [
        _MARKDOWN_HEAD,
        "## Tables",
        _rows(("Table", "Rows"), [(f"[{t}](#{t})", TABLES[t].definition) for t in TABLES]),
    ]
    for table in TABLES.values():
        columns = [(f"`{c.name}`", c.type, c.unit, c.definition) for c in table.columns.values()]
        parts += [f"## {table.name}", table.definition, _rows(("Column", "Type", "Unit", "Meaning"), columns)]
    functions = [(f"`{function.call}`", function.definition) for function in FUNCTIONS.values()]
    parts += ["## Functions", _rows(("Function", "Meaning"), functions)]
    return "\n\n".join(parts) + "\n"


def _rows(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [names, tuple("---" for _ in names), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)


_MARKDOWN_HEAD = """# Tables for SQL

These are the tables and functions that [queries](query.md) can use. The page is generated from
`visualprof/query/declarations.py` (`python -m visualprof.query.reference`).

Times are in ns and count from the first event of the trace, sizes are in bytes. Unknown values are
`NULL`. Ids of events are their rows in the trace. With several traces, ids are unique over all."""

if __name__ == "__main__":
    import sys

    sys.stdout.write(schema_markdown())
