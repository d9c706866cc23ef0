"""The main numbers of runs for the list of runs, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import until
from tests.server_settings import server_settings
from tests.views.test_trend import recording
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server.api.headlines import MAX_RUNS
from visualprof.server.app import create_app

from sites import InlineParser  # isort: skip


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A server over three runs; the log directory is parsed at once."""
    folder = tmp_path / "runs"
    for name, step_us in (("fast", 1000), ("slow", 3000), ("other, with a comma", 2000)):
        recording(folder / name / "rank0.pt.trace.json", step_us, 1_793_000_000)
    cache = Cache(tmp_path / "cache")
    logdir = LogDirectory([folder], InlineParser(cache), cache, events=False, settle_s=0)
    client = create_app(logdir, server_settings(dist=tmp_path / "dist")).test_client()
    logdir.rescan()
    logdir.rescan()
    yield client
    logdir.close()


def ask(client: Any, *runs: str) -> Any:
    return client.get("/api/v1/runs/headlines", query_string={"runs": "\n".join(runs)})


def test_headlines_come_as_they_are_computed_and_equal_those_of_the_overview(client: Any) -> None:
    names = ("fast", "other, with a comma")
    first = ask(client, *names).json
    assert first["waiting"] + len(first["headlines"]) == 2
    until(lambda: ask(client, *names).json["waiting"] == 0, 10)
    headlines = ask(client, *names).json["headlines"]
    assert headlines.keys() == set(names)
    for name in names:
        overview = client.get("/api/v1/view/overview", query_string={"run": name}).json
        assert headlines[name]["step_median_ns"] == overview["headline"]["step_median_ns"]
        assert headlines[name]["utilization"] is None
        assert headlines[name]["devices"] == [overview["environment"]["device_type"]]


def test_unknown_runs_are_left_out(client: Any) -> None:
    assert ask(client, "nowhere").json == {"headlines": {}, "waiting": 0}


def test_too_many_runs_are_rejected(client: Any) -> None:
    answer = ask(client, *(f"run-{number}" for number in range(MAX_RUNS + 1)))
    assert (answer.status_code, answer.json["error"]) == (400, "61 runs were requested; at most 60 are allowed")
