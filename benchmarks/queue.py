"""The queue of jobs over HTTP on this machine: from submission to start, leases a second, many jobs and many agents.

Agents are threads that speak the protocol and measure nothing; the server is a process of its own, as users start it.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.rows import ROOT, Row

JOBS = 1000
AGENTS = 20
CROWD_S, START_P95_MS = 5.0, 10
MODEL = b"a model, as far as the queue is concerned"
FOUND = {
    "kind": "model",
    "name": "net.onnx",
    "format": "onnx",
    "inputs": [{"name": "x", "dtype": "float32", "dims": ["n", 3]}],
    "outputs": [{"name": "y", "dtype": "float32", "dims": ["n", 3]}],
    "dims": {"n": 1},
    "backends": ["onnxruntime"],
    "warnings": [],
}
CAPABILITIES = {
    "platform": "x86",
    "machine": "x86_64",
    "system": "Linux",
    "hostname": "bench",
    "cpu": "",
    "cores": 2,
    "memory_bytes": 1 << 30,
    "sandbox": 0,
    "version": "0",
    "runtimes": [
        {"backend": "onnxruntime", "version": "1.2", "python": "", "python_version": "3.11", "devices": ["cpu"]}
    ],
}


class Client:
    """A kept connection, for one thread."""

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def close(self) -> None:
        self._connection.close()


class Agent:
    """Leases and ends tasks."""

    def __init__(self, url: str, token: str, name: str) -> None:
        body = {"protocol": 1, "name": name, "public": True, "capabilities": CAPABILITIES}
        client = Client(url, token)
        _, answer = client("POST", "/api/v1/agent/register", body)
        client.close()
        self._client = Client(url, answer["token"])

    def lease(self, wait_s: float) -> dict[str, Any] | None:
        """A task; None without one, also when there is no place to wait."""
        status, task = self._client("POST", "/api/v1/agent/lease", {"devices": ["cpu"], "wait_s": wait_s})
        if status == 503:
            time.sleep(0.2)
        return task if status == 200 else None

    def end(self, lease: dict[str, Any]) -> None:
        path = f"/api/v1/agent/tasks/{lease['task']}/finish?lease={lease['lease']}"
        body = {"state": "failed", "reason": "crashed", "warnings": [], "files": []}
        assert self._client("POST", path, body)[0] == 200

    def close(self) -> None:
        self._client.close()


@contextmanager
def server(folder: Path) -> Generator[tuple[str, str]]:
    """A dashboard with an uploaded model: its address and the token for agents."""
    logdir = folder / "queue-runs"
    token, blob = prepared(logdir)
    with started(logdir, folder / "cache-queue", "--no-token") as (_, url):
        JOB["model"] = {"blob": blob, "name": "net.onnx"}
        yield url, token


@contextmanager
def started(logdir: Path, cache: Path, *options: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """`visualprof` over a log directory, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "visualprof", "--logdir", str(logdir), "--port", "0", *options],
        cwd=ROOT,
        env={**os.environ, "VISUALPROF_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    try:
        yield process, next(word for word in process.stdout.readline().split() if word.startswith("http://"))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


JOB: dict[str, Any] = {
    "specs": [{"id": "ort", "backend": "onnxruntime"}],
    "inputs": [{"name": "x", "dtype": "float32", "dims": ["n", 3]}],
    "sweep": {"dim": "n", "values": [1]},
}


def prepared(logdir: Path) -> tuple[str, str]:
    """Keeps the model before the server starts; the token for agents, and the blob."""
    from visualprof.reader.logdir.scan import Root
    from visualprof.remote.queue.service import JobService

    logdir.mkdir()
    remote = JobService(Root(logdir, ""))
    queue = remote.open()
    blob, _ = queue.save_upload("net.onnx", io.BytesIO(MODEL).read)
    queue.blobs.save_inspection(blob, "net.onnx", FOUND)
    token = remote.registration_token
    remote.close()
    return token, blob


def submit(client: Client, key: str) -> str:
    status, answer = client("POST", "/api/v1/jobs", {**JOB, "key": key})
    assert status == 201, answer
    return answer["job"]["tasks"][0]["id"]


def submit_to_start(url: str, token: str, count: int = 60) -> list[float]:
    """Seconds from a submission until an agent that waits has the task."""
    agent, client, took = Agent(url, token, "waiting"), Client(url), list[float]()
    started: list[float] = []
    for i in range(count):
        thread = threading.Thread(target=lambda: take(agent, started))
        thread.start()
        time.sleep(0.05 + 0.01 * (i % 7))  # the agent's request has arrived and waits
        began = time.perf_counter()
        submit(client, f"start-{i}")
        thread.join()
        took.append(started[-1] - began)
    agent.close()
    client.close()
    return took


def take(agent: Agent, started: list[float]) -> None:
    """One task: the moment at which the agent has it is noted."""
    lease = None
    while lease is None:
        lease = agent.lease(20)
    started.append(time.perf_counter())
    agent.end(lease)


def together(acts: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def drain(url: str, token: str, agents: int, count: int) -> tuple[float, list[str]]:
    """Seconds in which agents lease and end tasks that wait, and which they got."""
    machines, got = [Agent(url, token, f"drain-{i}") for i in range(agents)], list[str]()

    def work(agent: Agent) -> None:
        while len(got) < count:
            lease = agent.lease(0.5)
            if lease:
                got.append(lease["task"])
                agent.end(lease)

    began = time.perf_counter()
    together([lambda a=a: work(a) for a in machines])
    took = time.perf_counter() - began
    [machine.close() for machine in machines]
    return took, got


def leases(url: str, token: str, count: int = 400) -> float:
    """Leases a second of four agents."""
    client = Client(url)
    for i in range(count):
        submit(client, f"lease-{i}")
    client.close()
    return count / drain(url, token, 4, count)[0]


def crowd(url: str, token: str, jobs: int, agents: int) -> tuple[float, int, int]:
    """Jobs that are submitted while agents run them: seconds, tasks that ran twice, tasks that did not end."""
    client, sent = Client(url), list[str]()

    def send() -> None:
        sent.extend(submit(client, f"crowd-{i}") for i in range(jobs))

    result: list[tuple[float, list[str]]] = []
    together([send, lambda: result.append(drain(url, token, agents, jobs))])
    took, got = result[0]
    listed = {task["id"]: task for job in client("GET", "/api/v1/jobs")[1]["jobs"] for task in job["tasks"]}
    client.close()
    lost = [task for task in sent if listed.get(task, {}).get("state") != "failed"]
    again = [task for task in sent if listed.get(task, {}).get("attempt") != 1]
    return took, len(got) - len(set(got)) + len(again), len(lost)


def queue(folder: Path, jobs: int = JOBS, agents: int = AGENTS) -> Iterator[Row]:
    """Lines of the report: what, figure, bar, met."""
    with server(folder) as (url, token):
        took = submit_to_start(url, token)
        p95 = statistics.quantiles(took, n=20)[18]
        figure = f"p50 {statistics.median(took) * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms"
        label = "job: submitted to started (an agent that waits)"
        yield Row(label, figure, f"p95 at most {START_P95_MS} ms", p95 * 1e3 <= START_P95_MS)
        rate = leases(url, token)
        yield Row("leases with 4 agents", f"{rate:.0f} per second", "at least 100 per second", rate >= 100)
        seconds, twice, lost = crowd(url, token, jobs, agents)
        yield Row(
            f"{jobs:,} jobs submitted while {agents} agents run them",
            f"{seconds:.1f} s, {twice} run twice, {lost} lost",
            f"at most {CROWD_S:g} s, 0 run twice, 0 lost",
            twice == lost == 0 and seconds <= CROWD_S,
        )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for line in queue(Path(name)):
            print(line.line(), flush=True)
