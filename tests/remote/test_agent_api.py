"""The HTTP API for agents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from queue_sites import MODEL, NoParser, announced, capabilities, opened, point, request, result
from werkzeug.test import TestResponse

from tests.server_settings import server_settings
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.remote.protocol import Lease, build
from visualprof.remote.queue.service import JobService
from visualprof.server.app import create_app

pytestmark = pytest.mark.both_databases

API = "/api/v1/agent/"


class Agent:
    """An agent over the test client."""

    def __init__(self, client: FlaskClient, remote: JobService) -> None:
        self.client = client
        self.remote = remote
        self.token = ""
        self.id = ""

    def post(self, path: str, body: Any = None, token: str | None = None, **headers: str) -> TestResponse:
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        given = {"Authorization": f"Bearer {self.token if token is None else token}", **headers}
        return self.client.post(API + path, data=data, headers=given, content_type="application/json")

    def register(self, **changes: Any) -> TestResponse:
        body = {"protocol": 1, "name": "a", "public": True, "capabilities": asdict(capabilities()), **changes}
        answer = self.post("register", body, self.remote.registration_token)
        if answer.status_code == 200:
            self.id, self.token = answer.json["agent"], answer.json["token"]  # type: ignore[index]
        return answer

    def lease(self) -> Lease:
        answer = self.post("lease", {"devices": ["cpu"], "wait_s": 0})
        assert answer.status_code == 200, answer.data
        return build(Lease, answer.json)

    def of(self, lease: Lease, what: str, body: Any, query: str = "") -> TestResponse:
        return self.post(f"tasks/{lease.task}/{what}?lease={lease.lease}{query}", body)

    def announce(self, lease: Lease, files: dict[str, bytes]) -> dict[str, dict[str, Any]]:
        answer = self.of(lease, "uploads", {"files": announced(files)})
        assert answer.status_code == 200, answer.data
        return {file["name"]: file for file in answer.json["files"]}  # type: ignore[index]

    def put(self, url: str, data: bytes, start: int, size: int) -> TestResponse:
        return self.client.put(
            url, data=data, headers={"Content-Range": f"bytes {start}-{start + len(data) - 1}/{size}"}
        )

    def finish(self, lease: Lease, **report: Any) -> TestResponse:
        return self.of(lease, "finish", {"state": "failed", "reason": "crashed", "warnings": [], "files": [], **report})


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        yield remote


@pytest.fixture
def client(tmp_path: Path, remote: JobService) -> Iterator[FlaskClient]:
    yield from clients(tmp_path, remote)


def clients(tmp_path: Path, remote: JobService) -> Iterator[FlaskClient]:
    logdir = LogDirectory([tmp_path / "runs"], NoParser(), Cache(tmp_path / "cache"), events=False)
    yield create_app(logdir, server_settings(dist=tmp_path / "dist"), remote).test_client()
    logdir.close()


@pytest.fixture
def agent(client: FlaskClient, remote: JobService) -> Agent:
    agent = Agent(client, remote)
    assert agent.register().status_code == 200
    return agent


@pytest.fixture
def lease(agent: Agent, remote: JobService) -> Lease:
    remote.open().jobs.submit(request("k"))
    return agent.lease()


def state(remote: JobService, lease: Lease) -> str:
    return remote.open().jobs.get(lease.job).state


def test_a_whole_task(agent: Agent, lease: Lease, remote: JobService) -> None:
    assert agent.client.get(lease.files[0].url, buffered=True).data == MODEL
    beat = {"task": lease.task, "lease": lease.lease, "phase": "measuring", "progress": 0.5}
    assert agent.post("heartbeat", {"tasks": [beat]}).json == {
        "cancel": [],
        "stale": [],
        "intervals": {"lease_s": 30.0, "heartbeat_s": 10.0, "poll_s": 20},
    }
    assert agent.of(lease, "log", b"hello", "&offset=0").json == {"size": 5}
    assert agent.of(lease, "points", point()).json == {}
    files = result(lease.job, lease.task)
    for name, upload in agent.announce(lease, files).items():
        answer = agent.put(upload["url"], files[name], 0, len(files[name]))
        assert (answer.status_code, answer.json) == (201, {"size": len(files[name])})
    assert agent.finish(lease, state="succeeded", reason=None, files=list(files)).json == {}
    assert state(remote, lease) == "succeeded"
    assert (remote.root.path / lease.run / "status.json").is_file()


def test_a_wrong_token_does_not_register(client: FlaskClient, remote: JobService) -> None:
    for token in ("", "wrong", "vp_r_wrong", "vp_a_wrong", "é"):
        headers = {"Authorization": f"Bearer {token}".encode().decode("latin-1")} if token else {}
        assert client.post(API + "register", json={}, headers=headers).status_code == 401, token
        assert remote.agents() == []


def test_the_token_of_an_agent_does_not_register(agent: Agent) -> None:
    assert agent.post("register", {}, agent.token).status_code == 401


@pytest.mark.parametrize("which", ["none", "registration", "unknown"])
def test_only_a_registered_agent_may_ask(client: FlaskClient, remote: JobService, which: str) -> None:
    token = {"none": "", "registration": remote.registration_token, "unknown": "vp_a_unknown"}[which]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for path in ("heartbeat", "lease", "tasks/x/log", "tasks/x/points", "tasks/x/uploads", "tasks/x/finish"):
        answer = client.post(API + path, data=b"{}", headers=headers)
        assert answer.status_code == 401, path
        assert answer.json
        assert answer.json["hint"]


def test_an_agent_that_comes_back_keeps_its_id_and_token(agent: Agent, remote: JobService) -> None:
    credentials = agent.id, agent.token
    agent.register(agent=agent.id, token=agent.token, name="renamed")
    assert (agent.id, agent.token) == credentials
    assert [item.name for item in remote.agents()] == ["renamed"]


def test_an_agent_with_a_wrong_own_token_is_registered_anew(agent: Agent) -> None:
    credentials = agent.id, agent.token
    agent.register(agent=agent.id, token="vp_a_stolen")
    assert agent.id != credentials[0]
    assert agent.token != credentials[1]


def test_the_local_agent_is_registered_only_once(client: FlaskClient, remote: JobService) -> None:
    agent, ids = Agent(client, remote), set[str]()
    for _ in range(2):
        body = {"protocol": 1, "name": "local", "public": True, "capabilities": asdict(capabilities())}
        answer = agent.post("register", body, remote.local_token).json
        assert answer
        ids.add(answer["agent"])
        assert agent.post("heartbeat", {}, answer["token"]).status_code == 200
    assert len(ids) == 1
    assert [(item.name, item.local) for item in remote.agents()] == [("local", True)]


def test_another_protocol_is_refused_with_advice(client: FlaskClient, remote: JobService) -> None:
    answer = Agent(client, remote).register(protocol=2)
    assert answer.status_code == 400
    assert answer.json
    assert "version 1" in answer.json["error"]
    assert "same version of visualprof" in answer.json["hint"]


@pytest.mark.parametrize("header", ["Origin", "Sec-Fetch-Site", "Cookie"])
def test_browsers_are_rejected(agent: Agent, header: str) -> None:
    if header == "Cookie":
        agent.client.set_cookie("session", "x")
    headers = {} if header == "Cookie" else {header: "http://localhost"}
    for path in ("register", "lease", "heartbeat", "tasks/x/finish"):
        assert agent.post(path, {}, None, **headers).status_code == 403, path


def test_an_agents_token_opens_nothing_of_a_browser(agent: Agent) -> None:
    for path in ("/api/v1/jobs", "/api/v1/agents", "/api/v1/status", "/api/v1/runs", "/"):
        for token in (agent.token, agent.remote.registration_token):
            assert agent.client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code == 403, path
        assert agent.client.get(path, headers={"Authorization": "Basic abc"}).status_code in (200, 503), path


def test_a_read_only_server_accepts_no_agents(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        token = remote.registration_token
    reader = JobService(remote.root, read_only=True)
    for client in clients(tmp_path, reader):
        answer = client.post(API + "register", json={}, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 403
        assert answer.json
        assert "read-only" in answer.json["error"]
    reader.close()


def test_without_work_the_answer_is_no_content(agent: Agent) -> None:
    answer = agent.post("lease", {"devices": ["cpu"], "wait_s": 0.05})
    assert (answer.status_code, answer.data) == (204, b"")


def test_without_a_waiting_slot_the_agent_is_asked_to_retry(tmp_path: Path) -> None:
    with opened(tmp_path / "runs", waiters=0) as remote:
        for client in clients(tmp_path, remote):
            agent = Agent(client, remote)
            agent.register()
            answer = agent.post("lease", {"devices": ["cpu"], "wait_s": 5})
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) >= 1


WRONG: list[tuple[str, Any]] = [
    ("register", {"protocol": 1}),
    ("register", {"protocol": 1, "name": "a", "public": True, "capabilities": {"platform": "toaster"}}),
    ("lease", {"devices": "cpu"}),
    ("lease", b"{"),
    ("lease", b"[" * 100_000),
    ("lease", b"\xff"),
    ("heartbeat", {"tasks": [{"task": "x"}]}),
    ("heartbeat", {"tasks": [{"task": "x", "lease": "y", "phase": "sleeping"}]}),
    ("tasks/x/finish", {"state": "perfect"}),
    ("tasks/x/finish", {"state": "running"}),
    ("tasks/x/finish", {"state": "failed", "reason": "because"}),
    ("tasks/x/points", {"batch": "1"}),
    ("tasks/x/points", {**point(), "batch": -1}),
    ("tasks/x/points", [1]),
]


def test_a_wrong_body_is_refused(agent: Agent) -> None:
    for path, body in WRONG:
        answer = agent.post(path, body, agent.remote.registration_token if path == "register" else None)
        assert answer.status_code == 400, (path, body, answer.data)
        assert answer.json
        assert answer.json["error"]


@pytest.mark.parametrize(("path", "size"), [("lease", (1 << 20) + 1), ("tasks/x/points", (64 << 10) + 1)])
def test_a_too_large_body_is_rejected(agent: Agent, path: str, size: int) -> None:
    assert agent.post(path, b" " * size).status_code == 413


def test_a_too_large_part_of_a_log_is_rejected(agent: Agent, lease: Lease) -> None:
    assert agent.of(lease, "log", b"x" * (64 << 10), "&offset=0").status_code == 200
    assert agent.of(lease, "log", b"x" * ((64 << 10) + 1), "&offset=65536").status_code == 413


def test_a_gap_in_a_log_is_answered_with_the_stored_size(agent: Agent, lease: Lease) -> None:
    agent.of(lease, "log", b"hello", "&offset=0")
    answer = agent.of(lease, "log", b"x", "&offset=9")
    assert answer.status_code == 409
    assert answer.json
    assert answer.json["size"] == 5


def test_a_log_needs_a_place(agent: Agent, lease: Lease) -> None:
    for offset in ("", "&offset=-1", "&offset=x", "&offset=99999999999999999999"):
        assert agent.of(lease, "log", b"x", offset).status_code == 400, offset


def test_a_stale_lease_is_rejected_by_every_route(agent: Agent, lease: Lease) -> None:
    old = Lease(
        task=lease.task,
        job=lease.job,
        run=lease.run,
        attempt=1,
        lease="0" * 32,
        spec=lease.spec,
        request=lease.request,
        files=[],
    )
    for what, body, query in (
        ("log", b"x", "&offset=0"),
        ("points", point(), ""),
        ("uploads", {"files": []}, ""),
        ("finish", {"state": "failed"}, ""),
    ):
        answer = agent.of(old, what, body, query)
        assert answer.status_code == 409, what
        assert answer.json
        assert "size" not in answer.json
    stale = agent.post("heartbeat", {"tasks": [{"task": old.task, "lease": old.lease}]})
    assert stale.json
    assert stale.json["stale"] == [old.task]


def test_the_lease_of_another_agent_is_stale(agent: Agent, lease: Lease) -> None:
    other = Agent(agent.client, agent.remote)
    other.register(name="other")
    assert other.of(lease, "log", b"x", "&offset=0").status_code == 409
    assert other.finish(lease).status_code == 409


def test_the_same_finish_again_is_answered_alike(agent: Agent, lease: Lease, remote: JobService) -> None:
    assert agent.finish(lease).status_code == 200
    assert agent.finish(lease).status_code == 200
    assert agent.finish(lease, state="cancelled").status_code == 409
    assert state(remote, lease) == "failed"


def test_a_cancel_reaches_the_agent_by_its_heartbeat(agent: Agent, lease: Lease, remote: JobService) -> None:
    agent.client.post(f"/api/v1/jobs/{lease.job}/cancel")
    answer = agent.post("heartbeat", {"tasks": [{"task": lease.task, "lease": lease.lease}]})
    assert answer.json
    assert answer.json["cancel"] == [lease.task]
    assert agent.finish(lease, state="cancelled", reason=None).status_code == 200
    assert state(remote, lease) == "cancelled"


def test_a_part_of_a_file_can_be_asked_for(agent: Agent, lease: Lease) -> None:
    answer = agent.client.get(lease.files[0].url, headers={"Range": "bytes=2-5"}, buffered=True)
    assert (answer.status_code, answer.data) == (206, MODEL[2:6])


def test_files_are_sent_as_attachments(agent: Agent, lease: Lease) -> None:
    headers = agent.client.get(lease.files[0].url, buffered=True).headers
    assert headers["Content-Disposition"].startswith("attachment")
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_an_interrupted_upload_resumes(agent: Agent, lease: Lease) -> None:
    files = {"a": b"0123456789"}
    first = agent.announce(lease, files)["a"]
    assert agent.put(first["url"], b"0123", 0, 10).status_code == 201
    second = agent.announce(lease, files)["a"]
    assert second["have"] == 4
    assert agent.put(second["url"], b"456789", 4, 10).json == {"size": 10}


def test_a_wrong_upload_offset_is_answered_with_the_stored_size(agent: Agent, lease: Lease) -> None:
    url = agent.announce(lease, {"a": b"0123456789"})["a"]["url"]
    agent.put(url, b"0123", 0, 10)
    for start in (0, 3, 5):
        answer = agent.put(url, b"4", start, 10)
        assert answer.status_code == 409
        assert answer.json
        assert answer.json["size"] == 4


def test_a_range_that_does_not_fit_is_refused(agent: Agent, lease: Lease) -> None:
    url = agent.announce(lease, {"a": b"0123456789"})["a"]["url"]
    for header in ("bytes 0-3/9", "bytes 0-2/10", "bytes a-b/10", "chars 0-3/10", "bytes 3-0/10", "bytes 0-3", ""):
        assert agent.client.put(url, data=b"0123", headers={"Content-Range": header}).status_code == 400, header


def test_more_bytes_than_announced_are_refused(agent: Agent, lease: Lease) -> None:
    url = agent.announce(lease, {"a": b"0123"})["a"]["url"]
    assert agent.client.put(url, data=b"01234").status_code == 413
    assert agent.announce(lease, {"a": b"0123"})["a"]["have"] == 0


def test_an_empty_file_can_be_uploaded(agent: Agent, lease: Lease) -> None:
    url = agent.announce(lease, {"a": b""})["a"]["url"]
    assert agent.client.put(url, data=b"", headers={"Content-Range": "bytes */0"}).json == {"size": 0}


def test_a_forged_address_is_refused(agent: Agent, lease: Lease) -> None:
    url = agent.announce(lease, {"a": b"0123456789"})["a"]["url"]
    for forged in (
        url[:-1] + ("0" if url[-1] != "0" else "1"),
        url.partition("?")[0],
        url.replace("size=10", "size=99"),
        url.replace("expires=", "expires=9"),
        url.replace("incoming", "blobs"),
        url.replace("incoming/", "incoming/../"),
    ):
        assert agent.client.put(forged, data=b"0123456789").status_code == 403, forged
    assert agent.client.get(url).status_code == 403, "an address to write cannot be read"


def test_an_address_to_read_cannot_be_written(agent: Agent, lease: Lease) -> None:
    assert agent.client.put(lease.files[0].url, data=b"x").status_code == 403


def test_after_the_finish_nothing_can_be_added(agent: Agent, lease: Lease) -> None:
    files = result(lease.job, lease.task)
    urls = agent.announce(lease, {**files, "more": b"0123"})
    for name, data in files.items():
        agent.put(urls[name]["url"], data, 0, len(data))
    assert agent.finish(lease, state="succeeded", reason=None, files=list(files)).status_code == 200
    assert agent.client.put(urls["more"]["url"], data=b"0123").status_code == 404
    assert not any((agent.remote.folder / "incoming").iterdir())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a\\b", ".x", "a/b/c"])
def test_a_hostile_name_is_refused(agent: Agent, lease: Lease, name: str) -> None:
    answer = agent.of(lease, "uploads", {"files": announced({name: b"x"})})
    assert answer.status_code == 422


def test_a_result_with_a_wrong_hash_is_rejected_and_the_task_continues(
    agent: Agent, lease: Lease, remote: JobService
) -> None:
    files = result(lease.job, lease.task)
    urls = agent.announce(lease, files)
    for name, data in files.items():
        agent.put(urls[name]["url"], data if name != "env.json" else b"[]", 0, len(data))
    answer = agent.finish(lease, state="succeeded", reason=None, files=list(files))
    assert answer.status_code == 422
    assert answer.json
    assert "env.json differs" in answer.json["error"]
    assert state(remote, lease) == "running"


def test_a_full_disk_is_reported(
    agent: Agent, lease: Lease, remote: JobService, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from visualprof.remote.queue.tasks import results

    files = result(lease.job, lease.task)
    urls = agent.announce(lease, files)
    for name, data in files.items():
        agent.put(urls[name]["url"], data, 0, len(data))

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "link_or_copy", full)
    answer = agent.finish(lease, state="succeeded", reason=None, files=list(files))
    assert answer.status_code == 507
    assert agent.finish(lease, reason="disk_full").status_code == 200
    assert remote.open().jobs.get(lease.job).tasks[0].reason == "disk_full"
