"""Find the tables and columns that a statement may use, so that only these are computed.

The search is generous: a column's name in a text counts. A statement that could mean all columns, such as `SELECT *`,
gets all columns. A table only counts in a place where a statement can name its source, or in quotes: `gap` is also a
good name for a column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from visualprof.query.schema import FUNCTIONS, TABLES

_WORD = re.compile(r"[a-z_]\w*", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_COUNT = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)
_STAR = re.compile(
    r"(?:\bselect\b|\bdistinct\b|\ball\b|,|\.|\))\s*\*|\bcolumns\s*\(|\(\s*from\b|\b(?:describe|summarize|show|unpivot|"
    r"natural|table|union\s+by)\b|\*\s*(?:exclude|replace|rename)\b",
    re.IGNORECASE,
)
_CATALOG = re.compile(r"\b(?:show|information_schema|pragma_\w+|duckdb_\w+|pg_\w+|sqlite_\w+)\b", re.IGNORECASE)
_ALIAS = re.compile(r"\b(?:from|join)\s+(\w+)\s+(?:as\s+)?(\w+)|,\s*(\w+)\s+(?:as\s+)?(\w+)", re.IGNORECASE)
# What a source can follow, with the names of a catalog and a schema before the name of the table
_SOURCE = (
    r"(?:\b(?:from|join|table|describe|summarize|show|pivot\w*|unpivot|lateral)\b[\s(]*|,\s*)"
    r"(?:\w+\s*\.\s*|\"\w+\"\s*\.\s*)*"
)
# Tables with the columns that the functions use
_DEPENDENCIES = {
    "extract_arg": {"args": ("arg_set_id", "key", "display_value")},
    "ancestor_slice": {"slice": tuple(TABLES["slice"].columns)},
    "descendant_slice": {"slice": tuple(TABLES["slice"].columns)},
}


def mentioned_columns(sql: str) -> dict[str, frozenset[str]]:
    """Return the columns that a statement may use, by table."""
    text = without_comments(sql)
    words = frozenset(word.lower() for word in _WORD.findall(text))
    every = _means_all_columns(text)
    shows_catalog = _CATALOG.search(text)
    tables = {
        name: table for name, table in TABLES.items() if shows_catalog or (name in words and _may_be_source(text, name))
    }
    used = {
        name: frozenset(table.columns if every else words.intersection(table.columns)) for name, table in tables.items()
    }
    for function, needed in _DEPENDENCIES.items():
        if function in words:
            for name, columns in needed.items():
                used[name] = used.get(name, frozenset()).union(columns)
    return used


def without_comments(sql: str) -> str:
    """Return a statement with a space in place of each comment."""
    return _COMMENT.sub(" ", sql)


def _means_all_columns(text: str) -> bool:
    """Return whether a statement could use columns that it does not name."""
    text = _COUNT.sub("", text)
    if _STAR.search(text) or not re.match(r"[\s(]*(?:select|with|explain)\b", text, re.IGNORECASE):
        return True
    names = {name for name in TABLES if _may_be_source(text, name)}
    for groups in _ALIAS.findall(text):
        table, alias = (groups[0], groups[1]) if groups[0] else (groups[2], groups[3])
        if table.lower() in names:
            names.add(alias)
    return any(_is_value(text, name) for name in names)


def _may_be_source(text: str, name: str) -> bool:
    """Return whether a statement may read the rows of a table."""
    return re.search(rf"{_SOURCE}{name}\b|['\"]{name}['\"]", text, re.IGNORECASE) is not None


def _is_value(text: str, name: str) -> bool:
    """Return whether the name of a table or its alias may also be used as a value, which is a row with all columns."""
    bare = len(re.findall(rf"(?<!\.)\b{re.escape(name)}\b(?!\s*[.(])", text, re.IGNORECASE))
    named = len(re.findall(rf"(?:\bfrom|\bjoin|,)\s+{re.escape(name)}\b", text, re.IGNORECASE))
    as_alias = len(re.findall(rf"(?:\bfrom|\bjoin|,)\s+\w+\s+(?:as\s+)?{re.escape(name)}\b", text, re.IGNORECASE))
    return bare > named + as_alias and name.lower() not in _COLUMN_NAMES


_COLUMN_NAMES: Mapping[str, None] = dict.fromkeys(column for table in TABLES.values() for column in table.columns)
assert FUNCTIONS.keys() >= _DEPENDENCIES.keys()
