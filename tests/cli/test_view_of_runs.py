"""`visualprof view` of a run: its workers' parts are kept, and no trace is opened for them again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from visualprof.cli import main
from visualprof.cli._worker_files import WorkerFile

RANKS = [f"rank{place}.pt.trace.json.gz" for place in (0, 1)]


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    folder.mkdir()
    for name, path in zip(RANKS, sorted((SAMPLES / "synthetic-4gpu").glob("*.gz"))[1:3], strict=True):
        shutil.copy(path, folder / name)
    return folder


def asked(folder: Path, capfd: pytest.CaptureFixture[str], *more: str, view: str = "ranks") -> tuple[str, str]:
    assert main(["view", view, str(folder), "--format", "json", *more]) == 0
    out, err = capfd.readouterr()
    return out, err


@pytest.mark.slow
def test_rank_summaries_are_cached(
    ranks: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gemm = "--param=change=kernel[name~gemm]*0.5"
    first, other, distributed = asked(ranks, capfd), asked(ranks, capfd, gemm), asked(ranks, capfd, view="distributed")
    monkeypatch.setattr("visualprof.reader.cache.open_trace", lambda *_, **__: pytest.fail("opened again"))
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", lambda *_: pytest.fail("opened again"))
    assert asked(ranks, capfd) == first
    assert asked(ranks, capfd, gemm) == other
    assert asked(ranks, capfd, view="distributed") == distributed
    assert json.loads(other[0])["step"]["gain_ns"] > json.loads(first[0])["step"]["gain_ns"] == 0


def test_a_deleted_rank_is_reported_and_skipped(
    ranks: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visualprof.cli.view.files_of", lambda *_: [(n, [WorkerFile("", ranks / n)]) for n in RANKS])
    (ranks / RANKS[1]).unlink()
    out, err = asked(ranks, capfd, view="distributed")
    assert err.count("left out") == 1
    assert RANKS[1] in err
    assert json.loads(out)["ranks"]["columns"]["worker"] == [RANKS[0]]


@pytest.mark.slow
def test_an_unreadable_rank_is_reported_and_skipped(ranks: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copy(SAMPLES / "synthetic-4gpu" / "rank3.pt.trace.json.gz", ranks / "rank2.pt.trace.json.gz")
    (ranks / "rank1.pt.trace.json.gz").write_bytes(b"\x1f\x8bnot")
    out, err = asked(ranks, capfd, view="distributed")
    assert "left out" in err
    assert "rank1" in err
    assert set(json.loads(out)["ranks"]["columns"]["worker"]) == {"rank0.pt.trace.json.gz", "rank2.pt.trace.json.gz"}


def test_an_error_names_the_worker_that_has_data_for_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    place = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    operator = {**place, "cat": "cpu_op", "name": "aten::mm"}
    kernel = {**place, "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    for rank, event in enumerate((operator, operator, kernel)):
        text = json.dumps({"schemaVersion": 1, "traceEvents": [event]})
        (tmp_path / f"rank{rank}.json").write_text(text)
    assert main(["view", "kernel", str(tmp_path)]) == 2
    assert "Hint: The worker rank2 has it: add --worker rank2" in capfd.readouterr().err
    (tmp_path / "rank2.json").write_text("{")
    assert main(["view", "kernel", str(tmp_path)]) == 2
    assert "Hint: It has data for: overview" in capfd.readouterr().err
