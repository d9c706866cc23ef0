"""Queries cannot read files, change anything, or use more than their share of time and memory."""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import SAMPLES
from visualprof.errors import VisualprofError
from visualprof.query.pipe import Head, TraceFile
from visualprof.query.sandbox import landlock_version
from visualprof.query.service import QueryService
from visualprof.reader.cache import open_trace

pytest.importorskip("duckdb")

STATEMENTS = (
    "DROP VIEW kernel", "CREATE TABLE t(a INT)", "CREATE MACRO f() AS 1", "SET threads = 8", "RESET threads",
    "PRAGMA database_list", "ATTACH ':memory:' AS m", "ATTACH '/tmp/x.db'", "COPY (SELECT 1) TO '/tmp/x.csv'",
    "INSTALL httpfs", "LOAD httpfs", "EXPORT DATABASE '/tmp/x'", "IMPORT DATABASE '/tmp/x'", "CALL pragma_version()",
    "SELECT 1; SELECT 2", "EXPLAIN CREATE TABLE t(a INT)", "PREPARE p AS SELECT 1", "SET VARIABLE a = 1",
    "BEGIN TRANSACTION", "COMMIT", "CHECKPOINT", "VACUUM", "USE memory", "", "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM glob('/*')", "SELECT * FROM sniff_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_json('http://127.0.0.1/')", "SELECT * FROM 'http://127.0.0.1/a.csv'", "SELECT getenv('HOME')",
    "WITH x AS (INSERT INTO raw_string_0 VALUES (1, 'a') RETURNING id) SELECT * FROM x, kernel",
    "SELECT sys", "SELECT * FROM sources", "SELECT * FROM os",
    *(f"SELECT * FROM {function}('{path}')" for function in ("read_csv", "read_text", "read_blob", "read_json", "glob",
      "read_parquet", "parquet_metadata", "parquet_schema", "sniff_csv", "read_csv_auto", "read_ndjson")
      for path in ("/etc/shadow", "/proc/self/mem", "/proc/self/cmdline", "~/.ssh/id_rsa", "../../etc/passwd",
                   "s3://bucket/key", "https://example.org/a", "/dev/stdin")),
    *(f"{verb} {rest}" for verb in ("CREATE", "CREATE OR REPLACE", "CREATE TEMP") for rest in
      ("TABLE t AS SELECT 1", "VIEW slice AS SELECT 1", "SEQUENCE s", "TYPE t AS ENUM ('a')",
       "MACRO m() AS TABLE SELECT 1",
       "SCHEMA s", "INDEX i ON t(a)", "SECRET s (TYPE s3)")),
    *(f"SET {name} = {value}" for name in ("enable_external_access", "lock_configuration", "python_enable_replacements",
      "autoload_known_extensions", "memory_limit", "temp_directory", "allowed_paths")
      for value in ("true", "'1'", "NULL")),
    *(f"{verb} {rest}" for verb in ("ALTER", "DROP", "TRUNCATE", "DELETE FROM", "UPDATE", "INSERT INTO") for rest in
      ("TABLE kernel", "kernel", "VIEW slice", "raw_string_0", "raw_slice_0", "meta SET key = 1", "args VALUES (1)")),
)  # fmt: skip


@pytest.fixture
def service() -> Iterator[QueryService]:
    service = QueryService()
    yield service
    service.close()


def ask(service: QueryService, traces: list[TraceFile], sql: str) -> tuple[Head, bytes]:
    return service.run("ann", traces, sql)


def test_a_group_by_over_kernels_answers(service: QueryService, traces: list[TraceFile]) -> None:
    head, body = ask(service, traces, "SELECT count(*) AS n, sum(dur) AS total FROM kernel")
    raw = json.loads(gzip.decompress((SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz").read_bytes()))[
        "traceEvents"
    ]
    durations = [round(event["dur"] * 1000) for event in raw if event.get("cat") == "kernel"]
    assert head.columns == ["n", "total"]
    assert json.loads(body) == {"n": [len(durations)], "total": [sum(durations)]}
    assert head.locked == bool(landlock_version())


@pytest.mark.slow
def test_200_hostile_statements_are_refused(traces: list[TraceFile]) -> None:
    from visualprof.query.engine import Engine
    from visualprof.query.tables import Source

    path = SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz"
    engine = Engine([Source(open_trace(path), "rank0")])
    answered: list[str] = []
    for sql in STATEMENTS:
        with contextlib.suppress(VisualprofError):
            with engine.run(sql) as cursor:
                cursor.fetch(1)
            answered.append(sql)
    engine.close()
    assert len(STATEMENTS) >= 200
    assert answered == []


def test_no_setting_names_a_home_directory(service: QueryService, traces: list[TraceFile]) -> None:
    _, body = ask(service, traces, "SELECT value FROM duckdb_settings() WHERE value LIKE '/%'")
    assert b"/root" not in body
    assert b"/home" not in body


def test_rows_are_capped_and_the_answer_says_so(service: QueryService, traces: list[TraceFile]) -> None:
    head, _ = ask(service, traces, "SELECT * FROM range(100000)")
    assert (head.rows, head.truncated) == (10_000, True)


@pytest.mark.slow
def test_a_value_of_three_gigabytes_ends_the_child_and_the_next_query_answers(
    service: QueryService, traces: list[TraceFile]
) -> None:
    with pytest.raises(VisualprofError):  # within the limits of the engine alone it is answered where memory is plenty
        ask(service, traces, "SELECT length(repeat('x', 3000000000))")
    _, body = ask(service, traces, "SELECT 1 AS one")
    assert json.loads(body) == {"one": [1]}


def test_the_server_side_never_imports_duckdb() -> None:
    import subprocess

    program = "import sys, visualprof.server.app, visualprof.query.service; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
