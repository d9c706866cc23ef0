"""Speed and memory against their bars, with the baselines measured in the same run.

    python -m benchmarks.run [--peers] [--huge] [--events 1000000] [--out build/benchmarks.md]

Every figure is a ratio to `json.loads` of the same file on the same machine in the same run, or a bound that a user
feels. `--peers` opens the same files with the tools beside ours; `--huge` adds 10 M events (3.7 GB on disk).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks import peers
from benchmarks.graph_page import graph_page
from benchmarks.growth import growth
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
from benchmarks.serving import serving
from benchmarks.tiles import levels
from benchmarks.timeline_page import timeline_page

ROUNDS, ROUNDS_SMALLER = 5, 3


def openings(folder: Path, events: int, tools: dict[str, Way]) -> Iterator[Opened]:
    """Every kind of file, opened in every way."""
    for kind, path in written(folder, KINDS, events).items():
        large = kind in LARGE
        yield opened(kind, path, ROUNDS if large else ROUNDS_SMALLER, ways(every=large) | (tools if large else {}))
        if kind != "generated":
            path.unlink()


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
            growth(),
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
