"""Measure in a browser what a user waits for at a running server: the picture of a run, its timeline, long tables.

    python -m benchmarks.opened_run FILE [--chromium /usr/bin/chromium]

The server has parsed the file and answered its overview before, as if another user had opened the run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.kineto_file import write
from benchmarks.queue import started
from benchmarks.rows import Row
from benchmarks.timeline_page import FLAGS, FRAMES, wait_ready

ROUNDS, SMALL_EVENTS, SHAPES = 5, 2_500, 100_000
PICTURE_MS, META_MS, SEARCH_MS, MEMORY_BYTES = 300, 300, 200, 500_000_000
# Time from the change of the address, as by a click, until the page has its first chart and a frame was drawn.
PICTURE = """async ([hash, text]) => {
  performance.clearResourceTimings();
  const start = performance.now();
  location.hash = hash;
  const main = () => document.querySelector("main");
  while (!main()?.innerText.includes(text) || !main().querySelector("canvas, svg"))
    await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  const answers = performance.getEntriesByType("resource").filter((entry) => entry.startTime >= start);
  return {
    picture: performance.now() - start,
    answer: Math.max(0, ...answers.map((entry) => entry.responseEnd - start)),
    bytes: answers.reduce((sum, entry) => sum + entry.transferSize, 0),
  };
}"""


def opened_run(folder: Path, path: Path, chromium: str) -> Iterator[Row]:
    """Measure the first picture of a run, its timeline before the first tile, and the memory of the server."""
    logdir = folder / f"opened-{path.stem}"
    for run in ("large", "small"):
        (logdir / run).mkdir(parents=True)
    os.link(path, logdir / "large" / path.name)
    write(logdir / "small" / "small.json", SMALL_EVENTS)
    cache = folder / "cache-opened"
    with started(logdir, cache, "--no-token") as (_, url):
        wait_ready(url)  # reads the files
    with started(logdir, cache, "--no-token") as (process, url):
        wait_ready(url)
        runs = json.loads(_get(url, "runs"))["runs"]
        names = {run["id"]: run["workers"][0]["spans"][0]["events"] for run in runs}
        large, small = sorted(names, key=lambda run: -names[run])
        label = f"a run of {names[large]:,} events"
        for run in names:
            _get(url, "view/overview", run=run)
        yield _picture(url, chromium, label, [(run, f"{names[run]:,}") for run in (small, large)])
        for route, query, limit_ms in (
            ("meta", {"minimap": 0, "counters": 0}, META_MS),
            ("search", {"text": "aten"}, SEARCH_MS),
        ):
            cpu, start = cpu_s(process.pid), time.perf_counter()
            _get(url, f"timeline/{route}", run=large, **query)
            took = (time.perf_counter() - start) * 1e3
            figure = f"{took:.0f} ms, CPU {(cpu_s(process.pid) - cpu) * 1e3:.0f} ms"
            yield Row(f"{label}: timeline/{route}", figure, f"at most {limit_ms} ms", took <= limit_ms)
        _get(url, "timeline/meta", run=large)
        _get(url, "timeline/event", run=large, event=names[large] // 2, arguments=0)
        _get(url, "timeline/window", run=large)
        memory = anonymous_bytes(process.pid)
        figure = f"{memory / 1e6:.0f} MB"
        yield Row(
            f"{label}: memory of the server after its timeline, without mapped files",
            figure,
            f"at most {MEMORY_BYTES / 1e6:.0f} MB",
            memory <= MEMORY_BYTES,
        )


def many_shapes(folder: Path, chromium: str) -> Iterator[Row]:
    """Measure scrolling in a table of operators with many shapes."""
    logdir = folder / "shapes"
    logdir.mkdir()
    write_shapes(logdir / "shapes.json", SHAPES)
    with started(logdir, folder / "cache-shapes", "--no-token") as (_, url):
        wait_ready(url)
        _get(url, "view/operator", run="shapes", group="shape")
        with browser_page(chromium) as page:
            page.goto(f"{url}#/operator?run=shapes&group=shape")
            grid = page.get_by_role("grid").first
            grid.wait_for(timeout=60_000)
            page.get_by_text(f"{SHAPES:,} rows").wait_for(timeout=60_000)
            grid.hover()
            rate, gap = scrolled(page)
            label = f"{SHAPES:,} shapes of operators: frames per second, scrolling (longest gap {gap:.0f} ms)"
            yield Row(label, f"{rate:.1f}", "at least 55", rate >= 55)


def scrolled(page: Any, seconds: float = 3.0) -> tuple[float, float]:
    """Return frames per second and the longest gap in ms while the wheel turns."""
    page.evaluate(f"window.frames_seen = ({FRAMES})({seconds * 1000})")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        page.mouse.wheel(0, 400)
        page.wait_for_timeout(30)
    times: list[float] = page.evaluate("window.frames_seen")
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return 1000 * len(gaps) / (times[-1] - times[0]), max(gaps)


def write_shapes(path: Path, count: int) -> None:
    """Write a file of `count` operators, each with different shapes."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for i in range(count):
            args = f'{{"Input Dims": [[{i + 1}, 16], [16, 16]]}}'
            file.write(
                f'{{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::mm","ts":{10 * i},"dur":8,"args":{args}}},\n'
            )
        step = f'{{"ph":"X","cat":"user_annotation","pid":1,"tid":1,"name":"ProfilerStep#1","ts":0,"dur":{10 * count}}}'
        file.write(f"{step}\n]}}\n")


def anonymous_bytes(pid: int) -> int:
    """Return the memory of a process that is not mapped from files."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Anonymous:")).split()[1]) * 1024


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _picture(url: str, chromium: str, label: str, runs: list[tuple[str, str]]) -> Row:
    """Open runs one after the other, several times; the row is of the last one."""
    times: list[dict[str, float]] = []
    with browser_page(chromium) as page:
        page.context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.goto(f"{url}#/overview?run={runs[0][0]}")
        page.wait_for_timeout(3000)
        for _ in range(ROUNDS):
            for run, text in runs[::-1]:
                taken = page.evaluate(PICTURE, [f"#/overview?run={run}", text])
                times += [taken] if run == runs[-1][0] else []
                page.wait_for_timeout(700)
    picture, answer, size = (statistics.median(taken[key] for taken in times) for key in ("picture", "answer", "bytes"))
    figure = f"{picture:.0f} ms (last answer after {answer:.0f} ms, {size / 1e3:.0f} kB)"
    return Row(f"{label}: first picture after the click", figure, f"at most {PICTURE_MS} ms", picture <= PICTURE_MS)


@contextmanager
def browser_page(chromium: str) -> Generator[Any]:
    """Open a page in a headless browser."""
    # Any: the package is not a requirement of the checks.
    sync_playwright: Any = importlib.import_module("playwright.sync_api").sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser.new_page(viewport={"width": 1440, "height": 900})
        browser.close()


def _get(url: str, route: str, **query: object) -> bytes:
    """Return an answer as soon as it is computed."""
    while True:
        try:
            return urllib.request.urlopen(f"{url}api/v1/{route}?{urlencode(query)}", timeout=600).read()
        except urllib.error.HTTPError as error:  # noqa: PERF203 - it waits
            if error.code != 503:
                raise
            time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.file.parent) as name:
        rows: list[Row] = []
        folder, chromium = Path(name), options.chromium
        for row in chain(opened_run(folder, options.file, chromium), many_shapes(folder, chromium)):
            print(row.line(), flush=True)
            rows.append(row)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
