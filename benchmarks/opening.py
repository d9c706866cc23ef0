"""Opening large profiles of several kinds, every way of opening in turns with json.loads of the same file.

    python -m benchmarks.opening [KIND ...] [--events 1000000] [--rounds 5] [--folder FOLDER] [--against TREE]

Each figure is of a process, from its start to its last byte of output. `--folder` takes files that
`benchmarks.kinds` wrote there; `--against` measures another checkout beside this one.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.kinds import FURTHER, MAIN, title, written
from benchmarks.rows import ROOT, Row, Run, measured

JSON_LOADS = """
import json, sys
found = json.loads(open(sys.argv[1], "rb").read())
print(len(found if isinstance(found, list) else found["traceEvents"]))
"""
OWN_WORK = """
import sys, time
from visualprof.reader.cache import open_trace
from visualprof.views import view
trace, overview = open_trace(sys.argv[1]), view("overview")
start, used = time.perf_counter(), time.process_time()
overview.compute(trace, overview.params())
print(time.perf_counter() - start, time.process_time() - used)
"""
# Bars: of json.loads, or seconds for a million events where that is more; of the overview; of the file.
SHARES = {"overview, 2 cores": 0.08, "overview, 4 cores": 0.06}
MILLION_S, WARM_S, OWN_WORK_S, ALL_VIEWS, PEAK = 1.0, 0.4, 0.25, 1.5, 1.0
LOADS, ALL, WITHOUT, BEFORE = "json.loads", "all views", "without the extension", "the other checkout"
WARM, WORK = "overview again", "the overview's own work"
COLD, COLD_4 = SHARES


class Way(NamedTuple):
    """A way of opening a file: command but for the file, cores, environment, the tree it runs in, rounds at most."""

    command: list[str]
    cores: int = 2
    env: dict[str, str] = {}  # noqa: RUF012 (never changed)
    keeps: str = ""  # the cache that it shares with another way; its own and empty where ""
    cwd: Path = ROOT
    rounds: int = 99


def ways(against: Path | None = None, every: bool = True) -> dict[str, Way]:
    """The ways of ours and the baseline in the order of a round: every one, or the few of further kinds."""
    view = [sys.executable, "-m", "visualprof", "view"]
    overview, without = [*view, "overview", "--format", "json"], {"VISUALPROF_NATIVE": "0"}
    times = {
        LOADS: Way([sys.executable, "-c", JSON_LOADS]),
        COLD: Way(overview, keeps="overview"),
        WARM: Way(overview, keeps="overview"),
        ALL: Way([*view, "all", "--format", "json"]),
        WITHOUT: Way(overview, env=without, rounds=3),
    }
    if every:
        light = {"OPENBLAS_NUM_THREADS": "1"}  # as the command does: idle threads of another library would count
        times[WORK] = Way([sys.executable, "-c", OWN_WORK], env=light, keeps="overview")
        times[COLD_4] = Way(overview, cores=4)
    if against is not None:
        times[BEFORE] = Way(overview, cwd=against, rounds=3)
    return times


class Opened(NamedTuple):
    """A file and what each way of opening it took; no runs where it failed."""

    kind: str
    size: int
    runs: dict[str, list[Run]]

    @property
    def events(self) -> int:
        """How many events json.loads finds."""
        return int(self.runs[LOADS][0].out)

    def wall(self, way: str) -> float:
        """Median wall seconds."""
        return statistics.median(run.wall for run in self.runs[way])

    def peak(self, way: str) -> int:
        """Largest peak, bytes."""
        return max(run.peak for run in self.runs[way])


def opened(kind: str, path: Path, rounds: int, by: dict[str, Way]) -> Opened:
    """Open a file in every way, in turns; a way that failed is not tried again."""
    runs: dict[str, list[Run]] = {way: [] for way in by}
    failed: set[str] = set()
    for turn in range(rounds):
        with tempfile.TemporaryDirectory() as caches:
            for number, (name, way) in enumerate(by.items()):
                if name in failed or turn >= way.rounds:
                    continue
                cache = str(Path(caches) / (way.keeps or str(number)))
                command = [*way.command, str(path)]
                try:
                    run = measured(command, way.cores, way.cwd, **way.env, VISUALPROF_CACHE_DIR=cache)
                except RuntimeError as error:
                    print(f"{name} on {path.name}: {str(error)[-300:]}", file=sys.stderr)
                    failed.add(name)
                    runs[name] = []
                    continue
                runs[name].append(run._replace(out=run.out[:99]))
                if not way.keeps:
                    shutil.rmtree(cache, ignore_errors=True)
    return Opened(kind, path.stat().st_size, runs)


def seconds(runs: list[Run]) -> str:
    """Median wall seconds with the spread, and CPU seconds."""
    walls, cpu = [run.wall for run in runs], statistics.median(run.cpu for run in runs)
    return f"{statistics.median(walls):.2f} s ({min(walls):.2f}-{max(walls):.2f}), CPU {cpu:.2f} s"


def rows(file: Opened) -> Iterator[Row]:
    """Yield the times of our ways of opening, compared with their limits."""
    base, millions = file.wall(LOADS), file.events / 1e6
    yield Row("profile", f"{title(file.kind)}: {file.events:,} events, {file.size / 1e6:.0f} MB")
    yield Row(LOADS, seconds(file.runs[LOADS]))
    for way, share in SHARES.items():
        if way not in file.runs:
            continue
        bar = f"at most {share} x or {MILLION_S} s per million events"
        yield Row(way, _beside(file, way), bar, file.wall(way) <= max(share * base, MILLION_S * millions))
    yield Row(WARM, seconds(file.runs[WARM]), f"at most {WARM_S} s", file.wall(WARM) <= WARM_S)
    if WORK in file.runs:
        took = [tuple(map(float, run.out.split())) for run in file.runs[WORK]]
        own_ms, cpu = (statistics.median(column) for column in zip(*took, strict=True))
        yield Row(
            WORK,
            f"{own_ms:.2f} s, CPU {cpu:.2f} s",
            f"at most {OWN_WORK_S} s per million events",
            own_ms <= OWN_WORK_S * millions,
        )
    ratio = file.wall(ALL) / file.wall(COLD)
    figure = f"{seconds(file.runs[ALL])} = {ratio:.2f} x the overview"
    yield Row(ALL, figure, f"at most {ALL_VIEWS} x the overview", ratio <= ALL_VIEWS)
    peak, judged = max(run.peak for way in SHARES for run in file.runs.get(way, [])), file.kind in MAIN
    figure = f"{peak / 1e6:.0f} MB = {peak / file.size:.2f} x the file"
    yield Row(
        "peak memory", figure, f"at most {PEAK} x the file" if judged else "", peak <= PEAK * file.size or not judged
    )
    yield from (Row(way, _beside(file, way)) for way in (WITHOUT, BEFORE) if file.runs.get(way))


def _beside(file: Opened, way: str) -> str:
    return f"{seconds(file.runs[way])} = {file.wall(way) / file.wall(LOADS):.3f} x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=MAIN + FURTHER)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary_directory:
        for kind, path in written(options.folder or Path(temporary_directory), options.kinds, options.events).items():
            for row in rows(opened(kind, path, options.rounds, ways(options.against, kind in MAIN))):
                print(row.line(), flush=True)


if __name__ == "__main__":
    main()
