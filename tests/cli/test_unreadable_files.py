"""Every command says what a file is that it cannot read."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path

import pytest

from tests.step_ranges import ranged_trace
from visualprof.cli import main


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))


def database(path: Path, table: str) -> None:
    """Write a database with enough tables that some of their definitions are beyond the first 64 KiB."""
    with sqlite3.connect(path) as connection:
        for number in range(60):
            connection.execute(f"CREATE TABLE {table}_{number}(_id_ INTEGER PRIMARY KEY, {'x' * 900} INT)")
    connection.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "good.json").write_bytes(ranged_trace())
    (folder / "empty.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    (folder / "model.ort").write_bytes(b"\x18\0\0\0ORTM" * 100)
    (folder / "pointer.json").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n")
    (folder / "frame.pickle").write_bytes(pickle.dumps({"weights": [1.0]}))
    database(folder / "old.nvvp", "CUPTI_ACTIVITY_KIND_KERNEL")
    database(folder / "results.rpd", "rocpd_op")
    return folder


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("model.ort", "ONNX Runtime (.ort)", "Export the model"),
        ("pointer.json", "a Git LFS pointer", "git lfs pull"),
        ("frame.pickle", "a Python pickle", "never opens them"),
        ("old.nvvp", "a database of nvprof", "Nsight Systems"),
        ("results.rpd", "a database of rocmProfileData", "rpd2tracing.py"),
        ("empty.json", "has no events", "check that the profiler stopped"),
    ],
)
def test_every_command_says_what_a_file_is(
    files: Path, capfd: pytest.CaptureFixture[str], name: str, problem: str, hint: str
) -> None:
    path, good, page = str(files / name), str(files / "good.json"), str(files / "report.html")
    commands = [["view", "overview", path], ["diff", good, path], ["diff", path, good]]
    commands += [["report", path, "-o", page, "--format", "markdown"]]
    if name != "empty.json":  # its page says that there are no events
        commands += [["report", path, "-o", page], ["diff", good, path, "--format", "html"]]
    for command in commands:
        assert main(command) == 2, command
        error = capfd.readouterr().err
        assert problem in error, command
        assert hint in error, command
