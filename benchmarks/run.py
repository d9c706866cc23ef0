"""Speed and memory against their bars, with the baselines measured in the same run.

    python -m benchmarks.run [--events 1000000] [--huge] [--out docs/benchmarks.md]

Every figure is a ratio to `json.loads` of the same file on the same machine in the same run, or a bound that
a user feels. `--huge` adds 10 M events (3.5 GB on disk).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.graph_page import graph_page
from benchmarks.growth import growth
from benchmarks.harness import harness
from benchmarks.kineto_file import write
from benchmarks.memory import memory_view
from benchmarks.peers import table as peers
from benchmarks.queue import queue
from benchmarks.ranks import many_collectives, many_ranks
from benchmarks.rows import ROOT, Row, measured
from benchmarks.tiles import levels, tiles
from benchmarks.timeline_page import timeline_page

LOADS = """
import json, sys, time
data = open(sys.argv[1], "rb").read()
start = time.perf_counter()
json.loads(data)
print(time.perf_counter() - start)
"""
MB = 1024 * 1024


def view(name: str, path: Path, cache: Path) -> tuple[float, int]:
    """Wall seconds and peak bytes of `visualprof view NAME`, from process start to its JSON."""
    wall, peak, out = measured(
        [sys.executable, "-m", "visualprof", "view", name, str(path), "--format", "json"],
        VISUALPROF_CACHE_DIR=str(cache),
    )
    json.loads(out)
    return wall, peak


def opening(folder: Path, events: int) -> Iterator[Row]:
    """Opening one large file: cold, all views, warm, memory."""
    path = folder / "m.json"
    write(path, events)
    size = path.stat().st_size
    yield Row("file", f"{events:,} events, {size / MB:.0f} MiB")
    cold, everything, warm, peaks, base = [], [], [], [], []
    for i in range(3):
        base.append(float(measured([sys.executable, "-c", LOADS, str(path)])[2]))
        wall, peak = view("overview", path, folder / f"cache{i}")
        cold.append(wall)
        peaks.append(peak)
        warm.append(view("overview", path, folder / f"cache{i}")[0])
        everything.append(view("all", path, folder / f"all{i}")[0])
    loads = statistics.median(base)
    yield Row("baseline: json.loads of the file", f"{loads:.2f} s")
    for what, values, bar in (
        ("`view overview`, cold cache, process start to JSON", cold, 0.25),
        ("all views, cold cache", everything, 0.35),
    ):
        ratio = statistics.median(values) / loads
        yield Row(
            what, f"{statistics.median(values):.2f} s = {ratio:.2f} x json.loads", f"at most {bar} x", ratio <= bar
        )
    second = statistics.median(warm)
    yield Row("second opening", f"{second:.2f} s", "at most 1.0 s", second <= 1.0)
    peak = max(peaks) / size
    yield Row("peak memory", f"{max(peaks) / MB:.0f} MiB = {peak:.2f} x the file", "at most 2.5 x", peak <= 2.5)
    yield from levels(path)


def huge(folder: Path) -> Iterator[Row]:
    """Ten million events."""
    path = folder / "huge.json"
    write(path, 10_000_000)
    wall, peak = view("overview", path, folder / "cache-huge")
    yield Row(
        f"10 M events, {path.stat().st_size / MB:.0f} MiB: `view overview`",
        f"{wall:.1f} s, {peak / MB:.0f} MiB",
        "at most 6 GiB",
        peak <= 6 << 30,
    )
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
        (folder / "m.json").rename(logdir / "m.json")
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
        yield from tiles(address, answer["runs"][0]["id"])


def pages(events: int) -> Iterator[Row]:
    """What a browser without a GPU makes of it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        yield Row("Trace and Graph pages", "not measured: no Chromium on PATH")
        return
    yield from timeline_page(events, chromium)
    yield from graph_page(chromium)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = [
            opening(folder, options.events),
            serving(folder),
            memory_view(folder, options.events),
            many_ranks(folder),
            many_collectives(folder),
            growth(),
            queue(folder),
            harness(),
            pages(10_000_000 if options.huge else options.events),
        ]
        for part in (*parts, *([huge(folder)] if options.huge else [])):
            for row in part:
                print(row.line(), flush=True)
                rows.append(row)
        beside = list(peers(folder, events=150_000, rounds=3))
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}"
    lines = [
        "# Benchmarks",
        "",
        f"`make bench` on {machine}. Medians of three.",
        "",
        "| what | measured | bar | |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r.what} | {r.figure} | {r.bar} | {'met' if r.ok and r.bar else '' if r.ok else 'missed'} |" for r in rows
    ]
    lines += [
        "",
        "## Beside other tools",
        "",
        "Each tool opens the same files in turns, from the start of its process to its first tables (Perfetto: until",
        "its engine, the WebAssembly of its page, has loaded it): wall time as a ratio to json.loads of the file, peak",
        "memory as a ratio to its size. All but the first file are recordings of real programs, repeated until they",
        "are large.",
        "`python -m benchmarks.peers` repeats this part alone.",
        "",
        *beside,
    ]
    options.out.write_text("\n".join(lines) + "\n")
    return 0 if all(r.ok for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
