"""The tables `scalar` and `trial`, and `visualprof.open(path).scalars`: the values of the samples of run data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import visualprof
from tests.conftest import SAMPLES
from visualprof.capture import LogWriter
from visualprof.cli import main
from visualprof.errors import NotFound

pytest.importorskip("duckdb")
pytest.importorskip("pandas")

RUN_DATA = Path(__file__).parents[1] / "fixtures" / "run_data" / "tensorboard"
EXPECTED = json.loads((RUN_DATA / "expected.json").read_text())


def test_scalars_are_a_frame() -> None:
    frame = visualprof.open(RUN_DATA / "restart").scalars
    assert list(frame.columns) == ["tag", "run", "step", "wall_time_s", "value"]
    assert [list(pair) for pair in zip(frame.step, frame.value, strict=True)] == EXPECTED["restart"]["x"]
    assert set(frame.tag) == {"x"}
    assert set(frame.run) == {"."}
    assert frame.wall_time_s[1] == 1_800_000_000.25


def test_scalars_are_rows_in_sql() -> None:
    opened = visualprof.open(RUN_DATA / "tf2")
    losses = opened.sql("SELECT run, step, value FROM scalar WHERE tag = 'loss' ORDER BY step").rows
    assert losses == [("train", step, value) for step, value in enumerate(EXPECTED["tf2"]["scalars"]["loss"])]
    assert opened.sql("SELECT count(*) FROM kernel").rows == [(0,)]


def test_values_that_are_not_finite() -> None:
    rows = visualprof.open(RUN_DATA / "odd").sql("SELECT step, value FROM scalar WHERE tag = 'x' AND step < 4").rows
    assert rows == [(0, 1.0), (1, None), (2, float("inf")), (3, 3.5)]


def test_scalars_are_next_to_the_recording_of_their_run(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz", tmp_path)
    for path in (RUN_DATA / "two_files").iterdir():
        shutil.copy(path, tmp_path)
    opened = visualprof.open(tmp_path)
    assert len(opened.scalars) == len(EXPECTED["two_files"]["a"]) + len(EXPECTED["two_files"]["b"])
    assert len(opened.kernels) > 0


def test_recordings_without_run_data_have_no_rows() -> None:
    opened = visualprof.open(SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz")
    assert len(opened.scalars) == 0
    assert opened.sql("SELECT * FROM scalar").rows == []


def test_trials_are_rows(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a") as writer:
        writer.add_scalar("loss", 0.25, 10)
        writer.add_hparams({"lr": 0.1, "amp": True, "name": "adam"}, ["loss"])
    rows = (
        visualprof.open(tmp_path / "a")
        .sql("SELECT run, status, kind, name, number, text FROM trial ORDER BY name")
        .rows
    )
    assert rows == [
        (".", "success", "parameter", "amp", None, "true"),
        (".", "success", "metric", "loss", 0.25, None),
        (".", "success", "parameter", "lr", 0.1, None),
        (".", "success", "parameter", "name", None, "adam"),
    ]


def test_an_event_file_is_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (RUN_DATA / "zeros").iterdir()
    assert main(["query", str(path), "SELECT count(*) AS n FROM scalar", "--format", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["n", "5"]


def test_a_folder_with_neither_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no profile in"):
        visualprof.open(tmp_path).sql("SELECT 1")
