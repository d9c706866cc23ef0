"""The declared tables are complete in both languages, and equal to what DuckDB describes and to the reference."""

from __future__ import annotations

import pytest

import visualprof
from tests.conftest import ROOT, SAMPLES
from visualprof.query.chinese import CHINESE, CHINESE_LAST_COLUMNS, CHINESE_MACROS, CHINESE_UNITS
from visualprof.query.reference import schema_markdown
from visualprof.query.schema import FUNCTIONS, TABLES, UNITS


def test_every_definition_exists_in_chinese_and_none_is_left_over() -> None:
    shared = [line.split()[0] for line in CHINESE_LAST_COLUMNS.strip().splitlines()]
    translated = {
        name: [line.split()[0] for line in text.strip().splitlines()[1:]] + shared for name, text in CHINESE.items()
    }
    assert {name: sorted(columns) for name, columns in translated.items()} == {
        name: sorted(table.columns) for name, table in TABLES.items()
    }
    assert CHINESE_MACROS.keys() == {function.call for function in FUNCTIONS.values()}
    assert CHINESE_UNITS.keys() <= set(UNITS.values())
    items = [*TABLES.values(), *FUNCTIONS.values(), *(c for table in TABLES.values() for c in table.columns.values())]
    assert [item.name for item in items if item.definition_zh.isascii()] == []
    assert [item.name for item in items if not item.definition.isascii()] == []


@pytest.mark.parametrize(("language", "folder"), [("en", "docs"), ("zh", "docs/zh")])
def test_the_pages_of_the_reference_are_those_of_the_declarations(language: str, folder: str) -> None:
    """After a change: `python -m visualprof.query.reference > docs/query-schema.md`, the same with `zh`."""
    assert (ROOT / folder / "query-schema.md").read_text("utf-8") == schema_markdown(language)


def test_duckdb_describes_the_declared_columns_and_types() -> None:
    pytest.importorskip("duckdb")
    trace = visualprof.open(SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz")
    described = {name: [row[:2] for row in trace.sql(f"DESCRIBE {name}").rows] for name in TABLES}
    assert described == {
        name: [(column.name, column.type) for column in table.columns.values()] for name, table in TABLES.items()
    }
