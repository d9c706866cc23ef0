"""Runs of one name over time, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import until
from tests.live_files import heartbeat
from tests.results import write_result
from tests.server_settings import server_settings
from tests.views.test_trend import recording
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server.app import create_app

from sites import InlineParser  # isort: skip

DAY_S = 86_400


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Any]:
    """Asks a server over seven nights, 20 % slower from the fifth on, and a run that stands alone."""
    folder = tmp_path / "runs"
    for night in range(7):
        path = folder / f"net-{night}" / "rank0.pt.trace.json"
        recording(path, (1000 + night % 2) * (1.2 if night >= 4 else 1), 1_793_000_000 + night * DAY_S)
    recording(folder / "alone" / "rank0.pt.trace.json", 1000, 1_793_000_000)
    cache = Cache(tmp_path / "cache")
    logdir = LogDirectory([folder], InlineParser(cache), cache, events=False, settle_s=0)
    client = create_app(logdir, server_settings(dist=tmp_path / "dist")).test_client()
    logdir.rescan()
    logdir.rescan()

    def get(status: int = 200, **query: str) -> Any:
        answer = client.get("/api/v1/trend", query_string=query)
        assert answer.status_code == status, answer.text
        return answer.json

    yield get, folder, logdir
    logdir.close()


def test_series_come_as_recordings_are_looked_at(asked: Any) -> None:
    get, _, _ = asked
    first = get()
    assert (first["waiting"], first["alone"], first["charts"]) == (7, 1, {})
    until(lambda: get()["waiting"] == 0, 10)
    answer = get()
    rows = answer["series"]["columns"]
    assert (rows["series"], rows["change"], rows["changed_run"]) == (["net-*"], ["worse"], ["net-4"])
    assert (answer["shown"], answer["metric"]) == ("net-*", "step.total")
    assert answer["measurements"]["columns"]["run"] == [f"net-{night}" for night in range(7)]
    assert [row["name"] for row in answer["charts"]["trend"]["series"]][:2] == ["@t:trend.measured", "@t:trend.worse"]
    assert get(metric="memory.peak")["series"]["columns"]["change"] == ["none"]
    assert get(400, metric="nothing")["error"] == "there is no figure 'nothing'"
    assert get(series="gone")["shown"] == "net-*"


@pytest.mark.slow
def test_a_run_that_came_and_a_report_are_in_the_next_answer(asked: Any) -> None:
    get, folder, logdir = asked
    until(lambda: get()["waiting"] == 0, 10)
    recording(folder / "net-8" / "rank0.pt.trace.json", 1200, 1_793_000_000 + 8 * DAY_S)
    for job in ("j1", "j2"):
        write_result(folder / job / "ort", {1: [100_000] * 100})
    logdir.rescan()
    logdir.rescan()
    until(lambda: get()["series"]["columns"]["measurements"] == [8], 10)
    answer = get(metric="evaluation.p50")
    assert answer["series"]["columns"]["of"] == ["reports"]
    assert answer["measurements"]["columns"]["batch"] == [1, 1]


def test_a_run_that_is_only_live_is_not_followed(asked: Any) -> None:
    get, folder, logdir = asked
    heartbeat(folder / "net-9", 0)
    logdir.rescan()
    until(lambda: get()["waiting"] == 0, 10)
    assert "net-9" in [run.id for run in logdir.listing().runs]
    answer = get()
    assert (answer["series"]["columns"]["measurements"], answer["alone"]) == ([7], 1)
