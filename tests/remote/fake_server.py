"""The server's side of docs/agent-protocol.md in a few lines, with the faults that a network has."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from visualprof.remote.protocol import File, Input, Intervals, Lease, Measure, ModelRef, Profile, Request, Spec

TOKEN = "vp_r_right"
FAST = Intervals(lease_s=1.0, heartbeat_s=0.35, poll_s=2.0)


@dataclass
class Task:
    """State of a task on the server."""

    lease: Lease
    phases: list[str] = field(default_factory=list)
    progress: list[float] = field(default_factory=list)
    log: bytes = b""
    points: list[dict[str, Any]] = field(default_factory=list)
    announced: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    finishes: int = 0
    cancel: bool = False
    stale: bool = False
    beaten: float = 0.0

    @property
    def result(self) -> dict[str, bytes]:
        """Files of the finished task."""
        assert self.report is not None
        return {name: self.files[name] for name in self.report["files"]}

    def json(self, name: str) -> Any:
        return json.loads(self.result[name])

    def lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in self.result[name].splitlines()]


class FakeServer:
    """Serves on a free port until it is closed.

    down: every connection is closed without an answer. cut_after: the next PUT is cut off after so many bytes.
    damage: the next PUT arrives with another byte. full: PUT is answered 507. unfit: `finish` is answered 422 so often.
    redirect: every POST is sent on to there.
    """

    def __init__(self, intervals: Intervals = FAST) -> None:
        self.intervals = intervals
        self.tasks: dict[str, Task] = {}
        self.agents: dict[str, str] = {}  # by token
        self.registrations: list[dict[str, Any]] = []
        self.beats: list[dict[str, Any]] = []
        self.waiting: list[Lease] = []
        self.polls: list[list[str]] = []
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.down = False
        self.cut_after = -1
        self.cut_get_after = -1
        self.damage = False
        self.full = False
        self.full_at_finish = False
        self.unfit = 0
        self.redirect = ""
        self.busy: list[tuple[int, str]] = []  # status and Retry-After of the next POSTs
        self.log_max = 16 << 20
        self.changed = threading.Condition()
        self._http = _Http(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.down = True
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def submit(
        self,
        model: bytes,
        name: str = "model.onnx",
        inputs: dict[str, bytes] | None = None,
        spec: Spec | None = None,
        given: list[Input] | None = None,
        **request: Any,
    ) -> Task:
        """Makes a task wait."""
        blobs = {name: model, **(inputs or {})}
        files = [self._file("input" if each != name else "model", each, data) for each, data in blobs.items()]
        wish: dict[str, Any] = {
            "measure": Measure(0.02, 0.05, 2.0, 20),
            "profile": Profile(0),
            "monitor_interval_s": 0.02,
            **request,
        }
        spec = spec or Spec("s1", "onnxruntime")
        number = len(self.tasks) + 1
        asked = Request(f"key{number}", ModelRef(files[0].sha256, name), [spec], inputs=given or [], **wish)
        lease = Lease(
            task=f"t{number}",
            job=f"j{number}",
            run=f"model-j{number}/{spec.id}",
            attempt=1,
            lease=f"lease{number}",
            spec=spec,
            request=asked,
            files=files,
        )
        return self.wait_for([lease])[0]

    def submit_specs(self, model: bytes, *specs: str, **request: Any) -> list[Task]:
        """Makes a job wait, with a task for each of the specs."""
        wanted = [Spec(name, "onnxruntime") for name in specs]
        asked = Request("key", ModelRef("", "model.onnx"), wanted, profile=Profile(0), **request)
        files = [self._file("model", "model.onnx", model)]
        return self.wait_for(
            [
                Lease(
                    task=f"j1.{s.id}",
                    job="j1",
                    run=f"model-j1/{s.id}",
                    attempt=1,
                    lease=f"lease-{s.id}",
                    spec=s,
                    request=asked,
                    files=files,
                )
                for s in wanted
            ]
        )

    def wait_for(self, leases: list[Lease]) -> list[Task]:
        """Lets leases wait for an agent; one of a task that is known is a further attempt of it."""
        tasks = [Task(lease) for lease in leases]
        with self.changed:
            self.tasks |= {task.lease.task: task for task in tasks}
            self.waiting += leases
            self.changed.notify_all()
        return tasks

    def _file(self, role: Any, name: str, data: bytes) -> File:
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return File(role, name, f"/api/v1/agent/files/blobs/{sha256}?signature=good", len(data), sha256)

    def wait(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Until something is so."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s"
            time.sleep(0.01)

    def finished(self, task: Task, seconds: float = 60.0) -> dict[str, Any]:
        """The report of a task, once it is there."""
        self.wait(lambda: task.report, seconds)
        assert task.report is not None
        return task.report


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fake: FakeServer) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20

    @property
    def fake(self) -> FakeServer:
        assert isinstance(self.server, _Http)
        return self.server.fake

    def log_message(self, format: str, *_: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def parse_request(self) -> bool:
        if self.fake.down:
            self.close_connection = True
            return False
        return super().parse_request()

    def answer(self, status: int, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        if self.fake.down:  # cut while it was working
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.fake.requests.append((self.command, parts.path, dict(self.headers.items())))
        return parts.path, query

    def do_GET(self) -> None:
        path, _ = self.begin()
        data = self.fake.blobs[path.rpartition("/")[2]]
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match else 0
        rest = data[start:]
        self.send_response(206 if match else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.fake.cut_get_after >= 0:
            rest, self.fake.cut_get_after = rest[: self.fake.cut_get_after], -1
            self.close_connection = True
        self.wfile.write(rest)

    def do_PUT(self) -> None:
        path, _ = self.begin()
        _, task, name = path.removeprefix("/put").split("/", 2)
        name = unquote(name)
        span = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", self.headers["Content-Range"])
        assert span
        length = int(self.headers["Content-Length"])
        assert length == int(span[2]) - int(span[1]) + 1
        if self.fake.cut_after >= 0:
            self.rfile.read(self.fake.cut_after)  # of a part that is cut off nothing is kept
            self.fake.cut_after = -1
            self.close_connection = True
            return None
        data = self.rfile.read(length)
        if self.fake.full:
            return self.answer(507, {"error": "the disk is full", "hint": "free space"})
        held = self.fake.tasks[task].files.get(name, b"")
        if len(held) != int(span[1]):
            return self.answer(409, {"error": "elsewhere", "size": len(held)})
        if self.fake.damage:
            self.fake.damage, data = False, bytes([data[0] ^ 1]) + data[1:]
        self.fake.tasks[task].files[name] = held + data
        return self.answer(201, {"size": len(held) + len(data)})

    def do_POST(self) -> None:
        path, query = self.begin()
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.fake.redirect:
            return self.answer(302, headers={"Location": self.fake.redirect + self.path})
        if self.fake.busy:
            status, after = self.fake.busy.pop(0)
            return self.answer(status, {"error": "busy"}, {"Retry-After": after})
        action = path.removeprefix("/api/v1/agent/")
        if action == path:
            return self.answer(404, {"error": "no such address"})
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if action == "register":
            return self.register(json.loads(raw), token)
        if token not in self.fake.agents:
            return self.answer(401, {"error": "not registered here"})
        if action == "heartbeat":
            return self.heartbeat(json.loads(raw))
        if action == "lease":
            return self.lease(json.loads(raw))
        _, name, what = action.split("/")
        task = self.fake.tasks[name]
        if task.stale or query.get("lease") != task.lease.lease:
            return self.answer(409, {"error": "this lease is over"})
        return getattr(self, f"task_{what}")(task, raw, query)

    def register(self, body: dict[str, Any], token: str) -> None:
        if token != TOKEN:
            return self.answer(401, {"error": "this is not the server's token"})
        self.fake.registrations.append(body)
        is_known = self.fake.agents.get(body.get("token", "")) == body.get("agent")
        agent = body["agent"] if "agent" in body and is_known else f"a{len(self.fake.registrations)}"
        agent_token = body["token"] if "token" in body and is_known else f"vp_a_{agent}"
        self.fake.agents[agent_token] = agent
        return self.answer(200, {"agent": agent, "token": agent_token, "intervals": asdict(self.fake.intervals)})

    def heartbeat(self, body: dict[str, Any]) -> None:
        self.fake.beats.append(body)
        cancel, stale = [], []
        for each in body["tasks"]:
            task = self.fake.tasks[each["task"]]
            if task.stale or each["lease"] != task.lease.lease:
                stale.append(each["task"])
                continue
            task.beaten = time.monotonic()
            task.phases.append(each["phase"])
            task.progress.append(each["progress"])
            cancel += [each["task"]] * task.cancel
        self.answer(200, {"cancel": cancel, "stale": stale, "intervals": asdict(self.fake.intervals)})

    def lease(self, body: dict[str, Any]) -> None:
        end = time.monotonic() + min(body["wait_s"], self.fake.intervals.poll_s)
        self.fake.polls.append(body["devices"])
        with self.fake.changed:
            while not self.fake.down:
                for lease in self.fake.waiting:
                    if lease.spec.device in (*body["devices"], body["begun"].get(lease.job)):
                        self.fake.waiting.remove(lease)
                        self.fake.tasks[lease.task].beaten = time.monotonic()
                        return self.answer(200, asdict(lease))
                if time.monotonic() >= end:
                    break
                self.fake.changed.wait(min(0.1, max(0.0, end - time.monotonic())))
        return self.answer(204)

    def task_log(self, task: Task, raw: bytes, query: dict[str, str]) -> None:
        offset = int(query["offset"])
        if offset > len(task.log):
            return self.answer(409, {"error": "a gap", "size": len(task.log)})
        task.log = (task.log[:offset] + raw)[: self.fake.log_max]
        cut = {"cut": True} if len(task.log) == self.fake.log_max else {}
        return self.answer(200, {"size": len(task.log), **cut})

    def task_points(self, task: Task, raw: bytes, _: dict[str, str]) -> None:
        task.points.append(json.loads(raw))
        self.answer(200, {})

    def task_uploads(self, task: Task, raw: bytes, _: dict[str, str]) -> None:
        answer = []
        for file in json.loads(raw)["files"]:
            task.announced[file["name"]] = file
            task.files.setdefault(file["name"], b"")
            url = f"/put/{task.lease.task}/{quote(file['name'], safe='')}"
            answer.append({"name": file["name"], "url": url, "have": len(task.files[file["name"]])})
        self.answer(200, {"files": answer})

    def task_finish(self, task: Task, raw: bytes, _: dict[str, str]) -> None:
        body = json.loads(raw)
        task.finishes += 1
        if self.fake.full_at_finish and body["files"]:
            return self.answer(507, {"error": "the disk is full", "hint": "free space"})
        for name in body["files"]:
            if self.fake.unfit or hashlib.sha256(task.files[name]).hexdigest() != task.announced[name]["sha256"]:
                self.fake.unfit = max(0, self.fake.unfit - 1)
                task.files[name] = b""
                return self.answer(422, {"error": f"{name} differs from its sha256"})
        task.report = body
        return self.answer(200, {})
