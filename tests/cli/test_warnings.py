"""Warnings about a file reach every output of the command line, and --strict makes them errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visualprof.cli import main

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 90},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
]


def trace(folder: Path, *, cut: bool = False, events: list[dict[str, object]] | None = None) -> Path:
    """Write a trace; a cut one ends in the middle of its last event."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS * 3 if events is None else events})
    path = folder / ("cut.json" if cut else "whole.json")
    path.write_text(text[:-30] if cut else text)
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))


def test_view_prints_warnings_to_stderr_and_into_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = trace(tmp_path, cut=True)
    outputs: list[tuple[list[str], str]] = []
    for _ in range(2):  # computed, then cached
        assert main(["view", "operator", str(path), "--format", "json"]) == 0
        out, err = capfd.readouterr()
        outputs.append((json.loads(out)["warnings"], err))
    assert main(["view", "operator", str(path)]) == 0
    (warning,), _ = outputs[0]
    assert outputs == [([warning], f"warning: {warning}\n")] * 2
    assert capfd.readouterr().err == f"warning: {warning}\n"


def test_a_whole_file_has_an_empty_list(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "operator", str(trace(tmp_path)), "--format", "json", "--strict"]) == 0
    out, err = capfd.readouterr()
    assert (json.loads(out)["warnings"], err) == ([], "")


@pytest.mark.parametrize("view", ["overview", "all"])
def test_strict_makes_warnings_an_error_after_the_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], view: str
) -> None:
    path = trace(tmp_path, cut=True)
    assert main(["view", view, str(path), "--format", "json", "--strict"]) == 2
    out, err = capfd.readouterr()
    assert len(json.loads(out)["warnings"]) == 1
    assert "1 warning, which --strict makes an error" in err


def test_diff_names_the_side_of_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sides = [str(trace(tmp_path)), str(trace(tmp_path, cut=True))]
    assert main(["diff", *sides, "--format", "json"]) == 0
    out, err = capfd.readouterr()
    (warning,) = json.loads(out)["warnings"]
    assert warning.startswith("new: ")
    assert f"warning: {warning}\n" in err
    assert main(["diff", *sides, "--format", "markdown", "--strict"]) == 2
    assert "- :warning: new: " in capfd.readouterr().out


def test_a_report_lists_warnings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "report.md"
    arguments = ["report", str(trace(tmp_path, cut=True)), "--format", "markdown", "-o", str(output)]
    assert main(arguments) == 0
    assert "- :warning: " in output.read_text("utf-8")
    assert "warning: " in capfd.readouterr().err
    assert main([*arguments, "--strict"]) == 2


def test_skipped_files_of_a_folder_are_warnings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    trace(folder)
    (folder / "page.json").write_text("<html>not found</html>")
    assert main(["view", "operator", str(folder)]) == 0
    assert "warning: " in (err := capfd.readouterr().err)
    assert "page.json was skipped: " in err


def test_an_empty_trace_is_reported_with_another_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "overview", str(trace(tmp_path, events=[]))]) == 2
    err = capfd.readouterr().err
    assert "whole.json has no events" in err
    assert "view overview" not in err


def test_a_file_without_data_for_a_view_lists_the_views_that_it_has(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "kernel", str(trace(tmp_path))]) == 2
    assert "It has data for: " in (err := capfd.readouterr().err)
    assert "overview" in err
