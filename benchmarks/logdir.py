"""Log directories of very many runs, and one run of many ranks.

    python -m benchmarks.logdir [runs ...]

Usable means: the list has every run, and the newest one, which the page shows by default, answers with its overview.
Times are from the start of the process, on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.kineto_file import write
from benchmarks.rows import Row
from benchmarks.serving import server
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory

RUNS, MANY_RUNS, SMALL_EVENTS = 1_000, 10_000, 60
RANKS, RANK_EVENTS = 64, 57_000  # 20 MB each
USABLE_S, RESTART_S, RANKS_S, AT_MOST, IDLE_MB = 1.0, 1.5, 10.0, 2.3, 150
CHANGE_S, CHANGE_BYTES = 0.1, 2_000
ROUNDS = 4
IDLE_S = 32  # after 30 the children end
PATIENCE_S = 600


def log_directory(folder: Path, runs: int) -> Path:
    """Write a number of runs with one small file each, the last one the newest."""
    logdir, sample = folder / f"runs{runs}", folder / "sample.json"
    write(sample, SMALL_EVENTS)
    text, now = sample.read_text(), time.time() - 86_400
    sample.unlink()
    for i in range(runs):
        path = logdir / f"experiment{i % 50}" / f"run{i}" / "host.1700000000000.pt.trace.json"
        path.parent.mkdir(parents=True)
        path.write_text(text.replace("synthetic.json", f"run{i}.json"))
        os.utime(path, (now + i, now + i))
    return logdir


class Page:
    """Asks like the page does."""

    def __init__(self, address: str, ready: float) -> None:
        self._address, self._start = address, time.perf_counter() - ready
        self.runs: dict[str, Any] = {}
        self.revision: int | None = None
        self.bytes = 0

    def seconds(self) -> float:
        """Since the server's process began."""
        return time.perf_counter() - self._start

    def poll(self, shown: str = "") -> float:
        """Asks what changed; the seconds that it took."""
        start = time.perf_counter()
        query = {"since": self.revision, "shown": shown}
        body = self._get("runs/changes", **{name: value for name, value in query.items() if value})
        took = time.perf_counter() - start
        answer, self.bytes = json.loads(body), len(body)
        self.runs = {} if answer["since"] is None else self.runs
        self.runs |= {run["id"]: run for run in answer["runs"]}
        for gone in answer["removed"]:
            del self.runs[gone]
        self.revision = answer["revision"]
        return took

    def until(self, reached: Callable[[Page], bool]) -> float:
        """Polls until then; the seconds since the process began."""
        end = time.perf_counter() + PATIENCE_S
        while self.poll(self.newest()) and not reached(self):
            if time.perf_counter() > end:
                raise TimeoutError
            time.sleep(0.02)
        return self.seconds()

    def newest(self) -> str:
        """The run that the page shows by default."""
        return max(self.runs.values(), key=lambda run: run["modified_ns"])["id"] if self.runs else ""

    def ready(self) -> int:
        """How many files are."""
        states = [s["state"] for run in self.runs.values() for worker in run["workers"] for s in worker["spans"]]
        return states.count("ready")

    def opens(self) -> bool:
        """Does the newest run show its overview?"""
        try:
            self._get("view/overview", run=self.newest())
        except urllib.error.HTTPError:
            return False
        return True

    def _get(self, path: str, **query: object) -> bytes:
        url = f"{self._address}/api/v1/{path}?{urlencode(query)}"
        return urllib.request.urlopen(url, timeout=60).read()


def many_runs(folder: Path, runs: int = RUNS) -> Iterator[Row]:
    """Opened for the first time, opened again, and one change."""
    logdir, cache, usable = log_directory(folder, runs), folder / "cache-runs", 0.0
    judged = runs <= RUNS  # the bars are for these
    for again in (False, True):
        with server(logdir, cache) as (address, start):
            page = Page(address, start)
            usable = max(page.until(lambda page: len(page.runs) == runs), page.until(Page.opens))
            bar = "" if not judged else f"at most {RESTART_S if again else USABLE_S} s"
            label = f"{runs:,} runs, {'opened again' if again else 'first time'}"
            whole = page.until(lambda page: page.ready() == runs)
            if not again:
                yield Row(f"{label}: usable", f"{usable:.2f} s", bar, not judged or usable <= USABLE_S)
                yield Row(f"{label}: every file read", f"{whole:.1f} s")
                continue
            yield Row(f"{label}: every file ready", f"{whole:.2f} s", bar, not judged or whole <= RESTART_S)
            yield from _one_change(page, logdir)
            yield _idle(page, runs)
    shutil.rmtree(logdir)


