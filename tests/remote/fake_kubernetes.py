"""The part of the Kubernetes API that a fleet uses; its pods are processes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PODS, SECRETS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets"


@dataclass
class Pod:
    """A pod. process: none while it is pending."""

    spec: dict[str, Any]
    process: subprocess.Popen[str] | None = None
    log: str = ""
    reading: threading.Lock = field(default_factory=threading.Lock)

    def phase(self) -> str:
        if self.process is None:
            return "Pending"
        if self.process.poll() is None:
            return "Running"
        self._read()
        return "Failed" if self.process.returncode else "Succeeded"

    def end(self) -> None:
        """SIGKILL."""
        if self.process:
            self.process.kill()
            self._read()

    def _read(self) -> None:
        """Wait for the end of the process and store its output."""
        with self.reading:
            if self.process and self.process.stdout and not self.process.stdout.closed:
                self.log = self.process.communicate()[0]


@dataclass
class Cluster:
    """Its objects. held: pods stay pending. asked: every request, in order."""

    folder: Path
    nodes: list[dict[str, Any]]
    held: bool = False
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    pods: dict[str, Pod] = field(default_factory=dict[str, Pod])
    specs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: list[str] = field(default_factory=list[str])

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and body of an answer."""
        kind, _, rest = path.removeprefix("/api/v1/namespaces/default/").partition("/")
        name, _, what = rest.partition("/")
        if (method, path) == ("GET", "/api/v1/nodes"):
            return 200, {"items": self.nodes}
        if method == "POST" and path == SECRETS:
            self.secrets[body["metadata"]["name"]] = body["stringData"]["order.json"]
            return 201, body
        if method == "POST" and path == PODS:
            self.specs.append(body["spec"])
            self.pods[body["metadata"]["name"]] = Pod(body["spec"], self._started(body))
            return 201, body
        if kind == "pods" and name in self.pods and method == "GET":
            phase = self.pods[name].phase()
            return 200, self.pods[name].log if what == "log" else {"status": {"phase": phase}}
        if method == "DELETE":
            if kind == "pods" and (pod := self.pods.pop(name, None)):
                pod.end()
            self.secrets.pop(name, None) if kind == "secrets" else None
            return 200, {}
        return 404, {"message": "not found"}

    def _started(self, body: dict[str, Any]) -> subprocess.Popen[str] | None:
        if self.held:
            return None
        (container,) = body["spec"]["containers"]
        (volume,) = body["spec"]["volumes"]
        order = self.folder / body["metadata"]["name"]
        order.write_text(self.secrets[volume["secret"]["secretName"]])
        command = [sys.executable, *container["command"][1:-1], str(order)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def kill(self) -> None:
        """SIGKILL for every process of a pod."""
        for pod in list(self.pods.values()):
            pod.end()


def node(name: str, **labels: str) -> dict[str, Any]:
    """A node that is ready."""
    status = {
        "allocatable": {"cpu": "3920m", "memory": "8Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    about = {"name": name, "labels": {"kubernetes.io/hostname": f"host-{name}", **labels}}
    return {"metadata": about, "spec": {}, "status": status}


@contextmanager
def kubernetes(folder: Path, *nodes: dict[str, Any]) -> Iterator[tuple[Cluster, Path]]:
    """A cluster, and the file by which clients find it."""
    cluster = Cluster(folder, list(nodes))

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path).path
            cluster.asked.append(f"{self.command} {path}")
            status, body = cluster.answer(self.command, path, json.loads(raw) if raw else {})
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [context],
        "current-context": "here",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    try:
        yield cluster, file
    finally:
        cluster.kill()
        server.shutdown()
        server.server_close()
