"""The time from the start of a process to the table of a small file, compared with Python and numpy alone."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kineto_file import write
from benchmarks.rows import Row, measured

ROUNDS = 9
EVENTS = 2_500
BASELINE = "baseline: Python alone"
SMALL_S, VERSION_S, HELP_S = 0.12, 0.1, 0.08
IMPORT_S = 0.02  # more than Python alone


def startup(folder: Path) -> Iterator[Row]:
    """The version, and views of a small file that is new (a cache of its own each time) and known."""
    small = folder / "small.json"
    write(small, EVENTS)
    module = [sys.executable, "-m", "visualprof"]
    ways: dict[str, tuple[list[str], float]] = {
        BASELINE: ([sys.executable, "-c", "pass"], 0.0),
        "baseline: Python, numpy and msgspec": ([sys.executable, "-c", "import numpy, msgspec"], 0.0),
        "`import visualprof`": ([sys.executable, "-c", "import visualprof"], 0.0),
        "`visualprof --version`": ([*module, "--version"], VERSION_S),
        "`visualprof --help`": ([*module, "--help"], HELP_S),
        "a file of 0.9 MB: `view overview`, cold": ([*module, "view", "overview", str(small)], SMALL_S),
        "a file of 0.9 MB: `view operator`, cold": ([*module, "view", "operator", str(small)], SMALL_S),
        "a file of 0.9 MB: `view overview`, warm": ([*module, "view", "overview", str(small)], SMALL_S),
    }
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(ROUNDS + 1):
        for number, (way, (command, _)) in enumerate(ways.items()):
            cache = folder / "small" / (str(number) if way.endswith("warm") else f"{number}-{turn}")
            run = measured(command, VISUALPROF_CACHE_DIR=str(cache))
            if turn:  # the first one compiles modules and fills the cache
                took[way].append((run.wall, run.cpu))
    alone, imported = (statistics.median(wall for wall, _ in took[way]) for way in (BASELINE, "`import visualprof`"))
    more = imported - alone
    yield Row("`import visualprof`, more than Python", f"{more * 1e3:.0f} ms", "at most 20 ms", more <= IMPORT_S)
    for way, runs in took.items():
        wall, cpu = (statistics.median(values) for values in zip(*runs, strict=True))
        bar = ways[way][1]
        figure = f"{wall * 1e3:.0f} ms, CPU {cpu * 1e3:.0f} ms"
        yield Row(way, figure, f"at most {bar * 1e3:.0f} ms" if bar else "", not bar or wall <= bar)
