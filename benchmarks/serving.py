"""Response times of the dashboard during and after reading a large file."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.rows import ROOT, Row
from benchmarks.tiles import tiles


@contextmanager
def server(logdir: Path, cache: Path) -> Generator[tuple[str, float]]:
    """A running dashboard: its address and the seconds until it answered."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "visualprof", "--logdir", str(logdir), "--port", "0", "--no-token"],
        cwd=ROOT,
        env={**os.environ, "VISUALPROF_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    try:
        address = next(word for word in process.stdout.readline().split() if word.startswith("http://")).rstrip("/")
        urllib.request.urlopen(f"{address}/api/v1/status", timeout=30).read()
        yield address, time.perf_counter() - start
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def serving(folder: Path) -> Iterator[Row]:
    """Answers to other users while a large file is parsed."""
    logdir = folder / "runs"
    logdir.mkdir()
    with server(logdir, folder / "cache-server") as (address, ready):
        yield Row("server ready", f"{ready:.2f} s", "at most 0.4 s", ready <= 0.4)
        (folder / "generated.json").rename(logdir / "m.json")
        took: list[float] = []
        state, answer = "waiting", dict[str, Any]()
        while state not in ("ready", "failed"):
            time.sleep(0.02)
            start = time.perf_counter()
            answer = json.loads(urllib.request.urlopen(f"{address}/api/v1/runs", timeout=30).read())
            took.append(time.perf_counter() - start)
            spans = [s for r in answer["runs"] for w in r["workers"] for s in w["spans"]]
            state = spans[0]["state"] if spans else "waiting"
        p95 = statistics.quantiles(took, n=20)[18]
        yield Row(
            f"requests while parsing ({len(took)})",
            f"p50 {statistics.median(took) * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms",
            "p95 at most 100 ms",
            p95 <= 0.1,
        )
        run = answer["runs"][0]["id"]
        for label in ("the overview over HTTP, first", "opened again"):
            start = time.perf_counter()
            urllib.request.urlopen(f"{address}/api/v1/view/overview?{urlencode({'run': run})}", timeout=60).read()
            seconds, again = time.perf_counter() - start, label == "opened again"
            bar = "at most 50 ms" if again else ""
            yield Row(label, f"{seconds * 1e3:.0f} ms", bar, not again or seconds <= 0.05)
        yield from tiles(address, run)