def _one_change(page: Page, logdir: Path) -> Iterator[Row]:
    """Asking when nothing and when one run changed."""
    nothing = min(page.poll() for _ in range(20))
    path = next(logdir.rglob("*.json"))
    before = page.revision or 0
    path.write_text(path.read_text().replace("synthetic", "changed"))
    took = 0.0
    while (page.revision or 0) == before:
        took = page.poll()
        time.sleep(0.02)
    figure = f"{took * 1e3:.1f} ms, {page.bytes:,} bytes; without a change {nothing * 1e3:.1f} ms"
    ok = took <= CHANGE_S and page.bytes <= CHANGE_BYTES
    yield Row(
        f"{len(page.runs):,} runs, one changes: update sent to the web UI",
        figure,
        f"at most {CHANGE_BYTES:,} bytes",
        ok,
    )


def _idle(page: Page, runs: int) -> Row:
    """Memory of the server and its children when there was nothing to do for a while."""
    page.until(lambda page: page.ready() == runs)
    time.sleep(IDLE_S)
    held = sum(map(_held_bytes, _tree(os.getpid()))) / 1e6
    bar = f"at most {IDLE_MB} MB"
    return Row(f"{runs:,} runs, idle: memory of all processes", f"{held:.0f} MB", bar, held <= IDLE_MB)


def _tree(pid: int) -> list[int]:
    """Processes below one."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]
    return [node for child in children for node in (child, *_tree(child))]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _held_bytes(pid: int) -> int:
    """Its share of what is in memory."""
    words = _words(Path(f"/proc/{pid}/smaps_rollup"))
    return int(words[words.index("Pss:") + 1]) * 1024 if "Pss:" in words else 0


class Queue:
    """In place of the pool: keeps the keys of what is to be parsed."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def start(self, listener: object) -> None: ...

    def submit(self, key: str, path: object, size: int, order: tuple[int, ...]) -> None:
        self.keys.append(key)

    def prioritize(self, key: str) -> None: ...

    def cancel(self, key: str) -> None: ...

    def close(self) -> None: ...


def looking(folder: Path) -> Row:
    """Measure how scanning a log directory, listing it and reporting a change grow with the number of runs."""
    both = [[_looked(folder, runs) for runs in (MANY_RUNS // 2, MANY_RUNS)] for _ in range(ROUNDS)]
    half, whole = map(min, zip(*both, strict=True))
    times = whole / half
    figure = f"{whole:.2f} s = {times:.2f} x half of them (CPU)"
    return Row(f"{MANY_RUNS:,} runs: scanned, listed, each reported", figure, f"at most {AT_MOST} x", times <= AT_MOST)


def _looked(folder: Path, runs: int) -> float:
    """CPU seconds of one thread, without parsing."""
    logdir, queue = log_directory(folder, runs), Queue()
    start = time.thread_time()
    there = LogDirectory([logdir], queue, Cache(folder / "cache-looking"), events=False, settle_s=0)
    there.rescan()
    since = there.changes(None).revision
    for key in queue.keys:
        there.on_progress(key, 0.0)
        since = there.changes(since).revision
    there.listing()
    there.rescan()
    took = time.thread_time() - start
    shutil.rmtree(logdir)
    return took


def ranks(folder: Path) -> Iterator[Row]:
    """One run of many large files, until all are ready."""
    logdir = folder / "ranks"
    logdir.mkdir()
    for rank in range(RANKS):
        write(logdir / f"rank{rank}.json", RANK_EVENTS, rank, RANKS, 40)
    size = sum(path.stat().st_size for path in logdir.iterdir())
    with server(logdir, folder / "cache-ranks") as (address, start):
        page = Page(address, start)
        whole = page.until(lambda page: page.ready() == RANKS)
    label = f"{RANKS} ranks, {size / 1e6:,.0f} MB, 2 cores: all ready"
    yield Row(label, f"{whole:.1f} s", f"at most {RANKS_S:.0f} s", whole <= RANKS_S)
    shutil.rmtree(logdir)


def logdirs(folder: Path) -> Iterator[Row]:
    """Everything, on two cores."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if len(cores) > 2:
        os.sched_setaffinity(0, sorted(cores)[:2])
    try:
        for runs in (RUNS, MANY_RUNS):
            yield from many_runs(folder, runs)
        yield looking(folder)
        yield from ranks(folder)
    finally:
        if len(cores) > 2:
            os.sched_setaffinity(0, cores)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = [row for runs in map(int, sys.argv[1:]) for row in many_runs(folder, runs)]
        for row in asked or logdirs(folder):
            print(row.line(), flush=True)


if __name__ == "__main__":
    main()
