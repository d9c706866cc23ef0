"""Only the tables and columns that a statement may use are computed."""

from __future__ import annotations

import pytest

from tests.conftest import SAMPLES
from visualprof.query.mentions import mentioned_columns
from visualprof.query.schema import TABLES

KERNEL = frozenset(TABLES["kernel"].columns)


def test_columns_that_a_statement_names() -> None:
    assert mentioned_columns("SELECT name, sum(dur) FROM kernel GROUP BY name") == {"kernel": {"name", "dur"}}
    assert mentioned_columns("SELECT count(*) FROM kernel -- dur")["kernel"] == frozenset()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM kernel",
        "FROM kernel",
        "SELECT kernel FROM kernel",
        "SELECT k FROM kernel k",
        "SELECT k.* FROM kernel AS k",
        "SELECT COLUMNS('d.*') FROM kernel",
        "DESCRIBE kernel",
        "SELECT * EXCLUDE (dur) FROM kernel",
    ],
)
def test_all_columns_where_a_statement_may_mean_them(sql: str) -> None:
    assert mentioned_columns(sql)["kernel"] == KERNEL


def test_the_name_of_a_table_as_a_column_is_no_source() -> None:
    sql = "SELECT name, sum(gap) FROM (SELECT name, ts - lag(ts) OVER (ORDER BY ts) AS gap FROM kernel) GROUP BY name"
    assert mentioned_columns(sql) == {"kernel": {"name", "ts"}}


@pytest.mark.parametrize(
    "source",
    [
        "gap", "GAP", '"gap"', "main.gap", '"temp"."main"."gap"', "kernel, gap", "kernel JOIN gap USING (id)",
        "(kernel CROSS JOIN gap)", "query_table('gap')", "/* all */ gap", "(SUMMARIZE gap)", "(FROM gap)",
        "kernel ASOF JOIN gap ON kernel.ts >= gap.ts", "(TABLE gap)", "range r, LATERAL (SELECT max(ts) FROM gap) g",
    ],
)  # fmt: skip
def test_every_way_to_name_a_source_counts(source: str) -> None:
    assert "gap" in mentioned_columns(f"SELECT 1 FROM {source}")
    duckdb = pytest.importorskip("duckdb")
    assert duckdb
    import visualprof

    visualprof.open(SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz").sql(f"SELECT count(*) FROM {source}")
