"""The comparison of two profiles of a million events, on the command line, over HTTP and as a report."""

from __future__ import annotations

import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from benchmarks import kineto_file
from benchmarks.rows import Row, measured
from benchmarks.serving import server

ROUNDS = 5
VIEWS = ("overview", "operator", "kernel", "runtime", "memory")
COMMAND_S, ANSWER_S, REPORT_S = 1.0, 0.3, 5.0


def comparing(folder: Path, base: Path, events: int) -> Iterator[Row]:
    """`base` beside another of its kind, of so many events. The folder is for what is written."""
    runs = folder / "compared"
    new = runs / "new" / "m.json"
    new.parent.mkdir(parents=True)
    (runs / "base").mkdir()
    (runs / "base" / "m.json").hardlink_to(base)
    kineto_file.write(new, events)
    cache = str(folder / "cache-compared")
    report = ["report", str(new), "-o", str(folder / "report.html")]
    for label, command, bar in (
        ("a report of a new profile", report, REPORT_S),
        ("a report of an indexed profile", report, REPORT_S),
        ("`visualprof diff`, first time", ["diff", str(base), str(new)], 0.0),
        ("`visualprof diff`, again", ["diff", str(base), str(new)], COMMAND_S),
    ):
        run = measured([sys.executable, "-m", "visualprof", *command], VISUALPROF_CACHE_DIR=cache)
        yield _row(label, run.wall, bar, f", CPU {run.cpu:.2f} s")
    with server(runs, Path(cache)) as (address, _):
        yield from _answers(address)


def _answers(address: str) -> Iterator[Row]:
    """Every view of the pair over HTTP: the slowest."""
    while len(ready := _ready(address)) < 2:
        time.sleep(0.1)
    pair = {"run": ready["new"], "base": ready["base"]}
    first: dict[str, float] = {}
    again: dict[str, float] = {}
    for view in VIEWS:
        took = [_took(f"{address}/api/v1/diff?{urlencode({**pair, 'view': view})}") for _ in range(ROUNDS + 1)]
        first[view], again[view] = took[0], statistics.median(took[1:])
    for when, took, bar in (("first time", first, 0.0), ("again", again, ANSWER_S)):
        slowest = max(took, key=took.__getitem__)
        yield _row(f"two profiles compared over HTTP, {when}", took[slowest], bar, f" (slowest view: {slowest})")


def _ready(address: str) -> dict[str, str]:
    """Ids of the runs that are read, by their folders."""
    answer = json.loads(urllib.request.urlopen(f"{address}/api/v1/runs", timeout=30).read())
    return {
        run["id"].partition("/")[0]: run["id"]
        for run in answer["runs"]
        if all(span["state"] == "ready" for worker in run["workers"] for span in worker["spans"])
    }


def _took(url: str) -> float:
    """Seconds until the whole answer is there."""
    start = time.perf_counter()
    urllib.request.urlopen(url, timeout=60).read()
    return time.perf_counter() - start


def _row(what: str, seconds: float, bar: float, more: str) -> Row:
    return Row(what, f"{seconds:.2f} s{more}", f"at most {bar} s" if bar else "", not bar or seconds <= bar)
