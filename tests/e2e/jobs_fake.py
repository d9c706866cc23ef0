"""A server that plays the Run, Agents and Evaluation pages' part of the API, in front of a real dashboard.

What it answers is laid out by the structs of `visualprof.server.api`; everything else goes through to the dashboard.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from tests.e2e.jobs_data import LOG, Json, agents, job, jobs, points, request, task
from tests.e2e.live import Dashboard
from tests.remote.draft_sites import Known
from visualprof.remote.protocol import DTYPES, Capabilities, Request
from visualprof.remote.queue.check.matching import eligible_agents
from visualprof.remote.queue.draft.compose import compose, draft_from_request
from visualprof.remote.queue.draft.forms import CheckedDraft, Draft
from visualprof.remote.queue.store.records import Agent
from visualprof.server.api.agents import AgentsAnswer
from visualprof.server.api.evaluation import ReportsAnswer
from visualprof.server.api.job_logs import LogAnswer
from visualprof.server.api.job_rows import JobAnswer, JobsAnswer
from visualprof.server.api.jobs import BackendsAnswer, FreedAnswer, measure_entries
from visualprof.server.api.uploads import FilesAnswer, UploadAnswer

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


BACKENDS: list[tuple[str, str, list[str], list[str], Json]] = [
    ("megengine", "megengine", ["megengine"], [".mge"], {}),
    ("onnxruntime", "onnxruntime", ["onnx"], [".onnx"], {"optimization": ["disable", "basic", "extended", "all"]}),
    ("openvino", "openvino", ["onnx", "openvino"], [".onnx", ".xml"], {"hint": ["latency", "throughput"]}),
    ("torch", "torch", ["torchscript", "pt2"], [".pt", ".pt2"], {}),
]


class JobsFake:
    """The API of jobs with a fixed cast; what the page sends is kept in `received`.

    held: names whose upload is answered late. refusals: answers of the next submissions.

    Args:
        dashboard: answers everything else.
    """

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.agents = agents()
        self._requests: dict[str, Json] = {}
        self.jobs = jobs()
        self.problem: str | None = None
        self.errors: list[Json] = []
        self.warnings: list[Json] = []
        self.received: list[tuple[str, str, Any]] = []
        self.uploads: dict[str, Json] = {}
        self.kept: dict[str, Json] = {}  # what was uploaded last, by blob
        self.log = LOG
        self.token = "3f9c1d0a7b5e4c2f8d6a"
        self.revision = 1
        self.held: set[str] = set()
        self.refusals: list[tuple[int, Json]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def stop(self) -> None:
        """Ends it, not the dashboard."""
        self._server.shutdown()
        self._server.server_close()

    def sent(self, method: str, path: str) -> list[Any]:
        """Bodies of the requests of that kind, in their order."""
        return [body for m, p, body in self.received if (m, p) == (method, path)]

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Any, type | None] | None:
        """Return status, answer and content type, `None` for requests that the dashboard answers."""
        parts = path.split("/")
        kind = {
            "uploads": self._upload,
            "jobs": self._jobs,
            "tasks": self._tasks,
            "agents": self._agents,
            "backends": self._backends,
            "evaluation": self._evaluation,
        }.get(parts[0])
        if kind is None:
            return None
        content = json.loads(body) if body and parts[0] != "uploads" else None
        self.received.append((method, path, content))
        return kind(method, parts[1:], query, content)

    def _upload(self, method: str, parts: list[str], query: dict[str, str], content: Any) -> tuple[int, Any, Any]:
        if parts == ["known"]:
            return 200, {"files": []}, FilesAnswer
        name = query["name"]
        if name in self.held:
            time.sleep(3)
        if name in self.uploads:
            self.kept[self.uploads[name]["blob"]] = self.uploads[name]
            return 201, self.uploads[name], UploadAnswer
        return (
            422,
            {"error": f"{name}: no model format recognizes the content", "hint": "ONNX, MegEngine and TorchScript are"},
            None,
        )

    def _jobs(self, method: str, parts: list[str], query: dict[str, str], content: Any) -> tuple[int, Any, Any]:
        if parts == ["draft"]:
            return 200, self._drafted(content), CheckedDraft
        if not parts and method == "POST" and self.refusals:
            return *self.refusals.pop(0), None
        if not parts and method == "POST":
            return 201, self._submit(content), JobAnswer
        if not parts:
            answer = {
                "revision": self.revision,
                "since": None,
                "jobs": self.jobs,
                "waits": {},
                "leaving": {},
                "problem": self.problem,
                "hint": None,
            }
            return 200, answer, JobsAnswer
        found = next((row for row in self.jobs if row["id"] == parts[0]), None)
        if found is None:
            return 404, {"error": f"there is no job {parts[0]}"}, None
        if parts[1:] == ["files"]:
            blob = self._answer_of(found)["request"]["model"]["blob"]
            return 200, {"files": [model_upload(found["model"]) | {"blob": blob}]}, FilesAnswer
        if parts[1:] == ["draft"]:
            asked = msgspec.convert(self._answer_of(found)["request"], Request)
            return 200, msgspec.to_builtins(draft_from_request(asked, self._known().machines)), Draft
        if parts[1:] == ["space"] or method == "DELETE":
            self.jobs = [row for row in self.jobs if method != "DELETE" or row is not found]
            self.revision += method == "DELETE"
            return 200, {"runs": [t["run"] for t in found["tasks"] if t["run"]], "size_bytes": 12_345_678}, FreedAnswer
        if parts[1:] in (["cancel"], ["retry"]):
            found["state"] = {"cancel": "cancelled", "retry": "waiting"}[parts[1]]
            for t in found["tasks"]:
                t["state"] = found["state"]
            self.revision += 1
        return 200, self._answer_of(found), JobAnswer

    def _known(self) -> Known:
        """Its files and machines, as the rules of a real server see them."""
        blobs = {request()["model"]["blob"]: model_upload(), **self.kept}
        same = ("kind", "name", "size_bytes")
        files = {b: {**{key: u[key] for key in same}, **(u["model"] or u["array"] or {})} for b, u in blobs.items()}
        machines = [
            Agent(
                id=row["id"],
                owner=None,
                name=row["name"],
                public=row["public"],
                local=row["local"],
                address=row["address"],
                capabilities=msgspec.convert(row["capabilities"], Capabilities),
                registered_ns=row["registered_ns"],
                seen_ns=time.time_ns() if row["online"] else 0,
                standing=row["standing"],
            )
            for row in self.agents
        ]
        return Known(files, machines)

    def _drafted(self, content: Json) -> Json:
        """Return the answer of a real server to a draft, with the errors of this one added."""
        answer = msgspec.to_builtins(compose(msgspec.convert(content, Draft), self._known()))
        answer["errors"] += [{"code": "", **error} for error in self.errors]
        answer["warnings"] += self.warnings
        return answer

    def _submit(self, content: Json) -> Json:
        known = next((row for row in self.jobs if row["id"] == f"j-{content['key'][:6]}"), None)
        if known is None:
            tasks = [
                task(f"t-new-{i}", "waiting", spec=s["id"], backend=s["backend"], agent=None, agent_name=None)
                for i, s in enumerate(content["specs"])
            ]
            known = job(
                f"j-{content['key'][:6]}", "waiting", tasks, name=content["name"], model=content["model"]["name"]
            )
            self.jobs.insert(0, known)
            self._requests[known["id"]] = content
            self.revision += 1
        return self._answer_of(known)

    def _waits_of(self, row: Json, unserved: list[str]) -> Json:
        waiting = (task for task in row["tasks"] if task["state"] == "waiting")
        turn = {"reason": "turn", "n": 1, "of": 1}
        return {task["id"]: {"reason": "machine"} if task["spec"] in unserved else turn for task in waiting}

    def _answer_of(self, row: Json) -> Json:
        asked = self._requests.get(row["id"], request(row["name"]))
        job_view = self._known()
        online = [machine for machine in job_view.machines if machine.online(job_view.intervals.lease_s)]
        unserved = [spec.id for spec in msgspec.convert(asked, Request).specs if not eligible_agents(spec, online)]
        return {
            "job": row,
            "request": asked,
            "points": points(row),
            "unserved": unserved,
            "results": [],
            "verdicts": [],
            "waits": self._waits_of(row, unserved),
            "kept": False,
            "removed_ns": None,
        }

    def _tasks(self, method: str, parts: list[str], query: dict[str, str], content: Any) -> tuple[int, Any, Any]:
        offset, data = int(query.get("offset", 0)), self.log.encode()
        ended = not any(t["id"] == parts[0] and t["state"] == "running" for row in self.jobs for t in row["tasks"])
        answer = {
            "text": data[offset:].decode(),
            "offset": offset,
            "next_offset": len(data),
            "size_bytes": len(data),
            "ended": ended,
            "cut": 0,
        }
        return 200, answer, LogAnswer

    def _agents(self, method: str, parts: list[str], query: dict[str, str], content: Any) -> tuple[int, Any, Any]:
        found = next((row for row in self.agents if parts and row["id"] == parts[0]), None)
        if method == "PATCH" and found:
            found.update(content)
        if parts == ["token"]:
            self.token = "another"
        if method == "DELETE" and found:
            self.agents.remove(found)
        answer = {
            "revision": self.revision,
            "agents": self.agents,
            "command": f"visualprof agent --server http://192.168.7.2:8040 --token {self.token}",
            "token_hidden": False,
            "by_code": False,
            "install": "visualprof agent install-runtime onnxruntime==1.31.1",
            "local_agent": any(row["local"] for row in self.agents),
        }
        return 200, answer, AgentsAnswer

    def _backends(self, method: str, parts: list[str], query: dict[str, str], content: Any) -> tuple[int, Any, Any]:
        entries = [
            {
                "name": name,
                "package": package,
                "formats": formats,
                "suffixes": suffixes,
                "precisions": ["f32"],
                "options": options,
            }
            for name, package, formats, suffixes, options in BACKENDS
        ]
        answer = {"backends": entries, "dtypes": list(DTYPES), "measures": msgspec.to_builtins(measure_entries())}
        return 200, answer, BackendsAnswer

    def _evaluation(self, method: str, parts: list[str], query: dict[str, str], content: Any) -> tuple[int, Any, Any]:
        return 200, {"revision": self.revision, "reports": []}, ReportsAnswer


def model_upload(name: str = "resnet10_dynbatch.onnx", *more: Json, **changes: Any) -> Json:
    """An ONNX model with one input of a named batch; `more` are further inputs."""
    model = {
        "format": "onnx",
        "inputs": [{"name": "input", "dtype": "float32", "dims": ["batch", 3, 96, 96]}, *more],
        "outputs": [{"name": "logits", "dtype": "float32", "dims": ["batch", 10]}],
        "dims": {"batch": 1},
        "backends": ["onnxruntime", "openvino"],
        "warnings": [],
        "external": [],
        "fixed_inputs": changes.get("format", "onnx") == "onnx",
    } | changes
    return {
        "blob": "b" * 64,
        "name": name,
        "size_bytes": 1_290_000,
        "kind": "model",
        "model": model,
        "array": None,
        "graph": "uploads/resnet10_dynbatch.onnx",
    }


def array_upload(name: str, dtype: str, *shape: int) -> Json:
    return {
        "blob": f"{abs(hash(name)):064x}"[:64],
        "name": name,
        "size_bytes": 4096,
        "kind": "array",
        "model": None,
        "array": {"dtype": dtype, "shape": list(shape)},
        "graph": None,
    }


def part_upload(name: str, size_bytes: int) -> Json:
    """A file with weights of a model."""
    return array_upload(name, "", 1) | {"kind": "part", "array": None, "size_bytes": size_bytes}


def _handler(fake: JobsFake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            path = unquote(url.path)
            found = None
            if path.startswith("/api/v1/"):
                found = fake.answer(self.command, path.removeprefix("/api/v1/"), query, body)
            if found is None:
                return self._forward(body)
            status, answer, kind = found
            if kind is not None:
                msgspec.convert(answer, kind)  # the fake keeps to the contract
            return self._send(status, {"Content-Type": "application/json"}, json.dumps(answer).encode())

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def _forward(self, body: bytes) -> None:
            headers = {
                k: v
                for k, v in self.headers.items()
                if k.lower() in ("if-none-match", "content-type", "x-visualprof-token")
            }
            asked = urllib.request.Request(
                fake.dashboard.url.rstrip("/") + self.path, body or None, headers, method=self.command
            )
            try:
                with _DIRECT.open(asked, timeout=20) as response:
                    self._send(response.status, dict(response.headers), response.read())
            except urllib.error.HTTPError as error:
                self._send(error.code, dict(error.headers), error.read())

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for key, value in headers.items():
                if key.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                    self.send_header(key, value)
            if status != 304:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if status != 304:
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
