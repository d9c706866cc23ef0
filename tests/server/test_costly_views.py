"""Views of files that are costly to compute: the same answers, with limits, and without delaying other requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from sites import MakeSite, Site

from tests.conftest import ROOT
from tests.server_settings import server_settings
from visualprof.reader.child import Limits
from visualprof.reader.logdir.trace_tasks import LIMITS, TraceTasks
from visualprof.server.app import create_app


def many_threads(count: int) -> str:
    """A file of `count` threads with an operator that launches a kernel each, and allocations."""
    events: list[dict[str, Any]] = []
    for i in range(count):
        thread = {"ph": "X", "pid": 1, "tid": i + 1}
        kernel = "ncclDevKernel_AllReduce_Sum_f32" if i % 5 == 0 else f"kernel{i % 5}"
        events += [
            thread | {"cat": "cpu_op", "name": "aten::add", "ts": 10 * i, "dur": 5},
            thread
            | {
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": 10 * i + 1,
                "dur": 2,
                "args": {"correlation": i + 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": kernel,
                "pid": 0,
                "tid": 7,
                "ts": 10 * i + 4,
                "dur": 3,
                "args": {"device": 0, "stream": 7, "correlation": i + 1},
            },
        ]
    for i in range(20):
        args = {"Device Type": 1, "Device Id": 0, "Addr": 4096 + i, "Bytes": 512, "Total Allocated": 512 * (i + 1)}
        events.append(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "pid": 1,
                "tid": 1,
                "ts": 20 * i,
                "args": args | {"Total Reserved": 1 << 20},
            }
        )
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def get(client: FlaskClient, path: str) -> Any:
    """Return the response of the API, as soon as it is computed."""
    deadline = time.monotonic() + 60
    while (response := client.get(f"/api/v1/{path}")).status_code == 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    return response


@pytest.fixture
def with_pool(make_site: MakeSite) -> Iterator[Any]:
    """Return a client of a second application over the same folder, whose costly views run in a pool."""
    opened: list[TraceTasks] = []

    def start(site: Site, limits: Limits = LIMITS) -> FlaskClient:
        for path in site.logdir.cache.folder.glob("*.vpanswer"):
            path.unlink()
        site.logdir.tasks = TraceTasks(site.logdir.cache, limits)
        opened.append(site.logdir.tasks)
        return create_app(site.logdir, server_settings(dist=Path("dist"))).test_client()

    yield start
    for tasks in opened:
        tasks.close()


@pytest.mark.slow
def test_costly_views_have_the_same_answers_as_in_the_server(make_site: MakeSite, with_pool: Any) -> None:
    site = make_site()
    site.write("a/trace.json", many_threads(1000))
    site.write("b/trace.json", many_threads(1100))
    views = site.client.get("/api/v1/runs").get_json()["runs"][0]["workers"][0]["spans"][0]["views"]
    assert {"memory", "findings", "distributed", "flame"} < set(views)
    paths = [f"{route}/{name}?run=a" for name in views if name != "trace" for route in ("view", "charts")]
    paths += [f"diff?run=a&base=b&view={name}" for name in ("overview", "operator", "kernel")]
    paths += ["timeline/meta?run=a", "timeline/tile?run=a&group=0&level=4&index=0", "timeline/event?run=a&event=5"]
    paths += ["timeline/path?run=a&level=4&index=0", "timeline/window?run=a", "timeline/alignment?run=a"]
    paths += ["view/memory?run=a&table=events&search.operator=add", "view/memory?run=a&table=events&sort=address"]
    paths += ["view/operator?run=a&step=none", "view/flame?run=a&tree=nothing", "view/kernel?run=a&step_range=aten*"]
    plain = [(path, response.status_code, response.data) for path in paths for response in [get(site.client, path)]]
    client = with_pool(site)
    pooled = [(path, response.status_code, response.data) for path in paths for response in [get(client, path)]]
    for expected, answer in zip(plain, pooled, strict=True):
        assert answer == expected


def test_a_view_over_its_limit_is_an_error_that_names_the_view(make_site: MakeSite, with_pool: Any) -> None:
    site = make_site()
    site.write("a/trace.json", many_threads(1000))
    client = with_pool(site, Limits(0.01, 2 << 30, 16, LIMITS.hint, "compute"))
    response = get(client, "view/findings?run=a")
    assert response.status_code == 422
    assert response.get_json()["error"] == "trace.json (findings): computing this takes over 0.01 s"
    assert "visualprof view" in response.get_json()["hint"]


@pytest.mark.slow
def test_other_requests_are_answered_while_a_view_is_computed(make_site: MakeSite, with_pool: Any) -> None:
    site = make_site()
    site.write("a/trace.json", many_threads(4000))
    client = with_pool(site)
    slow: list[Any] = []
    thread = threading.Thread(target=lambda: slow.append(get(client.application.test_client(), "view/findings?run=a")))
    thread.start()
    times, start = list[float](), time.monotonic()
    while thread.is_alive():
        began = time.monotonic()
        assert client.get("/api/v1/runs").status_code == 200
        times.append(time.monotonic() - began)
        time.sleep(0.01)
    thread.join()
    assert slow[0].status_code == 200
    assert len(times) > 10
    # Requests that waited for the view would take about as long as it.
    assert sorted(times)[int(0.95 * len(times))] < (time.monotonic() - start) / 5, times


def test_the_api_computes_from_traces_in_one_place() -> None:
    """Other modules of the API call no function that computes a view, and load a trace only to read from it."""
    found = {
        path.name
        for path in (ROOT / "visualprof" / "server").rglob("*.py")
        if any(call in path.read_text() for call in (".compute(trace", "load_or_compute_part(", "map_worker("))
    }
    assert found == {"parse.py", "trace_requests.py"}
