"""pandas and SQLite give the same answers to the stored queries (`python -m benchmarks.asked`)."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from benchmarks.asked.__main__ import all_tables, asked, lines, recordings
from benchmarks.asked.questions import QUESTIONS
from visualprof.query.stored import STORED


@pytest.mark.long
def test_other_tools_give_the_same_answers(tmp_path: Path) -> None:
    for package in ("duckdb", "pandas"):
        pytest.importorskip(package)
    paths = recordings(tmp_path, 1)
    files, made = tmp_path / "paths.pickle", tmp_path / "tables.pickle"
    files.write_bytes(pickle.dumps(paths))
    made.write_bytes(pickle.dumps(all_tables(paths)))
    others = {tool: asked(tool, sys.executable, made) for tool in ("pandas", "sqlite")}
    table = lines(asked("visualprof", sys.executable, files), others)
    assert len(table) == 2 + len(QUESTIONS)
    assert QUESTIONS.keys() == STORED.keys() == others["pandas"].keys() - {""}
