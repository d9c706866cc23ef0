"""A task that runs is a report of the points that have come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queue_sites import FAILED, NoParser, member, opened, point, request, result

from tests.server_settings import server_settings
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.remote.protocol import Lease, Sweep
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.leases import TaskHeartbeat, TaskReport
from visualprof.server.app import create_app


class Site:
    """A queue, its log directory and the Results page's requests."""

    def __init__(self, folder: Path, remote: JobService) -> None:
        self.remote = remote
        self.queue: JobServices = remote.open()
        self.logdir = LogDirectory([remote.root.path], NoParser(), Cache(folder / "cache"), events=False)
        self.client = create_app(self.logdir, server_settings(dist=folder), remote).test_client()
        self.agent: Agent = member(self.queue, "gpu-box")

    def take(self) -> Lease:
        self.queue.jobs.submit(request("k", name="net", sweep=Sweep("n", [1, 4])))
        lease = self.queue.leases.lease(self.agent, ["cpu"], 0)
        assert lease
        return lease

    def point(self, lease: Lease, batch: int) -> None:
        values_by_name = {
            **point(batch),
            "n": 9,
            "samples_per_s": 10.0 * batch,
            "end_ns": 1000 + batch,
            "trusted": [50],
        }
        self.queue.leases.save_point(self.agent, lease.task, lease.lease, batch, values_by_name)

    def get(self, path: str = "", **query: Any) -> Any:
        answer = self.client.get(f"/api/v1/evaluation{path}", query_string=query)
        assert answer.status_code == 200, answer.text
        return answer.json


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with opened(tmp_path / "runs") as remote:
        new_site = Site(tmp_path, remote)
        yield new_site
        new_site.logdir.close()


def test_points_are_drawn_as_they_come(site: Site) -> None:
    assert site.get()["reports"] == []
    lease = site.take()
    first = site.get()
    (row,) = first["reports"]
    assert (row["id"], row["state"], row["points"], row["name"]) == (lease.run, "running", 0, "net")
    assert (row["agent"], row["backend"], row["version"], row["device"]) == ("gpu-box", "onnxruntime", "1.2", "cpu")
    for batch in (1, 4):
        site.point(lease, batch)
    second = site.get()
    (row,) = second["reports"]
    assert (row["points"], row["best_batch"], row["best_samples_per_s"], row["finished_ns"]) == (2, 4, 40.0, 1004)
    assert second["revision"] > first["revision"]
    answer = site.get("/overlay", reports=lease.run)
    assert answer["table"]["samples_per_s"] == [10.0, 40.0]
    assert set(answer["charts"]) >= {"throughput", "latency"}
    facts = site.get("/point", report=lease.run, batch=4)["facts"]
    assert (facts["n"], facts["state"], facts["runs_shown"]) == (9, "running", 0)


def test_a_heartbeat_is_not_a_change(site: Site) -> None:
    lease = site.take()
    site.point(lease, 1)
    before = site.get()["revision"]
    jobs = site.queue.jobs.revision()
    site.queue.leases.heartbeat(site.agent, [TaskHeartbeat(lease.task, lease.lease, "measuring", 0.5)])
    assert site.queue.jobs.revision() > jobs
    assert site.get()["revision"] == before


def test_the_result_takes_the_place_without_a_gap(site: Site) -> None:
    lease = site.take()
    site.point(lease, 1)
    assert [row["state"] for row in site.get()["reports"]] == ["running"]
    folder = site.remote.root.path / lease.run
    with site.queue.database.write() as connection:
        site.queue.leases.finish(
            connection, site.agent, lease.task, lease.lease, TaskReport("succeeded"), run=lease.run, points={}
        )
        folder.mkdir(parents=True)
        for name, data in result(lease.job, lease.task).items():
            (folder / name).write_bytes(data)
    ids = [(row["id"], row["state"], row["points"]) for row in site.get()["reports"]]
    assert ids == [(lease.run, "succeeded", 1)]
    site.logdir.rescan()
    assert [row["name"] for row in site.get()["reports"]] == ["net.onnx"], "as the folder says it"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    site.logdir.rescan()
    assert site.get()["reports"] == [], "what was deleted does not come back"


def test_a_task_without_reports_leaves_no_partial_report(site: Site) -> None:
    lease = site.take()
    assert len(site.get()["reports"]) == 1
    site.queue.finalizer.finish(site.agent, lease.task, lease.lease, FAILED)
    assert site.get()["reports"] == []
