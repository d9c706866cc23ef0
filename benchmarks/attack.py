"""Fifty clients of a server next to one attacker, for a minute.

    python -m benchmarks.attack [SECONDS]

The clients ask for what a page asks. The attacker asks for costly views of a file with 60,000 threads, sends damaged
zips and settings in base 60, and malformed requests, without a pause.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote, urlsplit

from benchmarks.queue import started

CLIENTS, THINK_S, P95_S = 50, 1.0, 0.1
ATTACKERS = 4  # connections of the attacker, some of which wait for views
RUN = "run"
SAMPLES = Path(__file__).parents[1] / "visualprof" / "samples"
ROUTES = (
    "session",
    "status",
    "runs/changes",
    "jobs",
    *(f"view/{name}?run={RUN}" for name in ("overview", "operator", "distributed", "findings")),
    f"timeline/meta?run={RUN}&minimap=0&counters=0",
)


def many_threads(path: Path, count: int = 60_000) -> None:
    """Write a file that makes views slow."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "dur": 5}
    events = [event | {"tid": i, "ts": 10 * i} for i in range(count)]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


def ask(connection: http.client.HTTPConnection, route: str, body: bytes | None = None) -> int:
    """Return the status of the answer."""
    kind = {"Content-Type": "application/json"} if body and body[:1] == b"{" else {}
    connection.request("GET" if body is None else "POST", f"/api/v1/{route}", body, kind)
    response = connection.getresponse()
    response.read()
    return response.status


def client(url: str, end: float, times: list[float], statuses: Counter[int]) -> None:
    """Ask once per second, as a page does."""
    parts, chance = urlsplit(url), random.Random()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    time.sleep(chance.uniform(0, THINK_S))
    while time.monotonic() < end:
        began = time.perf_counter()
        statuses[ask(connection, chance.choice(ROUTES))] += 1
        times.append(time.perf_counter() - began)
        time.sleep(chance.uniform(0.5, 1.5) * THINK_S)


def attack(url: str, end: float, statuses: Counter[int]) -> None:
    """Send hostile requests."""
    parts = urlsplit(url)
    for i in itertools.count(random.randrange(10_000)):
        if time.monotonic() >= end:
            return
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        name = ("findings", "critical", "flame", "overview", "operator")[i % 5]
        statuses[ask(connection, f"view/{name}?run=attack&step_range=x{i}*")] += 1
        statuses[ask(connection, f"view/{name}?run=attack")] += 1
        statuses[ask(connection, f"uploads?name={quote('a.npz')}", b"PK\x03\x04" + random.randbytes(50_000))] += 1
        settings = json.dumps({"case": "digits", "settings": {"a": "1:" * 2000 + "1"}}).encode()
        statuses[ask(connection, "cases/jobs", settings)] += 1
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nX: a\r\n folded\r\n\r\n")
            raw.recv(1000)


def main(seconds: float) -> int:
    """Print the figures; return 1 if a limit is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(SAMPLES / "pytorch-ddp-cpu", folder / "runs" / RUN)
        many_threads(folder / "runs" / "attack" / "trace.json")
        with started(folder / "runs", folder / "cache", "--no-token") as (_, url):
            parts = urlsplit(url)
            warm = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
            for route in (*ROUTES, "view/operator?run=attack"):
                while (status := ask(warm, route)) in (404, 503):  # it is not found before the first scan
                    time.sleep(0.2)
                assert status == 200, route
            end, times = time.monotonic() + seconds, list[float]()
            served, attacked = Counter[int](), Counter[int]()
            for _ in range(ATTACKERS):
                threading.Thread(target=attack, args=(url, end, attacked), daemon=True).start()
            threads = [threading.Thread(target=client, args=(url, end, times, served)) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[18]
    print(f"{len(times):,} answers in {seconds:g} s: p50 {p50 * 1e3:.0f} ms, p95 {p95 * 1e3:.0f} ms; {dict(served)}")
    print(f"attacker: {dict(attacked)}")
    return int(p95 > P95_S or any(status >= 500 for status in served))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
