"""`visualprof index`: reading ahead, by processes and by clusters."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.kineto_file import write
from tests.clusters import require
from tests.remote.fleet_sites import cluster
from visualprof.cli import main
from visualprof.reader.cache import Cache


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six ranks of a run."""
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "runs" / "train"
    folder.mkdir(parents=True)
    for rank in range(6):
        write(folder / f"rank{rank}.json", 200, rank, 6, 40)
    return folder.parent


def index(*arguments: object, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    status = main(["index", *map(str, arguments), "--format", "json"])
    return {"status": status} | json.loads(capsys.readouterr().out)


def add_ranks(runs: Path, events: int) -> None:
    """Ranks 6 to 59."""
    for rank in range(6, 60):
        write(runs / "train" / f"rank{rank}.json", events, rank, 60, 40)


def columns(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.vptrace")}


@pytest.mark.slow
def test_indexed_files_are_not_read_again(ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = index(ranks, capsys=capsys)
    assert (first["status"], first["files"], first["known"], first["read"], first["failed"]) == (0, 6, 0, 6, {})
    write(ranks / "train" / "rank6.json", 200, 6, 7, 40)
    again = index(ranks, capsys=capsys)
    assert (again["files"], again["known"], again["read"]) == (7, 6, 1)


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(
    ranks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ranks / "train" / "rank9.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": ?}]}')
    answer = index(ranks, capsys=capsys)
    assert (answer["status"], answer["read"]) == (1, 6)
    assert list(answer["failed"]) == ["train/rank9.json"]
    assert main(["index", str(ranks)]) == 1
    assert "train/rank9.json: " in capsys.readouterr().out


def test_files_beyond_the_cache_size_are_counted(
    ranks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_MAX_BYTES", "40000")
    answer = index(ranks, "--workers", 1, capsys=capsys)
    assert answer["status"] == 1
    assert 0 < answer["not_kept"] <= 6


def test_an_unknown_engine_is_refused(ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(ranks), "--engine", "spark"]) == 2
    assert "no engine 'spark'" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_cluster_keeps_the_same_bytes(
    engine: str, ranks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require(engine)
    index(ranks, capsys=capsys)
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "other"))
    answer = index(ranks, "--engine", engine, capsys=capsys)
    assert (answer["status"], answer["read"], answer["not_kept"]) == (0, 6, 0)
    assert columns(tmp_path / "cache") == columns(tmp_path / "other")
    assert Cache.default().folder == tmp_path / "other"


@pytest.mark.long
@pytest.mark.slow
def test_workers_that_are_killed_change_nothing(
    ranks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require("ray")
    add_ranks(ranks, 5000)
    index(ranks, capsys=capsys)
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "other"))
    killed: list[int] = []
    event = threading.Event()

    def kill() -> None:
        chance = random.Random(7)
        while not event.wait(0.1) and len(killed) < 3:
            workers = [
                child
                for child in psutil.Process().children(recursive=True)
                if _title(child).startswith("ray::_run_function")
            ]
            if workers:
                victim = chance.choice(workers)
                victim.kill()
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    began = time.monotonic()
    answer = index(ranks, "--engine", "ray", capsys=capsys)
    event.set()
    killer.join()
    assert killed
    assert answer["lost_batches"] > 0
    assert (answer["status"], answer["read"]) == (0, 60), answer
    assert columns(tmp_path / "cache") == columns(tmp_path / "other")
    assert time.monotonic() - began < 120


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.long
@pytest.mark.slow
def test_a_node_that_is_lost_changes_nothing(
    ranks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require("ray")
    add_ranks(ranks, 10_000)
    index(ranks, capsys=capsys)
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "other"))
    kept_at_loss: list[int] = []
    with cluster({}, {}) as cluster_engine:
        monkeypatch.setenv("RAY_ADDRESS", cluster_engine.address)

        def lose() -> None:
            until = time.monotonic() + 60
            while time.monotonic() < until and len(columns(tmp_path / "other")) < 5:
                time.sleep(0.02)
            kept_at_loss.append(len(columns(tmp_path / "other")))
            cluster_engine.remove_node(cluster_engine.worker_nodes.copy().pop(), allow_graceful=False)

        loser = threading.Thread(target=lose)
        loser.start()
        answer = index(ranks, "--engine", "ray", capsys=capsys)
        loser.join()
    assert 5 <= kept_at_loss[0] < 60
    assert (answer["status"], answer["read"]) == (0, 60), answer
    assert columns(tmp_path / "cache") == columns(tmp_path / "other")
