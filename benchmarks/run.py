"""Speed and memory against their bars, with the baselines measured in the same run.

    python -m benchmarks.run [--peers] [--huge] [--events N] [--parts startup growth ...] [--out build/benchmarks.md]

Every figure is a ratio to `json.loads` of the same file on the same machine in the same run, or a bound that a user
feels. `--peers` opens the same files with the tools beside ours; `--huge` adds 10 M events (3.7 GB on disk) and
1,024 ranks (7 GB).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks import peers, team
from benchmarks.busy_server import busy_server
from benchmarks.captured import captured
from benchmarks.cluster.scale import scale
from benchmarks.comparing import comparing
from benchmarks.graph_page import graph_page
from benchmarks.growth import growth
from benchmarks.harness import harness
from benchmarks.kinds import FURTHER, MAIN, written
from benchmarks.large import beyond, bounds
from benchmarks.logdir import logdirs
from benchmarks.memory import memory_view
from benchmarks.opened_run import many_shapes, opened_run
from benchmarks.opening import Opened, Way, opened, ways
from benchmarks.opening import rows as figures
from benchmarks.queries import queries
from benchmarks.queue import queue
from benchmarks.quiet import check_quiet
from benchmarks.ranks import many_collectives, many_ranks, thousand_ranks
from benchmarks.report import document, load
from benchmarks.rows import ROOT, Row
from benchmarks.search import search
from benchmarks.serving import serving
from benchmarks.snapshots import snapshots
from benchmarks.startup import startup
from benchmarks.tiles import levels
from benchmarks.timeline_page import timeline_page
from benchmarks.views import views

ROUNDS, ROUNDS_FURTHER = 5, 3


def openings(paths: dict[str, Path], tools: dict[str, Way]) -> Iterator[Opened]:
    """Every kind of file, opened in every way."""
    for kind, path in paths.items():
        if kind not in MAIN + FURTHER:
            continue
        every = kind in MAIN
        yield opened(kind, path, ROUNDS if every else ROUNDS_FURTHER, ways(every=every) | (tools if every else {}))


def opened_runs(folder: Path, files: list[Path]) -> Iterator[Row]:
    """Measure the web UI with large runs, in a browser."""
    chromium = _chromium()
    if chromium is None:
        yield Row("a run in the web UI", "not measured: no Chromium on PATH")
        return
    for file in files:
        yield from opened_run(folder, file, chromium)
    yield from many_shapes(folder, chromium)


def _chromium() -> str | None:
    """Return the path of the browser, `None` without one."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def pages(events: int, dagre_s: float) -> Iterator[Row]:
    """What a browser without a GPU makes of it; how dagre fares, where it gets time."""
    chromium = _chromium()
    if chromium is None:
        yield Row("Trace and Graph pages", "not measured: no Chromium on PATH")
        return
    yield from timeline_page(events, chromium)
    yield from timeline_page(events, chromium, beside=True)
    yield from graph_page(chromium, dagre_s=dagre_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--peers", action="store_true")
    label = "only these of the rows below the tables of files"
    parser.add_argument("--parts", nargs="*", default=[], metavar="PART", help=label)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "benchmarks.md")
    options = parser.parse_args()
    quiet = check_quiet()
    print(f"{quiet.line()}.", flush=True)
    begun, before, rows = time.perf_counter(), load(), list[Row]()
    files: list[Opened] = []
    tools = peers.tools() if options.peers else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        more = ("gigabyte", "huge") if options.huge else ("gigabyte",)
        paths = written(folder, MAIN + FURTHER + more, options.events)
        for file in () if options.parts else openings(paths, tools):
            files.append(file)
            _said(figures(file))
        parts = {
            "startup": lambda: startup(folder),
            "bounds": lambda: bounds(paths["generated"]),
            "levels": lambda: levels(paths["generated"]),
            "comparing": lambda: comparing(folder, paths["generated"], options.events * 21 // 20),
            "opened": lambda: opened_runs(folder, [paths[kind] for kind in ("generated", "huge") if kind in paths]),
            "views": lambda: views([paths[kind] for kind in ("generated", "huge") if kind in paths]),
            "serving": lambda: serving(folder),
            "busy": lambda: busy_server(folder),
            "gigabyte": lambda: bounds(paths["gigabyte"]),
            "huge": lambda: beyond(paths["huge"]) if options.huge else (),
            "memory": lambda: memory_view(paths["memory"]),
            "queries": lambda: queries(folder, paths["generated"]),
            "snapshots": lambda: snapshots(folder),
            "ranks": lambda: many_ranks(folder),
            "collectives": lambda: many_collectives(folder),
            "thousand": lambda: thousand_ranks(folder),
            "scale": lambda: scale(folder / "scale", 1024 if options.huge else 64),
            "captured": lambda: captured(folder / "captured"),
            "logdirs": lambda: logdirs(folder),
            "growth": growth,
            "queue": lambda: queue(folder),
            "team": lambda: team.rows(folder),
            "harness": harness,
            "search": search,
            "pages": lambda: pages(10_000_000 if options.huge else options.events, 60 if options.peers else 0),
        }
        if unknown := {*options.parts} - parts.keys():
            parser.error(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
        for name, part in parts.items():
            rows += _said(part()) if not options.parts or name in options.parts else []
    closely = [file for file in files if file.kind in MAIN]
    tables = [[list(figures(file)) for file in files if (file in closely) == first] for first in (True, False)]
    beside = [_said(line) for line in peers.beside(closely, tools)] if tools else []
    options.out.parent.mkdir(exist_ok=True)
    took = f"{(time.perf_counter() - begun) / 60:.0f} minutes; load {before} before, {load()} after. {quiet.line()}"
    options.out.write_text(document(took, tables, beside, rows))
    return 0 if all(row.ok for part in (*tables[0], *tables[1], rows) for row in part) else 1


def _said(rows: Iterable[Row]) -> list[Row]:
    """The rows, printed as they come."""
    said: list[Row] = []
    for row in rows:
        print(row.line(), flush=True)
        said.append(row)
    return said


if __name__ == "__main__":
    sys.exit(main())
