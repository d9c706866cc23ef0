"""Measure a server whose users look at cached views: response times at a fixed rate, and memory after many requests.

    python -m benchmarks.busy_server

Clients are threads of another process on the same cores. Each sends its requests at fixed times, so that a slow answer
does not lower the rate.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.kineto_file import write
from benchmarks.opened_run import anonymous_bytes, cpu_s
from benchmarks.queue import started
from benchmarks.rows import Row
from benchmarks.timeline_page import wait_ready

CLIENTS, RATE, SECONDS, EVENTS = 50, 500, 8.0, 200_000
P95_MS, MAX_GROWTH_BYTES = 20, 20_000_000
VIEWS = ("overview", "operator", "kernel", "findings", "idle")
DAY_REQUESTS = 3_000


def busy_server(folder: Path) -> Iterator[Row]:
    """Measure cached views at 500 requests per second, and how much memory stays after different requests."""
    logdir = folder / "busy"
    logdir.mkdir()
    write(logdir / "run.json", EVENTS)
    with started(logdir, folder / "cache-busy", "--no-token") as (process, url):
        wait_ready(url)
        paths = [f"/api/v1/view/{view}?run=run" for view in VIEWS]
        ask(url, paths * 4)
        before_s = cpu_s(process.pid)
        took = send_at_rate(url, paths)
        cpu_ms = (cpu_s(process.pid) - before_s) / len(took) * 1e3
        p95 = statistics.quantiles(took, n=20)[18] * 1e3
        rate = len(took) / SECONDS
        ok = p95 <= P95_MS and rate >= 0.98 * RATE
        figure = f"{rate:.0f} per second, p50 {statistics.median(took) * 1e3:.1f} ms, p95 {p95:.1f} ms"
        yield Row(
            f"{CLIENTS} clients ask for cached views {RATE} times per second",
            f"{figure}, CPU of the server {cpu_ms:.2f} ms per request",
            f"p95 at most {P95_MS} ms",
            ok,
        )
        yield memory_row(url, process.pid)


def memory_row(url: str, pid: int) -> Row:
    """Compare the memory of a server after thousands of different requests with that after the first ones."""
    meta = json.loads(ask(url, ["/api/v1/timeline/meta?run=run"])[0])
    top = max(0, (meta["duration_ns"] // meta["tile_buckets"]).bit_length())
    different = [
        f"/api/v1/timeline/tile?run=run&group=0&level={top - number % 8}&index={number % 2}" for number in range(40)
    ]
    rows = [7919 * number % EVENTS // 2 for number in range(40)]
    different += [f"/api/v1/timeline/event?run=run&event={row}&arguments=0" for row in rows]
    different += [f"/api/v1/view/{view}?run=run&limit={limit}" for view in VIEWS for limit in range(50, 54)]
    ask(url, different)
    before = anonymous_bytes(pid)
    ask(url, (different * (DAY_REQUESTS // len(different) + 1))[:DAY_REQUESTS])
    growth = anonymous_bytes(pid) - before
    return Row(
        f"memory of the server after {DAY_REQUESTS:,} requests, compared with the first {len(different)}",
        f"{growth / 1e6:+.1f} MB of {before / 1e6:.0f} MB",
        f"at most +{MAX_GROWTH_BYTES / 1e6:.0f} MB",
        growth <= MAX_GROWTH_BYTES,
    )


def send_at_rate(url: str, paths: list[str]) -> list[float]:
    """Return the response times in seconds, measured in another process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_send_at_rate, (url, paths))


def _send_at_rate(url: str, paths: list[str]) -> list[float]:
    took: list[float] = []
    begin = time.perf_counter() + 0.5
    threads = [threading.Thread(target=_client, args=(url, paths, number, begin, took)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def _client(url: str, paths: list[str], number: int, begin: float, took: list[float]) -> None:
    """Send requests at fixed times; a response time counts from the time at which the request was due."""
    connection = _connect(url)
    every_s = CLIENTS / RATE
    for turn in range(int(SECONDS / every_s)):
        due = begin + (number / CLIENTS + turn) * every_s
        time.sleep(max(0.0, due - time.perf_counter()))
        _request(connection, paths[(number + turn) % len(paths)])
        took.append(time.perf_counter() - due)
    connection.close()


def ask(url: str, paths: list[str]) -> list[bytes]:
    """Return the answers to some requests, one after the other; repeat those that are still being computed."""
    connection, answers = _connect(url), list[bytes]()
    for path in paths:
        while (answer := _request(connection, path)) is None:
            time.sleep(0.05)
        answers.append(answer)
    connection.close()
    return answers


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)


def _request(connection: http.client.HTTPConnection, path: str) -> bytes | None:
    """Return an answer, `None` if it is still being computed.

    Raises:
        RuntimeError: The request failed.
    """
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"} if "/view/" in path else {})
    response = connection.getresponse()
    body = response.read()
    if response.status == 503:
        return None
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
    return body


if __name__ == "__main__":
    rows: list[Any] = []
    with tempfile.TemporaryDirectory() as name:
        for row in busy_server(Path(name)):
            print(row.line(), flush=True)
            rows.append(row)
    sys.exit(0 if all(row.ok for row in rows) else 1)
