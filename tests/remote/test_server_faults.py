"""Real servers that are killed, crowded, cut off; nothing is lost and nothing runs twice."""

from __future__ import annotations

import http.client
import socket
import statistics
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from queue_sites import (
    FakeAgent,
    Http,
    Refused,
    ServerProcess,
    announced,
    opened,
    result,
    served,
    server_process,
    submitted,
    together,
    token_of,
    waiters,
)

from tests.conftest import until
from visualprof.errors import VisualprofError
from visualprof.remote.protocol import Spec

pytestmark = pytest.mark.slow

_GONE = (OSError, http.client.HTTPException)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))


def jobs_of(url: str) -> dict[str, Any]:
    http = Http(url)
    try:
        return {job["id"]: job for job in http("GET", "/api/v1/jobs")["jobs"]}
    finally:
        http.close()


@pytest.mark.long
def test_a_killed_server_loses_no_acknowledged_submission(tmp_path: Path) -> None:
    acknowledged, refused = dict[str, str](), list[Refused]()
    with server_process(tmp_path) as server:
        agent = FakeAgent(server.url, token_of(server.folder)).register()
        killed = threading.Event()

        def submit(number: int) -> None:
            http, count = Http(server.url), 0
            while not killed.is_set():
                key = f"{number}-{count}"
                count += 1
                try:
                    acknowledged[key] = http("POST", "/api/v1/jobs", submitted(key))["job"]["id"]
                except _GONE:
                    break
                except Refused as refusal:
                    refused.append(refusal)
                    break
            http.close()

        threads = [threading.Thread(target=submit, args=(i,)) for i in range(4)]
        [thread.start() for thread in threads]
        until(lambda: len(acknowledged) > 40)
        server.kill()
        killed.set()
        [thread.join() for thread in threads]
        server.start()
        jobs_before = jobs_of(server.url)
        assert refused == []
        assert set(acknowledged.values()) <= set(jobs_before)
        again = Http(server.url)("POST", "/api/v1/jobs", submitted("0-0"))
        assert again["job"]["id"] == acknowledged["0-0"]
        agent.http.close()


@pytest.mark.long
def test_a_task_that_runs_while_the_server_is_down_is_not_run_twice(tmp_path: Path) -> None:
    with server_process(tmp_path, lease_s=1.0) as server:
        agent = FakeAgent(server.url, token_of(server.folder)).register()
        other = FakeAgent(server.url, token_of(server.folder), "other").register()
        job = agent.http("POST", "/api/v1/jobs", submitted("k"))["job"]["id"]
        lease = agent.lease()
        assert lease
        server.kill()
        time.sleep(1.5)  # longer than the lease
        server.start()
        [item.http.close() for item in (agent, other)]  # the next request connects anew
        assert other.lease() is None
        assert agent.beat(lease)["stale"] == []
        time.sleep(0.7)
        assert other.lease() is None
        agent.succeed(lease)
        [task] = jobs_of(server.url)[job]["tasks"]
        assert (task["state"], task["attempt"]) == ("succeeded", 1)


def test_the_task_of_a_lost_agent_is_run_once_again_and_then_fails(tmp_path: Path) -> None:
    with server_process(tmp_path, lease_s=0.6) as server:
        agents = [FakeAgent(server.url, token_of(server.folder), str(i)).register() for i in range(3)]
        agents[0].http("POST", "/api/v1/jobs", submitted("k", retries=1))
        first = agents[0].lease()
        began = time.monotonic()
        second = agents[1].lease(5)
        took = time.monotonic() - began
        assert first
        assert second
        assert (second["task"], second["attempt"]) == (first["task"], 2)
        assert 0.5 < took < 2
        assert agents[0].beat(first)["stale"] == [first["task"]]
        with pytest.raises(Refused) as refusal:
            agents[0].succeed(first)
        assert refusal.value.status == 409
        [job] = until(lambda: [job for job in jobs_of(server.url).values() if job["state"] == "failed"])
        assert job["tasks"][0]["reason"] == "agent_lost"
        assert agents[2].lease() is None


