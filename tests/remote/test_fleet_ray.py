"""A fleet on a Ray cluster, with a real server between clients and workers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import require
from tests.remote.fleet_sites import FleetSite, cluster, fleet_site, workers
from tests.remote.queue_sites import ROOT
from visualprof.remote.protocol import Spec

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    require("ray")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    with cluster({"labels": {"zone": "a"}}, {"labels": {"zone": "b"}}) as new_fleet:
        yield new_fleet


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, ray: Any) -> Iterator[FleetSite]:
    with fleet_site(tmp_path_factory.mktemp("fleet")) as new_fleet:
        new_fleet.start_agent("--fleet", "ray", RAY_ADDRESS=ray.address)
        new_fleet.ready(2)
        yield new_fleet


def cancel(site: FleetSite, *jobs: str) -> None:
    for job in jobs:
        site.http("POST", f"/api/v1/jobs/{job}/cancel")
    for job in jobs:
        assert site.ended(job)["state"] == "cancelled"


def test_a_node_measures_and_delivers(site: FleetSite) -> None:
    nodes = site.ready(2)
    assert {node["labels"]["zone"] for node in nodes} == {"a", "b"}
    fleet = site.fleet()["capabilities"]
    assert (fleet["fleet"], fleet["platform"], fleet["cores"]) == ("ray", "x86", 2)
    task = site.ended(site.submit())
    assert (task["state"], task["attempt"], task["warnings"]) == ("succeeded", 1, []), task
    folder = site.server.folder / task["run"]
    assert [json.loads(line)["batch"] for line in (folder / "points.jsonl").read_text().splitlines()] == [1, 2]
    assert json.loads((folder / "env.json").read_text())["agent"].removeprefix("fleet/") in {n["name"] for n in nodes}


def test_each_device_has_one_task_and_canceling_is_prompt(site: FleetSite) -> None:
    first = site.submit(20.0)
    running = site.in_phase(first, "measuring")["id"]
    second, third = site.submit(20.0), site.submit()
    at_work = site.until(lambda: [n for n in site.ready(2) if n["tasks"]] if len(site.busy()) == 2 else None)
    assert running in [task for node in at_work for task in node["tasks"]]
    time.sleep(1)
    assert site.tasks(third)[0]["state"] == "waiting"  # no device is free
    began = time.monotonic()
    cancel(site, first)
    assert time.monotonic() - began < 5
    cancel(site, second)
    assert site.ended(third)["state"] == "succeeded"
    site.until(lambda: not workers())


def test_specs_of_a_job_share_a_node_or_a_warning_is_given(site: FleetSite) -> None:
    job = site.submit(0.5, Spec("a", "onnxruntime"), Spec("b", "onnxruntime"))
    site.until(lambda: all(task["state"] == "succeeded" for task in site.tasks(job)))
    tasks = site.tasks(job)
    agents = {json.loads((site.server.folder / task["run"] / "env.json").read_text())["agent"] for task in tasks}
    told = [text for task in tasks for text in task["warnings"] if "they do not share a machine" in text]
    assert len(agents) == 1 + len(told), (agents, told)


def test_a_cluster_is_reached_at_an_address() -> None:
    require("ray")
    pytest.importorskip("grpc")
    command = [sys.executable, "-m", "tests.remote.ray_client"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    document = json.loads(done.stdout.splitlines()[-1])
    assert document == {"kinds": ["small"], "ends": [["failed", "JSONDecodeError"]] * 2}


def test_tasks_of_a_lost_node_run_on_another_with_a_warning(site: FleetSite, ray: Any) -> None:
    lost = site.submit(4.0)
    identity = site.in_phase(lost, "measuring")["id"]
    name = site.until(lambda: next((n["name"] for n in site.ready(2) if n["tasks"] == [identity]), ""))
    ray.remove_node(next(n for n in ray.worker_nodes if n.node_id[:6] == name[-6:]), allow_graceful=False)
    task = site.ended(lost, 90)
    assert (task["state"], task["attempt"]) == ("succeeded", 2), task
    assert task["warnings"][0].startswith("measured again from the beginning (attempt 2)"), task
    assert name not in {node["name"] for node in site.ready(1)}
