"""Speed and memory against their bars, with the baselines measured in the same run.

    python -m benchmarks.run [--peers] [--huge] [--events 1000000] [--out build/benchmarks.md]

Every figure is a ratio to `json.loads` of the same file on the same machine in the same run, or a bound that a user
feels. `--peers` opens the same files with the tools beside ours; `--huge` adds 10 M events (3.7 GB on disk).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks import peers
from benchmarks.graph_page import graph_page
from benchmarks.harness import harness
from benchmarks.kinds import KINDS, LARGE, written
from benchmarks.large import bounds, huge, large
from benchmarks.memory import memory_view
from benchmarks.opening import Opened, Way, opened, ways
from benchmarks.opening import rows as figures
from benchmarks.queue import queue
from benchmarks.ranks import many_collectives, many_ranks
from benchmarks.report import document, load
from benchmarks.rows import ROOT, Row
from benchmarks.tiles import levels, tiles
from benchmarks.timeline_page import timeline_page

ROUNDS, ROUNDS_SMALLER = 5, 3


def openings(folder: Path, events: int, tools: dict[str, Way]) -> Iterator[Opened]:
    """Every kind of file, opened in every way."""
    for kind, path in written(folder, KINDS, events).items():
        large = kind in LARGE
        yield opened(kind, path, ROUNDS if large else ROUNDS_SMALLER, ways(every=large) | (tools if large else {}))
        if kind != "generated":
            path.unlink()


@contextmanager
def server(logdir: Path, cache: Path) -> Generator[tuple[str, float]]:
    """A running dashboard: its address and the seconds until it answered."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "visualprof", "--logdir", str(logdir), "--port", "8971"],
        cwd=ROOT,
        env={**os.environ, "VISUALPROF_CACHE_DIR": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                urllib.request.urlopen("http://127.0.0.1:8971/api/v1/status", timeout=1).read()
                break
            except OSError:
                time.sleep(0.02)
        yield "http://127.0.0.1:8971", time.perf_counter() - start
    finally:
        process.terminate()
        process.wait(10)


def serving(folder: Path) -> Iterator[Row]:
    """Answers to other users while a large file is parsed."""
    logdir = folder / "runs"
    logdir.mkdir()
    with server(logdir, folder / "cache-server") as (address, ready):
        yield Row("server ready", f"{ready:.2f} s", "at most 1.5 s", ready <= 1.5)
        (folder / "generated.json").rename(logdir / "m.json")
        took: list[float] = []
        state, answer = "waiting", dict[str, Any]()
        stop = threading.Event()
        while state not in ("ready", "failed") and not stop.wait(0.02):
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
        for what in ("the overview over HTTP, first", "opened again"):
            start = time.perf_counter()
            urllib.request.urlopen(f"{address}/api/v1/view/overview?{urlencode({'run': run})}", timeout=60).read()
            seconds, again = time.perf_counter() - start, what == "opened again"
            bar = "at most 50 ms" if again else ""
            yield Row(what, f"{seconds * 1e3:.0f} ms", bar, not again or seconds <= 0.05)
        yield from tiles(address, run)


def pages(events: int) -> Iterator[Row]:
    """What a browser without a GPU makes of it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        yield Row("Trace and Graph pages", "not measured: no Chromium on PATH")
        return
    yield from timeline_page(events, chromium)
    yield from graph_page(chromium)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "benchmarks.md")
    options = parser.parse_args()
    before, rows = load(), list[Row]()
    tables: dict[bool, list[list[Row]]] = {True: [], False: []}
    beside: list[list[Row]] = []
    tools = peers.tools() if options.peers else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in openings(folder, options.events, tools):
            tables[file.kind in LARGE].append(_said(figures(file)))
            if file.kind in LARGE and tools:
                beside.append(_said(peers.beside(file, tools)))
        own = folder / "generated.json"
        parts = [
            bounds(own),
            levels(own),
            serving(folder),
            large(folder),
            *([huge(folder)] if options.huge else []),
            memory_view(folder, options.events),
            many_ranks(folder),
            many_collectives(folder),
            queue(folder),
            harness(),
            pages(10_000_000 if options.huge else options.events),
        ]
        for part in parts:
            rows += _said(part)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(document(before, tables[True], tables[False], beside, rows))
    return 0 if all(row.ok for table in (*tables[True], *tables[False], rows) for row in table) else 1


def _said(rows: Iterable[Row]) -> list[Row]:
    """The rows, printed as they come."""
    said: list[Row] = []
    for row in rows:
        print(row.line(), flush=True)
        said.append(row)
    return said


if __name__ == "__main__":
    sys.exit(main())
