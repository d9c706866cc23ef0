"""The option --recording: which profile a memory snapshot is joined with, when the names of the files do not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reader.test_snapshot_origins import recorded_allocations, write_recording, write_snapshot
from visualprof.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot and two workers; one of them is the process of the snapshot."""
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    run = tmp_path / "run"
    run.mkdir()
    write_snapshot(run / "snapshot.pickle")
    write_recording(run / "first.step1.json", recorded_allocations())
    write_recording(run / "second.step1.json", [])
    return run


def operators(folder: Path, capsys: pytest.CaptureFixture[str], recording: str) -> list[str]:
    """Names of the operators whose blocks are alive at the end."""
    options = ["--param", "by=operator", "--param", "at=end", "--format", "json", "--recording", recording]
    assert main(["view", "snapshot", str(folder / "snapshot.pickle"), *options]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return sorted(answer["alive"]["columns"]["name"])


@pytest.mark.parametrize("recording", ["first", "first.step1.json", "{folder}/first.step1.json"])
def test_a_file_or_a_worker_names_the_recording(
    folder: Path, capsys: pytest.CaptureFixture[str], recording: str
) -> None:
    names = operators(folder, capsys, recording.format(folder=folder))
    assert names == ["", "aten::empty", "aten::mm", "aten::relu"]


def test_without_the_option_no_recording_is_chosen_among_several(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "snapshot", str(folder / "snapshot.pickle"), "--param", "by=operator"]) == 2
    assert "not joined with a recording" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "recording", "reason"),
    [
        ("snapshot.pickle", "second", "no memory events"),
        ("snapshot.pickle", "third", "first.step1.json, second.step1.json"),
        ("second.step1.json", "first", "name a memory snapshot"),
    ],
)
def test_an_unsuitable_recording_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], path: str, recording: str, reason: str
) -> None:
    assert main(["view", "snapshot", str(folder / path), "--recording", recording]) == 2
    assert reason.lower() in capsys.readouterr().err.lower()


def test_queries_see_the_named_recording(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    sql = "SELECT count(operator) AS known FROM block"
    arguments = [str(folder / "snapshot.pickle"), sql, "--format", "csv", "--recording", "first"]
    assert main(["query", *arguments, "--unrestricted"]) == 0  # a limit of memory would apply to the tests
    assert capsys.readouterr().out.split() == ["known", "4"]
