"""Hostile agents and pages, damaged and missing databases, and clean-up."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queue_sites import (
    MODEL,
    FakeAgent,
    Http,
    Refused,
    member,
    opened,
    point,
    request,
    result,
    served,
    submitted,
    token_of,
    upload,
)
from sqlalchemy import select, update

from tests.manual_clock import ManualClock
from visualprof.remote.protocol import Lease
from visualprof.remote.queue.check.limits import MAX_VALUES
from visualprof.remote.queue.errors import DatabaseUnavailable, InvalidResult, PayloadTooLarge
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.store.tables import blobs, tasks
from visualprof.remote.queue.tasks import maintenance as upkeep_module
from visualprof.remote.queue.tasks.maintenance import MaintenanceThread, remove_leftovers
from visualprof.server.serve import Server

WEEK_S = 7 * 24 * 3600

pytestmark = pytest.mark.slow


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        yield remote


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    with served(tmp_path / "runs") as server:
        yield server


def leased(remote: JobService, key: str = "k") -> tuple[JobServices, Agent, Lease]:
    queue = remote.open()
    queue.jobs.submit(request(key))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    return queue, agent, lease


def status(http: Http, method: str, path: str, body: object = None, **headers: str) -> int:
    try:
        http(method, path, body, **headers)
    except Refused as refusal:
        return refusal.status
    return 200


# --- hostile agents ---


def test_points_with_invalid_starts_do_not_hide_their_job(remote: JobService) -> None:
    queue, agent, lease = leased(remote)
    for batch, start in enumerate(("soon", {"a": 1}, 5, None)):
        queue.leases.save_point(agent, lease.task, lease.lease, batch, {**point(batch), "start_ns": start})
    [points_found] = queue.jobs.points(queue.jobs.get(lease.job)).values()
    assert len(points_found) == 4
    assert points_found[-1]["start_ns"] == 5


def test_a_task_has_no_more_points_than_a_sweep_has_sizes(remote: JobService) -> None:
    queue, agent, lease = leased(remote)
    for batch in range(MAX_VALUES):
        queue.leases.save_point(agent, lease.task, lease.lease, batch, point(batch))
    with pytest.raises(PayloadTooLarge):
        queue.leases.save_point(agent, lease.task, lease.lease, MAX_VALUES, point(MAX_VALUES))
    queue.leases.save_point(agent, lease.task, lease.lease, 0, point(0))  # replaces one


@pytest.mark.parametrize("name", ["points.jsonl/net.onnx", "deep", "POINTS.jsonl", "../net.onnx"])
def test_a_model_that_would_take_the_place_of_a_files_is_refused(site: Server, name: str) -> None:
    agent = FakeAgent(site.url, token_of(site.job_service.root.path)).register()
    agent.http("POST", "/api/v1/jobs", submitted("k"))
    lease = agent.lease()
    assert lease
    files = result(lease["job"], lease["task"], **{"deep/a.json": b"{}"})
    head = json.loads(files["job.json"])
    head["model"]["file"] = name
    files["job.json"] = json.dumps(head).encode()
    agent.send(lease, files)
    with pytest.raises(Refused) as refusal:
        agent.finish(lease, files=list(files))
    assert refusal.value.status == InvalidResult.status
    assert not (site.job_service.root.path / lease["run"]).exists()


# --- folders of others ---


@pytest.mark.parametrize("theirs", [{"notes.txt": b"mine"}, {"job.json": b'{"job": "another"}'}, {"job.json": b"[["}])
def test_a_result_does_not_replace_a_folder_of_another_user(site: Server, theirs: dict[str, bytes]) -> None:
    root = site.job_service.root.path
    agent = FakeAgent(site.url, token_of(root)).register()
    agent.http("POST", "/api/v1/jobs", submitted("k"))
    lease = agent.lease()
    assert lease
    folder = root / lease["run"]
    folder.mkdir(parents=True)
    for name, content in theirs.items():
        (folder / name).write_bytes(content)
    agent.succeed(lease)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == theirs
    [task] = agent.http("GET", f"/api/v1/jobs/{lease['job']}")["job"]["tasks"]
    assert task["run"] == f"{lease['run']}-2"
    assert (root / task["run"] / "net.onnx").read_bytes() == MODEL


def test_a_server_that_ends_between_a_rename_and_its_note_publishes_again(
    site: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, queue = site.job_service.root.path, site.job_service.open()
    agent = FakeAgent(site.url, token_of(root)).register()
    agent.http("POST", "/api/v1/jobs", submitted("k"))
    lease = agent.lease()
    assert lease
    publish = queue.results.publish

    def ends(folder: Path, run: str) -> None:
        publish(folder, run)
        raise RuntimeError("it ends here")

    monkeypatch.setattr(type(queue.results), "publish", lambda _, folder, run: ends(folder, run))
    with pytest.raises(Refused):
        agent.succeed(lease)
    assert (root / lease["run"]).is_dir()
    monkeypatch.undo()
    agent.succeed(lease)
    [task] = agent.http("GET", f"/api/v1/jobs/{lease['job']}")["job"]["tasks"]
    assert (task["state"], task["run"]) == ("succeeded", lease["run"])
    assert [path.name for path in (root / lease["run"]).parent.iterdir()] == ["ort"]
    assert list((root / ".visualprof" / "results.partial").iterdir()) == []


# --- hostile pages ---


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://evil.example:80", "https://", "http://[::2]"]
)
def test_a_page_of_another_site_cannot_submit(site: Server, origin: str) -> None:
    http = Http(site.url)
    body = json.dumps(submitted("k")).encode()
    assert status(http, "POST", "/api/v1/jobs", body, Origin=origin, Content_Type="text/plain") == 403
    assert status(http, "POST", "/api/v1/uploads?name=a.onnx", MODEL, Origin=origin) == 403
    http.close()


@pytest.mark.parametrize("headers", [{}, {"Sec_Fetch_Site": "same-origin"}])
def test_the_pages_of_the_server_may_submit(site: Server, headers: dict[str, str]) -> None:
    http = Http(site.url)
    assert status(http, "POST", "/api/v1/jobs", submitted("k"), Origin=site.url.rstrip("/"), **headers) == 200
    http.close()


def test_a_page_of_the_server_may_submit_without_an_origin(site: Server) -> None:
    http = Http(site.url)
    headers = {"Origin": "null", "Sec_Fetch_Site": "same-origin"}
    assert status(http, "POST", "/api/v1/jobs", submitted("k"), **headers) == 200
    assert status(http, "POST", "/api/v1/jobs", submitted("l"), **headers | {"Sec_Fetch_Site": "cross-site"}) == 403
    http.close()


def test_a_page_behind_a_proxy_that_is_allowed_may_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    with served(tmp_path / "runs", allowed_hosts=("prof.example",)) as server:
        http = Http(server.url)
        assert status(http, "POST", "/api/v1/jobs", submitted("k"), Origin="https://prof.example") == 200
        http.close()


# --- the database ---


def test_a_database_damaged_during_use_is_named(site: Server) -> None:
    http = Http(site.url)
    file = site.job_service.folder / "jobs.sqlite"
    site.job_service.open().database.engine.dispose()  # nothing of it is in memory
    for name in ("jobs.sqlite-wal", "jobs.sqlite-shm"):
        (site.job_service.folder / name).unlink(missing_ok=True)
    with file.open("r+b") as out:
        out.write(os.urandom(file.stat().st_size))
    with pytest.raises(Refused) as refusal:
        http("POST", "/api/v1/jobs", submitted("k"))
    assert refusal.value.status == DatabaseUnavailable.status
    # SQLite says "malformed" when a thread had the schema in memory and met a damaged page first.
    assert re.search("file is not a database|disk image is malformed", refusal.value.body["error"])
    assert "move jobs.sqlite away" in refusal.value.body["hint"]
    assert [status(http, "GET", f"/api/v1/{path}") for path in ("runs", "models", "evaluation")] == [200] * 3
    http.close()


def test_the_queue_restarts_after_its_folder_was_deleted(site: Server) -> None:
    http, root = Http(site.url), site.job_service.root.path
    agent = FakeAgent(site.url, token_of(root)).register()
    http("POST", "/api/v1/jobs", submitted("k"))
    assert len(http("GET", "/api/v1/jobs")["jobs"]) == 1
    shutil.rmtree(root / ".visualprof")
    assert http("GET", "/api/v1/jobs")["jobs"] == []
    assert not (root / ".visualprof").exists()
    with pytest.raises(Refused) as refusal:
        agent.lease()
    assert refusal.value.status == 401
    upload(site.job_service)
    agent.register()  # with the token that it has
    again = http("POST", "/api/v1/jobs", submitted("again"))["job"]["id"]
    assert [job["id"] for job in http("GET", "/api/v1/jobs")["jobs"]] == [again]
    lease = agent.lease()
    assert lease
    agent.succeed(lease)
    assert [job["state"] for job in http("GET", "/api/v1/jobs")["jobs"]] == ["succeeded"]
    http.close()


# --- the clock ---


def jumped(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The clock is set."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + int(seconds * 1e9))


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_setting_the_clock_neither_ends_a_task_nor_keeps_a_lost_task(tmp_path: Path, seconds: float) -> None:
    clock = ManualClock()
    with opened(tmp_path / "runs", clock=clock) as remote:
        queue = remote.open()
        assert queue.maintenance
        queue.maintenance.close()
        upkeep = MaintenanceThread(queue.database, queue.notifier, 30, on_ended=lambda _: None)
        _, _, lease = leased(remote)
        before = clock.time_ns()
        clock.set_forward(seconds)
        upkeep.run_once()
        [task] = queue.jobs.get(lease.job).tasks
        assert task.state == "running"
        with queue.database.read() as connection:
            deadline = connection.execute(select(tasks.c.deadline_ns)).scalar_one()
        assert abs(deadline - before - (930 + seconds) * 1e9) < 1e9
        clock.advance(29)
        upkeep.run_once()
        assert queue.jobs.get(lease.job).tasks[0].state == "running"
        clock.advance(2)
        upkeep.run_once()
        assert queue.jobs.get(lease.job).tasks[0].state == "waiting"


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_agents_that_speak_after_the_clock_was_set_are_online(
    remote: JobService, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    queue = remote.open()
    agent = member(queue)
    jumped(monkeypatch, seconds)
    assert not agent.online(remote.intervals.lease_s)
    queue.agents.mark_seen(agent)
    assert queue.agents.list_visible()[0].online(remote.intervals.lease_s)


# --- what is thrown away when ---


def age(remote: JobService, sha256: str, seconds: float) -> Path:
    """Makes an upload that old."""
    path, then = remote.open().blobs.path(sha256), time.time() - seconds
    os.utime(path, (then, then))
    with remote.open().database.write() as connection:
        connection.execute(update(blobs).where(blobs.c.sha256 == sha256).values(kept_ns=int(then * 1e9)))
    return path


def tidied(remote: JobService) -> None:
    queue = remote.open()
    remove_leftovers(queue.database, queue.store, queue.results.partial_folder)


def test_an_unused_upload_is_deleted_after_a_week(remote: JobService) -> None:
    old, young = upload(remote, b"old"), upload(remote, b"young")
    path = age(remote, old, WEEK_S + 60)
    tidied(remote)
    assert not path.exists()
    assert remote.inspection(old) is None
    assert remote.inspection(young)


def test_an_upload_that_a_job_names_stays(remote: JobService) -> None:
    model = request().model.blob
    path = age(remote, model, 99 * WEEK_S)
    remote.open().jobs.submit(request())
    tidied(remote)
    assert path.exists()
    assert remote.inspection(model)


def test_an_old_upload_that_comes_again_stays(remote: JobService) -> None:
    blob = upload(remote, b"old")
    path = age(remote, blob, WEEK_S + 60)
    assert upload(remote, b"old") == blob
    tidied(remote)
    assert path.read_bytes() == b"old"


def test_a_file_that_the_database_does_not_know_goes_after_an_hour(remote: JobService) -> None:
    lost = remote.folder / "blobs" / ("a" * 64)
    lost.write_bytes(b"x")
    tidied(remote)
    assert lost.exists(), "its server may be about to note it"
    os.utime(lost, (0, 0))
    tidied(remote)
    assert not lost.exists()


def test_uploads_of_a_lost_agent_are_deleted_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.remote.queue.tasks.maintenance.CLEAN_UP_INTERVAL_S", 0.2)
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    with served(tmp_path / "runs", lease_s=0.6) as server:
        agent = FakeAgent(server.url, token_of(tmp_path / "runs")).register()
        agent.http("POST", "/api/v1/jobs", submitted("k", retries=0))
        lease = agent.lease()
        assert lease
        agent.send(lease, {"status.json": b"{}"})
        incoming = server.job_service.folder / "incoming"
        assert len(list(incoming.iterdir())) == 1
        end = time.monotonic() + 8
        while list(incoming.iterdir()) and time.monotonic() < end:
            time.sleep(0.05)
        assert list(incoming.iterdir()) == []


def test_clean_up_keeps_uploads_that_started_meanwhile(remote: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    alive = upkeep_module._active_uploads
    folder = remote.folder / "incoming" / "later-0-1"

    def slow(*given: Any) -> set[str]:
        is_alive = alive(*given)
        folder.mkdir(parents=True)
        return is_alive

    monkeypatch.setattr(upkeep_module, "_active_uploads", slow)
    tidied(remote)
    assert folder.exists()


# --- the end of the server ---


def test_closing_does_not_use_a_closed_trigger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pull may wake the server's thread between the note of the last pull and its byte."""
    from waitress import trigger as module

    trigger: Any = module.trigger
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    written, pull = list[bool](), trigger._physical_pull
    with served(tmp_path / "runs"):
        main = threading.get_ident()

        def late(self: Any) -> None:
            if threading.get_ident() == main:
                pull(self)  # somebody else's byte
                time.sleep(0.3)
                written.append(self._closed)
            pull(self)

        monkeypatch.setattr(trigger, "_physical_pull", late)
    assert written == [False]


def test_a_request_that_outlasts_the_server_wakes_no_waiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    with served(tmp_path / "runs") as server:
        triggers = [socket for socket in server._sockets.values() if hasattr(socket, "pull_trigger")]
    pipes = [os.pipe() for _ in range(50)]  # whatever has the trigger's numbers now
    for trigger in triggers:
        trigger.pull_trigger()
    for reader, writer in pipes:
        os.set_blocking(reader, False)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
        os.close(reader)
        os.close(writer)
