"""Measure the Trace page in a headless browser without a GPU, against its bars.

    python -m benchmarks.timeline_page [--events 1000000] [--huge] [--chromium /usr/bin/chromium]

Needs `pip install playwright`, a system Chromium and a built page. The trace has 24 threads of two lanes, all of them
busy, so that at any zoom used here every pixel of every lane has a slice of its own. `--huge` takes 10 M events.
`--base` lays a second trace of as many events below it, and half of the tracks of both are in sight.
The server is started anew on its cache before the page is opened: what is timed is what a user meets the next morning.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.rows import ROOT, Row

THREADS, NAMES, HUGE = 24, 200, 10_000_000
# Ten tracks of each.
PINNED = "~".join(f"{worker}.{track}" for worker in (0, -1) for track in range(10))
MIB = 1024 * 1024
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-precise-memory-info",
]
FRAMES = """async (ms) => {
  const times = [];
  const end = performance.now() + ms;
  for (let now = performance.now(); now < end; ) { now = await new Promise(requestAnimationFrame); times.push(now); }
  return times;
}"""


@dataclass
class Tiles:
    """Tile answers that the page received: durations in ms, sizes, and entries by address."""

    ms: list[float] = field(default_factory=list[float])
    sizes: list[int] = field(default_factory=list[int])
    entries: dict[str, int] = field(default_factory=dict[str, int])


def write_trace(path: Path, events: int) -> None:
    """A Kineto-like file: operators of 8 us on every thread, each with an inner one."""
    pairs = max(1, events // (2 * THREADS))
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "baseTimeNanoseconds": 1711964646000000000, "traceEvents": [\n')
        for thread in range(THREADS):
            lines: list[str] = []
            for i in range(pairs):
                ts, kind = 1000 + 10 * i + thread * 0.1, (i * 7 + thread) % NAMES
                head = f'{{"ph":"X","cat":"cpu_op","pid":1,"tid":{thread + 1},"name":"aten::op'
                lines.append(f'{head}{kind}","ts":{ts:.1f},"dur":8.0,"args":{{"External id":{i}}}}},\n')
                lines.append(f'{head}{kind}_inner","ts":{ts + 1:.1f},"dur":5.5}},\n')
                if len(lines) >= 20_000:
                    file.write("".join(lines))
                    lines.clear()
            file.write("".join(lines))
        step = (
            f'{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":999,"dur":{10 * pairs}}}'
        )
        file.write(step + "\n]}\n")


@contextmanager
def server(folder: Path, cache: Path) -> Generator[str]:
    """A server on the folder, ready when its trace is parsed or found in the cache."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "visualprof", "--logdir", str(folder), "--port", str(port)]
    env = {**os.environ, "VISUALPROF_CACHE_DIR": str(cache)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}/"
    try:
        wait_ready(base)
        yield base
    finally:
        process.terminate()
        process.wait()


def wait_ready(base: str) -> None:
    for _ in range(3000):
        try:
            with urllib.request.urlopen(base + "api/v1/runs") as answer:
                runs = json.load(answer)["runs"]
            states = [span["state"] for run in runs for worker in run["workers"] for span in worker["spans"]]
            if states and all(state == "ready" for state in states):
                return
            if "failed" in states:
                raise RuntimeError(f"the trace was not read: {runs}")
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError("the server never became ready")


def watch_tiles(page: Any) -> Tiles:
    tiles = Tiles()

    def done(request: Any) -> None:
        if "/timeline/tile" not in request.url:
            return
        response = request.response()
        if response is None or response.status != 200:
            return
        body = response.body()
        tiles.ms.append(request.timing["responseEnd"] - request.timing["requestStart"])
        tiles.sizes.append(len(body))
        tiles.entries[request.url] = struct.unpack_from("<I", body, 4)[0]

    page.on("requestfinished", done)
    return tiles


def first_paint(page: Any, address: str) -> tuple[float, float]:
    """Seconds from opening the address to the first slices, and to the last tile in sight."""
    page.goto(address)
    # The page's content policy forbids wait_for_function, which evaluates text.
    while not page.evaluate("performance.getEntriesByName('timeline.complete').length"):
        time.sleep(0.05)
    names = ("timeline.first-paint", "timeline.complete")
    marks = [page.evaluate(f"performance.getEntriesByName('{name}')[0].startTime / 1000") for name in names]
    return marks[0], marks[1]


