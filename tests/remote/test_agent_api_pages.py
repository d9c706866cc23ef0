"""Jobs and agents as the page and `visualprof submit` see them, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from queue_sites import FAILED, NoParser, capabilities, member, opened, point, request, submitted
from sqlalchemy import update

from tests.server_settings import server_settings
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.scan import Root
from visualprof.remote.protocol import Lease, Spec
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.store.tables import agents, tasks
from visualprof.remote.queue.tasks.leases import TaskHeartbeat
from visualprof.server.api.agents import AgentsAnswer
from visualprof.server.api.job_logs import LogAnswer
from visualprof.server.api.job_rows import JobAnswer, JobsAnswer
from visualprof.server.api.jobs import BackendsAnswer, CheckAnswer, JobErrors
from visualprof.server.app import create_app
from visualprof.server.routes import MAX_BODY_BYTES


def clients(folder: Path, remote: JobService, **settings: Any) -> Iterator[FlaskClient]:
    logdir = LogDirectory([folder], NoParser(), Cache(folder.parent / "cache"), events=False)
    yield create_app(logdir, server_settings(dist=folder.parent / "dist", **settings), remote).test_client()
    logdir.close()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        yield remote


@pytest.fixture
def queue(remote: JobService) -> JobServices:
    return remote.open()


@pytest.fixture
def client(tmp_path: Path, remote: JobService) -> Iterator[FlaskClient]:
    yield from clients(tmp_path / "runs", remote)


@pytest.fixture
def agent(queue: JobServices) -> Agent:
    return member(queue, "box")


@pytest.fixture
def lease(queue: JobServices, agent: Agent) -> Lease:
    queue.jobs.submit(request("k"))
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    return lease


def listed(client: FlaskClient) -> JobsAnswer:
    return msgspec.json.decode(client.get("/api/v1/jobs").data, type=JobsAnswer)


def test_where_nothing_was_submitted_the_list_is_empty_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    remote = JobService(Root(tmp_path / "runs", ""))
    for client in clients(tmp_path / "runs", remote):
        answer = listed(client)
        assert (answer.revision, answer.jobs, answer.problem) == (0, [], None)
        assert client.get("/api/v1/jobs/abc").status_code == 404
        assert client.get("/api/v1/agents").get_json()["agents"] == []
    below = [path.relative_to(tmp_path / "runs") for path in (tmp_path / "runs").rglob("*")]
    assert sorted(map(str, below)) == [".visualprof", ".visualprof/agent-token"], "it was shown, so it is kept"


def test_a_submitted_job_is_answered_and_listed(client: FlaskClient, agent: Agent) -> None:
    answer = client.post("/api/v1/jobs", json=submitted("k", name="first"))
    assert answer.status_code == 201, answer.data
    message = msgspec.json.decode(answer.data, type=JobAnswer)
    assert (message.job.name, message.job.model, message.job.state) == ("first", "net.onnx", "waiting")
    assert message.request.sweep.values == [1]
    assert [job.id for job in listed(client).jobs] == [message.job.id]


def test_the_same_submission_again_is_the_same_job(client: FlaskClient, agent: Agent, queue: JobServices) -> None:
    first = client.post("/api/v1/jobs", json=submitted("k"))
    queue.agents.update(agent.id, "renamed", None)
    again = client.post("/api/v1/jobs", json=submitted("k"))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.get_json()["job"]["id"] == first.get_json()["job"]["id"]


def test_an_accepted_job_stays_accepted_after_its_agent_disappears(
    client: FlaskClient, agent: Agent, queue: JobServices
) -> None:
    spec = Spec("s", "onnxruntime", agent=agent.id)
    assert client.post("/api/v1/jobs", json=submitted("k", spec)).status_code == 201
    with queue.database.write() as connection:
        connection.execute(agents.delete())
    assert client.post("/api/v1/jobs", json=submitted("k", spec)).status_code == 200
    assert client.post("/api/v1/jobs", json=submitted("l", spec)).status_code == 400


def test_the_same_key_for_another_job_is_a_conflict(client: FlaskClient, agent: Agent) -> None:
    client.post("/api/v1/jobs", json=submitted("k"))
    answer = client.post("/api/v1/jobs", json=submitted("k", name="other"))
    assert answer.status_code == 409
    assert answer.get_json()["hint"]


def test_a_wrong_job_is_refused_with_its_fields_and_not_queued(client: FlaskClient, agent: Agent) -> None:
    answer = client.post("/api/v1/jobs", json=submitted("k", Spec("s", "onnxruntime", agent="nobody")))
    assert answer.status_code == 400
    refused = msgspec.json.decode(answer.data, type=JobErrors)
    assert [error.field for error in refused.errors] == ["specs[0].agent"]
    assert refused.error.startswith("specs[0].agent: ")
    assert listed(client).jobs == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"key": 1}', b"[" * 100_000])
def test_invalid_jobs_are_rejected(client: FlaskClient, body: bytes) -> None:
    for path in ("/api/v1/jobs", "/api/v1/jobs/check"):
        answer = client.post(path, data=body, content_type="application/json")
        assert answer.status_code == 400
        assert answer.get_json()["errors"]


def test_a_too_large_job_is_rejected(client: FlaskClient) -> None:
    for path in ("/api/v1/jobs", "/api/v1/jobs/check"):
        large = b" " * (MAX_BODY_BYTES + 1)
        assert client.post(path, data=large, content_type="application/json").status_code == 413


def test_a_check_reports_all_errors_and_queues_nothing(client: FlaskClient, agent: Agent) -> None:
    answer = client.post("/api/v1/jobs/check", json=submitted("k", Spec("s", "nothing"), Spec("t", "onnxruntime")))
    message = msgspec.json.decode(answer.data, type=CheckAnswer)
    assert answer.status_code == 200
    assert "specs[0].backend" in [error.field for error in message.errors]
    assert listed(client).jobs == []
    good = client.post("/api/v1/jobs/check", json=submitted("k"))
    assert msgspec.json.decode(good.data, type=CheckAnswer).errors == []
    assert good.get_json()["points"] == 1


def test_an_unchanged_list_is_not_sent_again(client: FlaskClient, queue: JobServices) -> None:
    queue.jobs.submit(request("k"))
    tag = client.get("/api/v1/jobs").headers["ETag"]
    assert client.get("/api/v1/jobs", headers={"If-None-Match": tag}).status_code == 304
    queue.jobs.submit(request("l"))
    assert client.get("/api/v1/jobs", headers={"If-None-Match": tag}).status_code == 200


def test_the_list_follows_every_change_newest_first(client: FlaskClient, queue: JobServices, agent: Agent) -> None:
    first, _ = queue.jobs.submit(request("1"))
    before = listed(client)
    second, _ = queue.jobs.submit(request("2"))
    assert [job.id for job in listed(client).jobs] == [second, first]
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    queue.leases.heartbeat(agent, [TaskHeartbeat(lease.task, lease.lease, "measuring", 0.5, ["hot"])])
    after = listed(client)
    task = after.jobs[1].tasks[0]
    assert (task.state, task.phase, task.progress, task.warnings) == ("running", "measuring", 0.5, ["hot"])
    assert (task.agent, task.agent_name, task.device, task.attempt) == (agent.id, "box", "cpu", 1)
    assert after.revision > before.revision


def test_the_list_follows_another_server_on_the_same_folder(tmp_path: Path, client: FlaskClient) -> None:
    assert listed(client).jobs == []
    with opened(tmp_path / "runs") as other:
        job, _ = other.open().jobs.submit(request("k"))
    assert [item.id for item in listed(client).jobs] == [job]


def test_a_job_shows_its_points_while_it_runs(
    client: FlaskClient, queue: JobServices, agent: Agent, lease: Lease
) -> None:
    queue.leases.save_point(agent, lease.task, lease.lease, 4, point(4))
    answer = client.get(f"/api/v1/jobs/{lease.job}").get_json()
    known = {name: value for name, value in answer["points"][0].items() if value is not None}
    assert known == {"task": lease.task, "spec": "ort", "batch": 4, "qps": 10.0, "p50_ns": 5, "stable": True}
    assert (len(answer["points"]), answer["results"]) == (1, [])
    assert answer["job"]["tasks"][0]["points"] == 1


def test_cancel_and_retry(client: FlaskClient, queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k"))
    assert client.post(f"/api/v1/jobs/{job}/cancel").get_json()["job"]["state"] == "cancelled"
    assert client.post(f"/api/v1/jobs/{job}/retry").get_json()["job"]["state"] == "waiting"
    assert client.post(f"/api/v1/jobs/{job}/retry").status_code == 409
    assert client.post("/api/v1/jobs/nobody/cancel").status_code == 404


def test_a_single_task_can_be_retried(client: FlaskClient, queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k", Spec("a", "onnxruntime"), Spec("b", "onnxruntime")))
    client.post(f"/api/v1/jobs/{job}/cancel")
    answer = client.post(f"/api/v1/jobs/{job}/retry?task={job}-1").get_json()
    assert [task["state"] for task in answer["job"]["tasks"]] == ["cancelled", "waiting"]


def test_a_failure_says_why(client: FlaskClient, queue: JobServices, agent: Agent, lease: Lease) -> None:
    queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    task = listed(client).jobs[0].tasks[0]
    assert (task.state, task.reason, task.error, task.hint) == ("failed", "crashed", "it crashed", "see the log")


def log(client: FlaskClient, task: str, query: str = "") -> LogAnswer:
    return msgspec.json.decode(client.get(f"/api/v1/tasks/{task}/log{query}").data, type=LogAnswer)


def test_a_log_is_read_piece_by_piece(client: FlaskClient, queue: JobServices, agent: Agent, lease: Lease) -> None:
    task = queue.jobs.get(lease.job).tasks[0]
    queue.logs.append(task, 0, b"one\n")
    first = log(client, task.id)
    assert (first.text, first.next_offset, first.ended) == ("one\n", 4, False)
    queue.logs.append(task, 4, b"two\n")
    second = log(client, task.id, "?offset=4")
    assert (second.text, second.offset, second.size_bytes) == ("two\n", 4, 8)
    queue.finalizer.finish(agent, task.id, lease.lease, FAILED)
    assert log(client, task.id, "?offset=8").ended


def test_the_last_bytes_of_a_log_can_be_asked_for(client: FlaskClient, queue: JobServices, lease: Lease) -> None:
    queue.logs.append(queue.jobs.get(lease.job).tasks[0], 0, b"0123456789")
    tail = log(client, lease.task, "?offset=-3")
    assert (tail.text, tail.offset) == ("789", 7)


def test_a_long_log_comes_in_pieces_that_end_between_characters(
    client: FlaskClient, queue: JobServices, agent: Agent, lease: Lease
) -> None:
    task = queue.jobs.get(lease.job).tasks[0]
    text = "x" + "汉" * 200_000
    queue.logs.append(task, 0, text.encode())
    queue.finalizer.finish(agent, task.id, lease.lease, FAILED)
    pieces, offset, ended = list[str](), 0, False
    while not ended:
        answer = log(client, task.id, f"?offset={offset}")
        assert len(answer.text.encode()) <= 256 << 10
        pieces.append(answer.text)
        offset, ended = answer.next_offset, answer.ended
    assert len(pieces) == 3
    assert "".join(pieces) == text


def test_a_character_that_is_still_arriving_is_not_shown_half(
    client: FlaskClient, queue: JobServices, lease: Lease
) -> None:
    task = queue.jobs.get(lease.job).tasks[0]
    queue.logs.append(task, 0, "ab汉".encode()[:4])
    assert (log(client, task.id).text, log(client, task.id).next_offset) == ("ab", 2)
    queue.logs.append(task, 4, "汉".encode()[2:])
    assert log(client, task.id, "?offset=2").text == "汉"


def test_log_bytes_that_are_not_text_are_shown(
    client: FlaskClient, queue: JobServices, agent: Agent, lease: Lease
) -> None:
    task = queue.jobs.get(lease.job).tasks[0]
    queue.logs.append(task, 0, b"\xff\xfea\x00b\xf0")
    queue.finalizer.finish(agent, task.id, lease.lease, FAILED)
    assert log(client, task.id).text == "\ufffd\ufffda\x00b\ufffd"


def test_the_log_of_an_earlier_attempt_is_kept(
    client: FlaskClient, queue: JobServices, agent: Agent, lease: Lease
) -> None:
    queue.logs.append(queue.jobs.get(lease.job).tasks[0], 0, b"first")
    queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    queue.jobs.retry(lease.job)
    assert queue.leases.lease(agent, ["cpu"], 0)
    assert log(client, lease.task).text == ""
    earlier = log(client, lease.task, "?attempt=1")
    assert (earlier.text, earlier.ended) == ("first", True)


@pytest.mark.parametrize(
    ("query", "status"), [("?attempt=9", 404), ("?offset=x", 400), ("?attempt=-1", 400), ("?offset=" + "9" * 30, 400)]
)
def test_a_wrong_piece_of_a_log_is_refused(client: FlaskClient, lease: Lease, query: str, status: int) -> None:
    assert client.get(f"/api/v1/tasks/{lease.task}/log{query}").status_code == status


def test_the_log_of_a_missing_task_is_not_found(client: FlaskClient) -> None:
    assert client.get("/api/v1/tasks/..%2f..%2fsecret/log").status_code == 404
    assert client.get("/api/v1/tasks/nobody/log").status_code == 404


def answered(client: FlaskClient) -> AgentsAnswer:
    return msgspec.json.decode(client.get("/api/v1/agents").data, type=AgentsAnswer)


def test_agents_are_shown_with_their_running_tasks(client: FlaskClient, agent: Agent, lease: Lease) -> None:
    [row] = answered(client).agents
    assert (row.name, row.online, row.public, row.local) == ("box", True, True, False)
    assert asdict(row.capabilities) == asdict(capabilities())
    assert [(task.task, task.job, task.spec, task.name) for task in row.tasks] == [
        (lease.task, lease.job, "ort", "net.onnx")
    ]


def test_the_command_for_another_machine_has_address_and_token(client: FlaskClient, remote: JobService) -> None:
    answer = client.get("/api/v1/agents", headers={"Host": "localhost:8040"}).get_json()
    assert answer["command"] == f"visualprof agent --server http://localhost:8040 --token {remote.registration_token}"


def test_a_silent_agent_is_offline_and_can_be_forgotten(client: FlaskClient, agent: Agent, queue: JobServices) -> None:
    assert client.delete(f"/api/v1/agents/{agent.id}").status_code == 409
    with queue.database.write() as connection:
        connection.execute(update(agents).values(seen_ns=1))
    assert not answered(client).agents[0].online
    answer = client.delete(f"/api/v1/agents/{agent.id}")
    assert (answer.status_code, answer.get_json()["agents"]) == (200, [])
    assert client.delete(f"/api/v1/agents/{agent.id}").status_code == 404


def test_an_agent_with_a_task_is_not_forgotten(
    client: FlaskClient, agent: Agent, lease: Lease, queue: JobServices
) -> None:
    with queue.database.write() as connection:
        connection.execute(update(agents).values(seen_ns=1))
    assert client.delete(f"/api/v1/agents/{agent.id}").status_code == 409


def test_an_agent_can_be_renamed_and_made_private(client: FlaskClient, agent: Agent) -> None:
    answer = client.patch(f"/api/v1/agents/{agent.id}", json={"public": False, "name": "new"})
    assert [(row["name"], row["public"]) for row in answer.get_json()["agents"]] == [("new", False)]


@pytest.mark.parametrize(
    "change", [{"owner": "me"}, {"public": "yes"}, {"name": ""}, {"name": "a\nb"}, {"name": "x" * 201}, []]
)
def test_an_impossible_change_of_an_agent_is_refused(client: FlaskClient, agent: Agent, change: Any) -> None:
    assert client.patch(f"/api/v1/agents/{agent.id}", json=change).status_code == 400
    assert client.patch("/api/v1/agents/nobody", json={"public": False}).status_code == 404


def test_backends_are_listed(client: FlaskClient) -> None:
    message = msgspec.json.decode(client.get("/api/v1/backends").data, type=BackendsAnswer)
    assert "onnxruntime" in [backend.name for backend in message.backends]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/jobs"),
        ("POST", "/api/v1/jobs/x/cancel"),
        ("POST", "/api/v1/jobs/x/retry"),
        ("PATCH", "/api/v1/agents/x"),
        ("DELETE", "/api/v1/agents/x"),
        ("POST", "/api/v1/agent/register"),
        ("PUT", "/api/v1/agent/files/blobs/x"),
    ],
)
def test_a_read_only_server_refuses_every_change(tmp_path: Path, method: str, path: str) -> None:
    with opened(tmp_path / "runs") as writer:
        job, _ = writer.open().jobs.submit(request("k"))
    remote = JobService(writer.root, read_only=True)
    for client in clients(tmp_path / "runs", remote, read_only=True):
        body = {"public": False} if method == "PATCH" else submitted("k")
        assert client.open(path, method=method, json=body).status_code == 403
        answer = listed(client)
        assert [item.id for item in answer.jobs] == [job]
        assert answer.problem
        assert "read-only" in answer.problem
        assert "vp_r_" not in client.get("/api/v1/agents").text
    remote.close()


def test_a_server_over_a_single_file_reports_why_it_runs_no_jobs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / "t.json"
    path.write_text("[]")
    remote = JobService(Root(path, ""))
    for client in clients(path, remote):
        assert "single file" in str(listed(client).problem)
        answer = client.post("/api/v1/jobs", json=submitted("k"))
        assert answer.status_code == 409
        assert "single file" in answer.get_json()["error"]
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["runs", "t.json"]


def test_a_run_is_named_with_the_prefix_of_its_log_directory(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    remote = JobService(Root(tmp_path / "runs", "runs"))
    from queue_sites import upload

    upload(remote)
    queue = remote.open()
    job, _ = queue.jobs.submit(request("k"))
    with queue.database.write() as connection:
        connection.execute(update(tasks).values(run=f"net-{job}/ort"))
    for client in clients(tmp_path / "runs", remote):
        assert listed(client).jobs[0].tasks[0].run == f"runs/net-{job}/ort"
    remote.close()


def test_another_sites_page_may_not_submit(client: FlaskClient, agent: Agent) -> None:
    answer = client.post("/api/v1/jobs", json=submitted("k"), headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert listed(client).jobs == []