@pytest.mark.long
def test_a_restarted_server_accepts_earlier_tokens_and_signed_urls(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        agent = FakeAgent(server.url, token_of(server.folder)).register()
        agent.http("POST", "/api/v1/jobs", submitted("k"))
        lease = agent.lease()
        assert lease
        files = result(lease["job"], lease["task"], **{"big.bin": b"x" * 1000})
        uploads = {file["name"]: file for file in agent.of(lease, "uploads", {"files": announced(files)})["files"]}
        agent.http("PUT", uploads["big.bin"]["url"], b"x" * 600, Content_Range="bytes 0-599/1000")
        server.kill()
        server.start()
        agent.http.close()
        agent.http("PUT", uploads["big.bin"]["url"], b"x" * 400, Content_Range="bytes 600-999/1000")
        agent.send(lease, files)
        agent.finish(lease, files=list(files))
        assert (server.folder / lease["run"] / "big.bin").stat().st_size == 1000


def test_an_upload_resumes_after_a_broken_connection(tmp_path: Path) -> None:
    with served(tmp_path / "runs") as server:
        agent = FakeAgent(server.url, server.job_service.registration_token).register()
        agent.http("POST", "/api/v1/jobs", submitted("k"))
        lease = agent.lease()
        assert lease
        data = bytes(range(256)) * 1000
        files = result(lease["job"], lease["task"], **{"big.bin": data})
        url = {file["name"]: file["url"] for file in agent.of(lease, "uploads", {"files": announced(files)})["files"]}
        agent.http("PUT", url["big.bin"], data[:100_000], Content_Range=f"bytes 0-99999/{len(data)}")
        cut_put(server.url, url["big.bin"], data[100_000:], len(data))
        [have] = [
            each["have"]
            for each in agent.of(lease, "uploads", {"files": announced(files)})["files"]
            if each["name"] == "big.bin"
        ]
        assert have == 100_000
        agent.send(lease, files)
        agent.finish(lease, files=list(files))
        assert (tmp_path / "runs" / lease["run"] / "big.bin").read_bytes() == data


def cut_put(server: str, url: str, rest: bytes, size: int) -> None:
    """Announces `rest` and breaks off after half of it."""
    parts = urlsplit(server)
    assert parts.hostname
    with socket.create_connection((parts.hostname, parts.port or 80)) as connection:
        head = (
            f"PUT {url} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(rest)}\r\n"
            f"Content-Range: bytes {size - len(rest)}-{size - 1}/{size}\r\n\r\n"
        )
        connection.sendall(head.encode() + rest[: len(rest) // 2])


@pytest.mark.long
def test_many_jobs_and_agents_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    count, runs = 120, list[str]()
    with served(tmp_path / "runs") as server:
        agents = [FakeAgent(server.url, server.job_service.registration_token, str(i)).register() for i in range(20)]
        ended = threading.Event()

        def act(number: int) -> None:
            if number < 4:
                http = Http(server.url)
                for i in range(count // 4):
                    http("POST", "/api/v1/jobs", submitted(f"{number}-{i}"))
                http.close()
            else:
                work(agents[number - 4], runs, ended, count)

        together(24, act)
        jobs = jobs_of(server.url)
    assert len(runs) == len(set(runs)) == count
    assert {task["state"] for job in jobs.values() for task in job["tasks"]} == {"failed"}
    assert {task["attempt"] for job in jobs.values() for task in job["tasks"]} == {1}
    assert len(jobs) == count


def work(agent: FakeAgent, runs: list[str], ended: threading.Event, count: int) -> None:
    """Leases and fails tasks until all have ended."""
    while not ended.is_set():
        lease = patient(agent, 0.5, ended)
        if lease:
            runs.append(lease["task"])
            agent.finish(lease, "failed", reason="crashed")
        if len(runs) >= count:
            ended.set()
    agent.http.close()


def patient(
    agent: FakeAgent, wait_s: float, ended: threading.Event, crowded: list[int] | None = None
) -> dict[str, Any] | None:
    """A lease; where there is no place to wait, nothing after the time that the server names."""
    try:
        return agent.lease(wait_s)
    except Refused as refusal:
        if refusal.status != 503:
            raise
        if crowded is not None:
            crowded.append(503)
        ended.wait(float(refusal.headers["Retry-After"]))
        return None


@pytest.mark.long
def test_agents_that_wait_do_not_starve_the_page(tmp_path: Path) -> None:
    with served(tmp_path / "runs") as server:
        agents = [FakeAgent(server.url, server.job_service.registration_token, str(i)).register() for i in range(40)]
        ended, crowded = threading.Event(), list[int]()

        def act(number: int) -> None:
            if number == 40:
                ask(server.url)
                ended.set()
                return
            while not ended.is_set():
                patient(agents[number], 1, ended, crowded)
            agents[number].http.close()

        def ask(url: str) -> None:
            time.sleep(0.5)
            http, took = Http(url), list[float]()
            for _ in range(80):
                began = time.perf_counter()
                http("GET", "/api/v1/status")
                took.append(time.perf_counter() - began)
                time.sleep(0.02)
            http.close()
            assert statistics.quantiles(took, n=20)[18] < 0.1

        together(41, act)
        assert crowded, "more of them than places"


def test_agents_that_come_back_after_a_while_get_a_job_though_others_wait(tmp_path: Path) -> None:
    with served(tmp_path / "runs") as server:
        agents = [FakeAgent(server.url, server.job_service.registration_token, str(i)).register() for i in range(20)]
        late = FakeAgent(server.url, server.job_service.registration_token, "late").register()
        waiting = [threading.Thread(target=patient, args=(a, 3, threading.Event())) for a in agents]
        [thread.start() for thread in waiting]
        time.sleep(0.3)
        late.http("POST", "/api/v1/jobs", submitted("k", Spec("s", "onnxruntime", agent=late.id)))
        lease = late.lease(0)
        assert lease
        assert lease["spec"]["agent"] == late.id
        server.job_service.release_waiters()
        [thread.join() for thread in waiting]
        [agent.http.close() for agent in agents]


def test_a_task_is_not_assigned_to_a_lost_agent(tmp_path: Path) -> None:
    with served(tmp_path / "runs") as server:
        agent = FakeAgent(server.url, server.job_service.registration_token).register()
        head = f"POST /api/v1/agent/lease HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {agent.own}\r\n"
        body = b'{"devices": ["cpu"], "wait_s": 20}'
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.3)
        time.sleep(0.1)
        agent.http("POST", "/api/v1/jobs", submitted("k"))
        lease = agent.lease()
        assert lease
        assert lease["attempt"] == 1


def test_a_closing_server_does_not_wait_for_its_agents(tmp_path: Path) -> None:
    with served(tmp_path / "runs") as server:
        agent = FakeAgent(server.url, server.job_service.registration_token).register()

        def wait() -> None:
            with pytest.raises((*_GONE, AssertionError)):
                assert agent.lease(20)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: waiters(server.job_service.open()))
        began = time.monotonic()
    thread.join(15)
    assert time.monotonic() - began < 15, "it does not wait for the poll's answer"
    agent.http.close()


@pytest.mark.long
def test_the_servers_own_agent_comes_and_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with opened(tmp_path / "runs"):
        pass
    server = ServerProcess(tmp_path / "runs", tmp_path / "cache", 3.0).start("--with-agent")
    try:
        [agent] = until(lambda: Http(server.url)("GET", "/api/v1/agents")["agents"], 30)
        assert (agent["name"], agent["local"], agent["public"], agent["online"]) == ("local", True, True, True)
        assert server.process
        children = psutil.Process(server.process.pid).children(recursive=True)
        own = [process for process in children if "agent" in process.cmdline()]
        assert own
        server.process.terminate()
        assert server.process.wait(10) == 0
        assert not [process for process in own if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    finally:
        server.kill()
        for process in psutil.process_iter(["cmdline"]):
            assert server.url not in (process.info["cmdline"] or [])


def test_a_server_without_jobs_starts_no_agent(tmp_path: Path) -> None:
    with pytest.raises(VisualprofError, match="read-only"), served(tmp_path / "runs", with_agent=True, read_only=True):
        pass


def test_a_result_is_a_run_of_the_dashboard(tmp_path: Path) -> None:
    trace = (
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1,'
        b' "ts": 1, "dur": 5, "args": {"External id": 1}}]}'
    )
    with served(tmp_path / "runs") as server:
        agent = FakeAgent(server.url, server.job_service.registration_token).register()
        agent.http("POST", "/api/v1/jobs", submitted("k"))
        lease = agent.lease()
        assert lease
        agent.succeed(lease, **{"timeline.json": trace})
        runs = until(lambda: Http(server.url)("GET", "/api/v1/runs")["runs"])
        assert [run["id"] for run in runs] == [lease["run"]]
        [job] = jobs_of(server.url).values()
        assert job["tasks"][0]["run"] == lease["run"]


@pytest.mark.long
def test_a_poll_of_the_jobs_is_quick_with_a_thousand_of_them(tmp_path: Path) -> None:
    from queue_sites import request

    with served(tmp_path / "runs") as server:
        queue, http = server.job_service.open(), Http(server.url)
        for i in range(1000):
            queue.jobs.submit(request(str(i)))
        http("GET", "/api/v1/jobs")
        took = list[float]()
        for i in range(10):
            queue.jobs.submit(request(f"more {i}".replace(" ", "-")))
            began = time.perf_counter()
            assert len(http("GET", "/api/v1/jobs")["jobs"]) == 1001 + i
            took.append(time.perf_counter() - began)
        http.close()
        assert statistics.median(took) < 0.25