def frames(page: Any, keys: list[tuple[str, float]]) -> tuple[float, float]:
    """Frames a second and the longest gap in ms while keys are held, one after the other."""
    total = sum(seconds for _, seconds in keys)
    page.evaluate(f"window.frames_seen = ({FRAMES})({total * 1000})")
    for key, seconds in keys:
        page.keyboard.down(key)
        page.wait_for_timeout(seconds * 1000)
        page.keyboard.up(key)
    times: list[float] = page.evaluate("window.frames_seen")
    gaps = [b - a for a, b in pairwise(times)]
    return 1000 * len(gaps) / (times[-1] - times[0]), max(gaps)


def visible_slices(page: Any, tiles: Tiles) -> int:
    """Entries on screen: those of the finest level among the tiles of the present window."""
    page.keyboard.press("0")
    page.wait_for_timeout(800)
    levels: dict[int, int] = {}
    for url, entries in tiles.entries.items():
        level = int(url.split("level=")[1].split("&")[0])
        levels[level] = levels.get(level, 0) + entries
    return levels[min(levels)]


def heap(page: Any) -> tuple[float, float]:
    """MiB of JavaScript objects, and of those and the array buffers together."""
    session = page.context.new_cdp_session(page)
    usage = session.send("Runtime.getHeapUsage")
    return usage["usedSize"] / MIB, (usage["usedSize"] + usage.get("backingStorageSize", 0)) / MIB


def measure(address: str, chromium: str) -> list[Row]:
    """Rows of what, figure, bar, met; `address` of the page."""
    # Any: the package is not a requirement of the checks.
    sync_playwright: Any = importlib.import_module("playwright.sync_api").sync_playwright
    rows: list[Row] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1920, "height": 1080})
        tiles = watch_tiles(page)
        first, complete = first_paint(page, address)
        rows.append(Row("first slices after opening the page", f"{first:.2f} s", "1.5 s", first <= 1.5))
        rows.append(Row("all visible tiles", f"{complete:.2f} s"))
        renderer = page.get_attribute("[data-renderer]", "data-renderer")
        slices = visible_slices(page, tiles)
        rows.append(
            Row(
                f"visible slices ({renderer} renderer, 1920 x 1080)", f"{slices:,}", "at least 60,000", slices >= 60_000
            )
        )
        page.mouse.move(1000, 600)
        page.wait_for_timeout(500)
        for name, keys in (
            ("panning", [("w", 0.3), *[("d", 1.3), ("a", 1.3)] * 2]),
            ("zooming", [("w", 0.9), ("s", 0.9)] * 3),
            ("scrolling", [("ArrowDown", 1.3), ("ArrowUp", 1.3)] * 2),
        ):
            rate, gap = frames(page, keys)
            rows.append(
                Row(f"frames per second, {name} (longest gap {gap:.0f} ms)", f"{rate:.1f}", "at least 50", rate >= 50)
            )
        slowest = statistics.quantiles(tiles.ms, n=20)[-1]
        largest = statistics.quantiles(tiles.sizes, n=20)[-1] / 1024
        rows.append(Row(f"tile latency in the web UI, 95th of 100 ({len(tiles.ms)} tiles)", f"{slowest:.0f} ms"))
        rows.append(Row("tile size, 95th of 100", f"{largest:.0f} KiB"))
        objects, together = heap(page)
        rows.append(Row("JavaScript heap", f"{objects:.0f} MiB", "200 MiB", objects <= 200))
        rows.append(Row("heap and array buffers", f"{together:.0f} MiB", "200 MiB", together <= 200))
        browser.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--huge", action="store_true", help="10 M events")
    parser.add_argument("--base", action="store_true", help="a second trace below it")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    rows = timeline_page(HUGE if options.huge else options.events, options.chromium, beside=options.base)
    for row in rows:
        print(row.line())
    return 0 if all(row.ok for row in rows) else 1


def timeline_page(events: int, chromium: str, *, beside: bool = False) -> list[Row]:
    """Rows of what, figure, bar, met. beside: with a base of as many events."""
    with tempfile.TemporaryDirectory() as folder:
        logs, cache = Path(folder) / "logs", Path(folder) / "cache"
        for run in ("run", "base") if beside else ("run",):
            (logs / run).mkdir(parents=True)
            write_trace(logs / run / "trace.json", events)
        begun = time.perf_counter()
        with server(logs, cache):
            print(f"{events:,} events read in {time.perf_counter() - begun:.1f} s", flush=True)
        with server(logs, cache) as base:
            page, query = ("Trace page", "run=run")
            if beside:  # one below the other, all of the first would hide the second
                page, query = ("Trace page with a base", f"run=run&base=base&pin={PINNED}")
            return [row._replace(what=f"{page}, {row.what}") for row in measure(f"{base}#/trace?{query}", chromium)]


if __name__ == "__main__":
    sys.exit(main())
