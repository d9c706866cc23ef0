"""`visualprof query`: sources of the statement, formats, files, limits and errors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from visualprof.cli import main
from visualprof.query.schema import TABLES
from visualprof.query.stored import STORED

pytest.importorskip("duckdb")
RANK0 = str(SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz")
SQL = "SELECT name, count(*) AS n, sum(dur) AS total_ns FROM kernel GROUP BY name ORDER BY total_ns DESC"


@pytest.mark.slow
def test_the_command_limits_its_memory() -> None:
    command = [sys.executable, "-m", "visualprof", "query", RANK0, "SELECT length(repeat('x', 3000000000))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "memory" in done.stderr


def query(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The standard output of a successful query."""
    assert main(["query", *map(str, words)]) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    return json.loads(query(capsys, *words, "--format", "json"))


def error(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["query", *map(str, words)]) != 0
    return capsys.readouterr().err.lower()


def test_all_text_formats_have_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, RANK0, SQL)
    rows = [list(row) for row in zip(*found["columns"].values(), strict=True)]
    assert (found["total_rows"], found["truncated"]) == (len(rows), False)
    assert found["kinds"] == {"name": "name", "total_ns": "ns"}
    lines = query(capsys, RANK0, SQL, "--format", "ndjson").splitlines()
    assert [list(json.loads(line).values()) for line in lines] == rows
    header, *cells = csv.reader(io.StringIO(query(capsys, RANK0, SQL, "--format", "csv")))
    assert header == ["name", "n", "total_ns"]
    assert cells == [[str(value) for value in row] for row in rows]
    table = query(capsys, RANK0, SQL)
    assert len(table.splitlines()) == 2 + len(rows)
    assert " ms" in table  # times have units


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_binary_formats_are_files_that_others_read(
    file_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / f"x.{file_format}"
    query(capsys, RANK0, SQL, "--format", file_format, "-o", path)
    if file_format == "parquet":
        table = parquet.read_table(path)
    else:
        with arrow.ipc.open_file(arrow.OSFile(str(path))) as reader:
            table = reader.read_all()
    assert table.column("name").to_pylist() == answer(capsys, RANK0, SQL)["columns"]["name"]
    assert "needs a file" in error(capsys, RANK0, SQL, "--format", file_format)


def test_the_statement_comes_from_a_file_or_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = query(capsys, RANK0, SQL, "--format", "csv")
    (tmp_path / "q.sql").write_text(SQL)
    assert query(capsys, RANK0, "-f", tmp_path / "q.sql", "--format", "csv") == expected
    for words in ((RANK0,), (RANK0, "-f", "-")):
        monkeypatch.setattr("sys.stdin", io.StringIO(SQL))
        assert query(capsys, *words, "--format", "csv") == expected
    query(capsys, RANK0, SQL, "--format", "csv", "-o", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == expected
    assert "cannot read" in error(capsys, RANK0, "-f", tmp_path / "missing.sql")


def test_the_suffix_of_the_output_file_chooses_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query(capsys, RANK0, SQL, "-o", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == query(capsys, RANK0, SQL, "--format", "csv")
    query(capsys, RANK0, SQL, "-o", tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").read_bytes()[:4] == b"PAR1"
    query(capsys, RANK0, SQL, "-o", tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_text() == query(capsys, RANK0, SQL)


def test_a_missing_profile_and_a_file_that_cannot_be_written_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "needs a profile" in error(capsys, SQL)
    assert "cannot write" in error(capsys, RANK0, SQL, "-o", tmp_path / "missing" / "x.csv")


def test_warnings_about_the_file_are_printed_and_strict_makes_them_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2},')
    assert main(["query", str(path), "SELECT count(*) AS n FROM slice", "--format", "csv"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "n\n1\n"
    assert captured.err.startswith("warning: ")
    assert "warning" in error(capsys, path, "SELECT 1", "--strict")


def test_several_files_and_a_run_have_rank_and_trace(capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT trace, rank, count(*) AS n FROM kernel GROUP BY ALL ORDER BY ALL"
    run = answer(capsys, SAMPLES / "synthetic-4gpu", sql)["columns"]
    files = [SAMPLES / "synthetic-4gpu" / f"rank{rank}.pt.trace.json.gz" for rank in range(4)]
    assert (run["trace"], run["rank"]) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert answer(capsys, *files, sql)["columns"] == run
    only = answer(capsys, SAMPLES / "synthetic-4gpu", sql, "--worker", "rank2")["columns"]
    assert only["rank"] == [2]


def test_stored_queries_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, RANK0, "--run", "argument", "-p", "key=block")["columns"]
    sql = "SELECT DISTINCT display_value AS value FROM args WHERE key = $key"
    assert set(found["value"]) == set(answer(capsys, RANK0, sql, "-p", "key=block")["columns"]["value"])
    assert all(name in query(capsys, "--list") for name in STORED)
    longest = "SELECT count(*) AS n FROM kernel WHERE dur > $least AND name LIKE '%' || $part || '%'"
    assert answer(capsys, RANK0, longest, "-p", "least=0", "-p", "part=nccl")["columns"]["n"][0] > 0
    assert "no stored query" in error(capsys, RANK0, "--run", "top_kernel")
    assert "name=value" in error(capsys, RANK0, SQL, "-p", "key")


def test_the_schema_has_each_column_with_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(name in query(capsys, "--schema") for name in TABLES)
    lines = query(capsys, "--schema", "kernel").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(TABLES["kernel"].columns)
    assert any(line.split()[:3] == ["dur", "BIGINT", "ns"] for line in lines)


def test_rows_are_limited_and_the_answer_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, RANK0, "SELECT * FROM range(100)", "--limit", 10)
    assert (found["total_rows"], found["truncated"]) == (10, True)
    main(["query", RANK0, "SELECT * FROM range(2000)"])
    assert "1,000 rows" in (captured := capsys.readouterr()).err
    assert "more rows exist" in captured.err


def test_a_statement_stops_after_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    endless = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
    assert "took too long" in error(capsys, RANK0, endless, "--timeout", 0.1)


def test_errors_name_the_nearest_and_what_is_perfettos(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nearest column is dur" in error(capsys, RANK0, "SELECT durr FROM kernel")
    text = error(capsys, RANK0, "SELECT 1 FROM kernels")
    assert "did you mean kernel" in text
    assert "pg_" not in text  # the suggestion of DuckDB
    assert "perfetto" in error(capsys, RANK0, "INCLUDE PERFETTO MODULE slices.flat_slices; SELECT 1")
    assert "select" in error(capsys, RANK0, "DROP VIEW kernel")


def test_files_are_readable_only_without_restrictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.csv").write_text("name,owner\naten::copy_,ann\n")
    sql = f"SELECT owner, count(*) AS n FROM op JOIN '{tmp_path / 'names.csv'}' USING (name) GROUP BY owner"
    assert "names.csv" in error(capsys, RANK0, sql)
    assert answer(capsys, RANK0, sql, "--unrestricted")["columns"]["owner"] == ["ann"]
