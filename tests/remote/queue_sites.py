"""Queues, servers and agents that speak HTTP but measure nothing."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.server_settings import server_settings
from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.reader.logdir.scan import Root
from visualprof.remote.protocol import Capabilities, ModelRef, Request, Runtime, Spec
from visualprof.remote.queue.service import MAX_WAITERS, JobService, JobServices
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.leases import TaskReport
from visualprof.server.serve import Server

ROOT = Path(__file__).parents[2]
MODEL = b"a model, as far as the queue is concerned"
FOUND = {
    "kind": "model",
    "format": "onnx",
    "inputs": [{"name": "x", "dtype": "float32", "dims": ["n", 3]}],
    "outputs": [{"name": "y", "dtype": "float32", "dims": ["n", 3]}],
    "dims": {"n": 1},
    "backends": ["onnxruntime"],
    "warnings": [],
    "parameters": 12,
    "operators": {"Gemm": 2},
}


def capabilities(platform: Any = "x86", runtimes: list[Runtime] | None = None) -> Capabilities:
    """Return the capabilities of a small machine with ONNX Runtime 1.2 on its CPU."""
    found = runtimes if runtimes is not None else [runtime()]
    return Capabilities(platform, "x86_64", "Linux", "host", "cpu", 2, 1 << 30, 0, "0", runtimes=found)


def runtime(backend: str = "onnxruntime", version: str = "1.2", *devices: str) -> Runtime:
    return Runtime(backend, version, "/usr/bin/python3", "3.11", list(devices or ("cpu",)))


@contextmanager
def opened(
    folder: Path, lease_s: float = 30.0, *, clock: Clock = SYSTEM_CLOCK, waiters: int = MAX_WAITERS, **settings: Any
) -> Iterator[JobService]:
    """A queue without a server, with one uploaded model."""
    folder.mkdir(exist_ok=True)
    remote = JobService(Root(folder, ""), QueueSettings(lease_s=lease_s, **settings), clock=clock, waiters=waiters)
    try:
        upload(remote)
        yield remote
    finally:
        remote.close()


def upload(remote: JobService, content: bytes = MODEL, name: str = "net.onnx") -> str:
    """Keeps a model without looking at it; its blob."""
    blob, _ = remote.open().save_upload(name, io.BytesIO(content).read)
    remote.open().blobs.save_inspection(blob, name, {**FOUND, "name": name})
    return blob


def request(key: str = "key", *specs: Spec, **changes: Any) -> Request:
    """A job of the uploaded model."""
    model = ModelRef(hashlib.sha256(MODEL).hexdigest(), "net.onnx")
    return Request(key=key, model=model, specs=list(specs) or [Spec("ort", "onnxruntime")], **changes)


def member(queue: JobServices, name: str = "a", public: bool = True, known: Capabilities | None = None) -> Agent:
    """A registered agent."""
    _, token = queue.agents.register(name, public=public, local=False, address="", capabilities=known or capabilities())
    return queue.agents.authenticate(token)


def waiters(queue: JobServices) -> int:
    """Return how many threads wait for a task."""
    condition: Any = queue.notifier._condition
    return len(condition._waiters)


FAILED = TaskReport("failed", "crashed", "it crashed", "see the log")


def result(job: str, task: str, **more: bytes) -> dict[str, bytes]:
    """The files of a small result."""
    head = {"schema": "visualprof.job/1", "job": job, "task": task, "model": {"name": "net.onnx", "file": "net.onnx"}}
    files = {"job.json": json.dumps(head).encode(), "env.json": b"{}", "status.json": b'{"state": "succeeded"}'}
    return {**files, "points.jsonl": json.dumps(point()).encode() + b"\n", **more}


def announced(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]


def point(batch: int = 1) -> dict[str, Any]:
    return {"batch": batch, "qps": 10.0, "p50_ns": 5, "stable": True, "start_ns": batch, "latencies": [0, 9]}


class Refused(Exception):
    """An answer with a status other than 2xx."""

    def __init__(self, status: int, body: Any, headers: dict[str, str]) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body
        self.headers = headers


class Http:
    """A connection that is kept; for one thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)

    def __call__(self, method: str, path: str, body: Any = None, token: str = "", **headers: str) -> Any:
        """JSON of the answer, its bytes, or None for 204."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        given = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if token:
            given["Authorization"] = f"Bearer {token}"
        try:
            self._connection.request(method, path, data, given)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request opens a new one
            raise
        answer = json.loads(text) if text[:1] in (b"{", b"[") else text or None
        if response.status >= 300:
            raise Refused(response.status, answer, dict(response.getheaders()))
        return answer

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        self.close()


@dataclass
class FakeAgent:
    """Speaks as an agent does, one request after the other."""

    url: str
    token: str
    name: str = "fake"
    id: str = ""
    own: str = ""
    http: Http = field(init=False)

    def __post_init__(self) -> None:
        self.http = Http(self.url)

    def register(self, **changes: Any) -> FakeAgent:
        from dataclasses import asdict

        body = {"protocol": 1, "name": self.name, "public": True, "capabilities": asdict(capabilities()), **changes}
        answer = self.http("POST", "/api/v1/agent/register", body, self.token)
        self.id, self.own = answer["agent"], answer["token"]
        return self

    def lease(self, wait_s: float = 0.0, *devices: str) -> dict[str, Any] | None:
        body = {"devices": list(devices or ("cpu",)), "wait_s": wait_s}
        return self.http("POST", "/api/v1/agent/lease", body, self.own)

    def beat(self, *leases: dict[str, Any], phase: str = "measuring", progress: float = 0.5) -> dict[str, Any]:
        tasks = [{"task": x["task"], "lease": x["lease"], "phase": phase, "progress": progress} for x in leases]
        return self.http("POST", "/api/v1/agent/heartbeat", {"tasks": tasks}, self.own)

    def of(self, lease: dict[str, Any], what: str, body: Any, query: str = "") -> Any:
        path = f"/api/v1/agent/tasks/{lease['task']}/{what}?lease={lease['lease']}{query}"
        return self.http("POST", path, body, self.own)

    def send(self, lease: dict[str, Any], files: dict[str, bytes]) -> None:
        """Announces and uploads files."""
        for file in self.of(lease, "uploads", {"files": announced(files)})["files"]:
            data = files[file["name"]]
            for part in file.get("parts") or ():
                piece = data[part["offset"] :][: part["size_bytes"]]
                urllib.request.urlopen(urllib.request.Request(part["url"], piece, method="PUT"), timeout=30).close()
            rest = b"" if file.get("parts") else data[file["have"] :]
            if rest:
                end = file["have"] + len(rest)
                self.http("PUT", file["url"], rest, Content_Range=f"bytes {file['have']}-{end - 1}/{end}")

    def finish(self, lease: dict[str, Any], state: str = "succeeded", **more: Any) -> Any:
        return self.of(lease, "finish", {"state": state, "warnings": [], "files": [], **more})

    def succeed(self, lease: dict[str, Any], **more: bytes) -> None:
        """A whole result."""
        files = result(lease["job"], lease["task"], **more)
        self.send(lease, files)
        self.finish(lease, files=list(files))


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Server]:
    """A server in this process, with one uploaded model."""
    folder.mkdir(exist_ok=True)
    with Server([folder], 0, server_settings(**settings)) as server:
        if not server.job_service.problem:
            upload(server.job_service)
        server.start()
        yield server


@dataclass
class ServerProcess:
    """A server in a process of its own, which can be killed and started again on the same port."""

    folder: Path
    cache: Path
    lease_s: float = 3.0
    port: int = 0
    url: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> ServerProcess:
        command = [sys.executable, "-m", "visualprof", "--logdir", str(self.folder), "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--lease", str(self.lease_s), "--no-token", *more],
            cwd=ROOT,
            env={**os.environ, "VISUALPROF_CACHE_DIR": str(self.cache)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        self.url = next(word for word in line.split() if word.startswith("http://"))
        self.port = urlsplit(self.url).port or 0
        return self

    def kill(self) -> None:
        """Send SIGKILL to the server and its descendants."""
        assert self.process
        assert self.process.stdout
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        self.process.stdout.close()


@contextmanager
def server_process(tmp_path: Path, lease_s: float = 3.0) -> Iterator[ServerProcess]:
    """A started server in a process of its own; its queue has one uploaded model."""
    folder = tmp_path / "runs"
    with opened(folder):
        pass
    server = ServerProcess(folder, tmp_path / "cache", lease_s).start()
    try:
        yield server
    finally:
        server.kill()


def token_of(folder: Path) -> str:
    """With it agents register."""
    return (folder / ".visualprof" / "agent-token").read_text().strip()


def relu() -> bytes:
    """An ONNX model that runs: y = relu(x), (n, 3)."""
    from onnx import helper

    x, y = (helper.make_tensor_value_info(name, 1, ["n", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def submitted(key: str, *specs: Spec, **changes: Any) -> dict[str, Any]:
    """A job as JSON."""
    import msgspec

    wanted = request(key, *specs, inputs=[], **changes)
    return {
        **msgspec.to_builtins(wanted),
        "inputs": [{"name": "x", "dtype": "float32", "dims": ["n", 3]}],
        "sweep": {"dim": "n", "values": [1]},
    }


def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB, for a fixture; the test is skipped where none may be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "x", folder], check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def together(count: int, act: Callable[[int], None]) -> None:
    """Runs `act` in threads; what any of them raises is raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            act(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if failures:
        raise failures[0]


class NoParser:
    """Of a log directory whose files nobody opens."""

    def start(self, listener: Any) -> None: ...
    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None: ...
    def prioritize(self, key: str) -> None: ...
    def cancel(self, key: str) -> None: ...
    def close(self) -> None: ...
