"""Errors of queries, with hints for columns, tables and statements that do not exist here."""

from __future__ import annotations

import re
from difflib import get_close_matches

from visualprof.errors import BadParameter, MissingData, VisualprofError
from visualprof.messages import msg
from visualprof.query.schema import FUNCTIONS, TABLES

MAX_ERROR_CHARS = 2000


class QueryError(BadParameter, docs_page="query#choose-the-table"):
    """A statement is not valid, or DuckDB cannot run it."""


class QueryStopped(VisualprofError, status=422, docs_page="security#sql-queries"):
    """A query exceeded its time or memory, or was canceled."""


class DuckDbMissing(MissingData, status=501, docs_page="query"):
    """DuckDB is not installed."""

    def __init__(self, error: str = "", hint: str = "") -> None:
        super().__init__(
            error or msg("query.duckdb_missing", "queries need DuckDB, which is not installed"),
            hint or msg("query.install_duckdb", "pip install 'visualprof[query]'"),
        )


_PERFETTO = {
    r"\binclude\s+perfetto\s+module\b": "INCLUDE PERFETTO MODULE",
    r"\bcreate\s+(?:or\s+replace\s+)?perfetto\b": "CREATE PERFETTO TABLE",
    r"\bspan_(?:left_)?join\b": "SPAN_JOIN",
}
_COLUMN = re.compile(
    r'(?:Referenced column|column named|Table ".*?" does not have a column named) "?([^"]+?)"?(?: not|$|\n)'
)
_TABLE = re.compile(r"Table(?: Function)? with name (\S+) does not exist")
_SUGGESTION = re.compile(r'\n(?:Did you mean "[^"\n]*"\?|Candidate bindings: .*)')
_FUNCTION = re.compile(r"Function with name (\S+) does not exist")


def query_error(sql: str, message: str) -> QueryError:
    """Return the error of a statement that DuckDB rejects, with a hint."""
    hint = _hint(sql, message)
    text = _SUGGESTION.sub("", message) if hint else message
    return QueryError(text.strip()[:MAX_ERROR_CHARS], hint)


def perfetto_hint(sql: str) -> str:
    """Return a hint if a statement uses a part of Perfetto's dialect that is not available, else ""."""
    for pattern, name in _PERFETTO.items():
        if re.search(pattern, sql, re.IGNORECASE):
            return msg(
                "query.perfetto_dialect",
                f"{name} is Perfetto's and not available: the tables kernel, op, module, range, gap and the function "
                "covered() replace Perfetto's modules; ASOF JOIN and range conditions replace SPAN_JOIN",
            )
    return ""


def _hint(sql: str, message: str) -> str:
    if hint := perfetto_hint(sql):
        return hint
    if match := _FUNCTION.search(message):
        near = get_close_matches(match[1].lower(), FUNCTIONS, 1)
        return msg("query.did_you_mean", f"did you mean {FUNCTIONS[near[0]].call}?") if near else ""
    if match := _TABLE.search(message):
        near = get_close_matches(match[1].strip('"!').lower(), TABLES, 1)
        tables = ", ".join(TABLES)
        return (
            msg("query.did_you_mean", f"did you mean {near[0]}?") if near else msg("query.tables", f"tables: {tables}")
        )
    if (match := _COLUMN.search(message)) and "column" in message:
        return _column_hint(sql, match[1].strip('"').rpartition(".")[2])
    return ""


def _column_hint(sql: str, name: str) -> str:
    """Return the nearest column of the tables that a statement names, with its table."""
    words = set(re.findall(r"\w+", sql.lower()))
    tables = [table for table in TABLES.values() if table.name in words] or list(TABLES.values())
    near = get_close_matches(name.lower(), {column for table in tables for column in table.columns}, 1)
    if near:
        holder = next(table for table in tables if near[0] in table.columns)
        return msg(
            "query.nearest_column",
            f"the nearest column is {near[0]} of {holder.name}: {holder.columns[near[0]].definition}",
        )
    elsewhere = [table.name for table in TABLES.values() if name.lower() in table.columns]
    if elsewhere:
        return msg("query.column_of_other_table", f"{name} is a column of {', '.join(elsewhere)}")
    table = tables[0]
    return msg("query.columns_of_table", f"columns of {table.name}: {', '.join(table.columns)}")
