"""Clients of a team's server: pages that poll, and machines that take tasks and measure nothing."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.rows import Row

BELL = 3  # a page asks for notices every third time
WORK_S = 8.0
P95_S = 0.2


@dataclass
class Asked:
    """Requests with their response times and failures."""

    took: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    refused: Counter[str] = field(default_factory=Counter[str])

    def all(self) -> list[float]:
        """Seconds of every answer."""
        return [seconds for took in self.took.values() for seconds in took]

    def p95(self) -> float:
        """Seconds."""
        return statistics.quantiles(self.all(), n=20)[18]

    def row(self, what: str, more: str = "") -> Row:
        """A line of the report."""
        return Row(what, self.line() + more, "p95 at most 200 ms, no error", self.p95() <= P95_S and not self.refused)

    def line(self) -> str:
        """Its figure."""
        took = self.all()
        wrong = ", ".join(f"{count} x {name}" for name, count in self.refused.items()) or "no error"
        return (
            f"{len(took):,} answers, p50 {statistics.median(took) * 1e3:.0f} ms, p95 {self.p95() * 1e3:.0f} ms; {wrong}"
        )


class Browser:
    """The page of a user, with a persistent connection; for one thread."""

    def __init__(self, url: str, cookie: str, asked: Asked) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._headers = {
            "Cookie": f"visualprof={cookie}",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/json",
        }
        self._asked = asked
        self.known: dict[str, int | None] = {}
        self.bytes = 0
        self._headers["X-Visualprof-Token"] = self("GET", "session")["token"]

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        start = time.perf_counter()
        self._connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), self._headers)
        response = self._connection.getresponse()
        data = response.read()
        name = path.partition("?")[0]
        self._asked.took.setdefault(name, []).append(time.perf_counter() - start)
        self.bytes = len(data)
        if response.status >= 300:
            self._asked.refused[f"{method} {name} {response.status} {data[:100]!r}"] += 1
            return None
        return json.loads(gzip.decompress(data) if response.getheader("Content-Encoding") == "gzip" else data)

    def changes(self, what: str) -> Any:
        """Return the changes of a list since the last request of this page."""
        revision = self.known.get(what)
        answer = self("GET", what if revision is None else f"{what}?since={revision}")
        self.known[what] = answer["revision"] if answer else None
        return answer

    def poll(self, times: int) -> None:
        """All that an open page asks for."""
        self.changes("runs/changes")
        self.changes("jobs")
        if times % BELL == 0:
            self("GET", "notices")


class Machine:
    """Take tasks like an agent, report once a second, and finish them."""

    def __init__(self, url: str, token: str, asked: Asked) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._asked, self._token = asked, token

    def __call__(self, path: str, body: Any) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body)
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        start = time.perf_counter()
        self._connection.request("POST", f"/api/v1/agent/{path}", data, headers)
        response = self._connection.getresponse()
        text, took = response.read(), time.perf_counter() - start
        route = path.partition("?")[0].rpartition("/")[2]
        if route != "lease":
            self._asked.took.setdefault(route, []).append(took)
        if response.status == 503 and response.getheader("Retry-After"):
            time.sleep(random.uniform(0.5, 1.5))  # as the agent does
            self._asked.took.setdefault("asked to retry", []).append(took)
        elif response.status >= 300:
            self._asked.refused[f"{route} {response.status} {text[:80]!r}"] += 1
        return json.loads(text) if text and response.status < 300 else None

    def work(self, over: threading.Event, ended: Callable[[], object], seconds: float = WORK_S) -> None:
        """Until then."""
        while not over.is_set():
            lease = self("lease", {"devices": ["cpu"], "wait_s": 5.0})
            if lease:
                self._do(lease, over, seconds)
                ended()

    def _do(self, lease: dict[str, Any], over: threading.Event, seconds: float) -> None:
        task, query, text = f"tasks/{lease['task']}", f"?lease={lease['lease']}", b"a line of its log\n"
        for i in range(int(seconds)):
            if over.wait(1.0):
                return
            self(f"{task}/log{query}&offset={i * len(text)}", text)
            point = {"batch": i + 1, "qps": 10.0, "p50_ns": 5, "stable": True, "start_ns": i, "latencies": [0, 9]}
            self(f"{task}/points{query}", point)
            if i % 3 == 0:
                beat = {"task": lease["task"], "lease": lease["lease"], "phase": "measuring", "progress": i / seconds}
                self("heartbeat", {"tasks": [beat]})
        self(f"{task}/finish{query}", {"state": "failed", "reason": "crashed", "warnings": [], "files": []})

    def close(self) -> None:
        self._connection.close()
