"""A thousand ranks: seconds, memory and bytes a rank of reading them ahead, by processes and by a cluster.

    python -m benchmarks.cluster.scale [--ranks 1024] [--events 20000] [--engine ray]

1,024 ranks of 20,000 events take 7 GB of disk; the runs of fewer are links to the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks.cluster.job import make, write
from benchmarks.cluster.topology import Topology
from benchmarks.cluster.watched import Taken, watched
from benchmarks.rows import Row

SIZES, STEPS, BASE, MORE = (8, 64, 256, 1024), 8, 256, 10
AT_MOST, PEAK, GROWS = 1.3, 1e9, 1.3


def scale(folder: Path, ranks: int = 1024, events: int = 20_000, engine: str = "ray") -> Iterator[Row]:
    """Yield rows of the report: growth with ranks, added ranks, and a cluster compared with processes."""
    files = _made(folder / "job", ranks, events)
    yield Row(f"{ranks:,} ranks of about {events:,} events", f"{sum(p.stat().st_size for p in files) / 1e9:.2f} GB")
    sizes = sorted({size for size in SIZES if size < ranks} | {ranks})
    times, usage = list[float](), Taken(0, 0, 0, "")
    for count in sizes:
        run = _linked(folder / f"of{count}", files[:count])
        usage = index(run, folder / f"cache{count}")
        times.append(usage.cpu)
        total = sum(p.stat().st_size for p in (folder / f"cache{count}").rglob("*") if p.is_file())
        megabytes = sum(path.stat().st_size for path in files[:count]) / 1e6
        yield _index_row(f"index, {count:,} ranks, processes", usage, count, total, megabytes)
        shown = view(run, folder / f"cache{count}")
        said = f"{len(shown.out) / 1e6:.1f} MB of JSON"
        figure = f"{shown.wall:.2f} s, {shown.cpu:.2f} s of CPU, {shown.peak / 1e6:.0f} MB; {said}"
        yield Row(f"Distributed page of {count:,} ranks, its process's start included", figure)
    more = [(b - a) / (n - m) for (a, b), (m, n) in zip(pairwise(times), pairwise(sizes), strict=True)]
    growth = more[-1] / more[0]
    figure = f"{', '.join(f'{seconds * 1e3:.0f}' for seconds in more)} ms: {growth:.2f} x from the first to the last"
    yield Row(f"CPU of each further rank, from {sizes[0]} on", figure, f"at most {GROWS} x", growth <= GROWS)
    yield _added(folder, files[:BASE])
    yield from _by_engine(folder, files, engine, usage)


def index(run: Path, cache: Path, engine: str = "processes") -> Taken:
    """Reads a run ahead into a cache."""
    command = [sys.executable, "-m", "visualprof", "index", str(run), "--engine", engine, "--format", "json"]
    usage = watched(command, VISUALPROF_CACHE_DIR=str(cache), VISUALPROF_CACHE_MAX_BYTES=str(1 << 40))
    answer = json.loads(usage.out)
    if answer["failed"] or answer["not_kept"]:
        raise RuntimeError(f"not all of {run} was read: {usage.out[:500]}")
    return usage


def view(run: Path, cache: Path) -> Taken:
    """Asks for the Distributed page of a run that has been read."""
    command = [sys.executable, "-m", "visualprof", "view", "distributed", str(run), "--format", "json"]
    return watched(command, VISUALPROF_CACHE_DIR=str(cache), VISUALPROF_CACHE_MAX_BYTES=str(1 << 40))


def _made(out: Path, ranks: int, events: int) -> list[Path]:
    """Files of a job in the order of its ranks."""
    job, truth = make(Topology(ranks, 1 if ranks % 8 else 8), (STEPS, events, 0), [], 1)
    write(job, truth, out, 2)
    return sorted(out.iterdir(), key=lambda path: path.name.split(".")[1])  # their stamps rise with the ranks


def _linked(folder: Path, files: list[Path]) -> Path:
    """A run of these files."""
    folder.mkdir(exist_ok=True)
    for path in files:
        (folder / path.name).hardlink_to(path)
    return folder


def _added(folder: Path, files: list[Path]) -> Row:
    """Return the cost of ten more ranks compared with all ranks."""
    some, cache = len(files) - MORE, folder / "cache-added"
    run = _linked(folder / "added", files[:some])
    first = index(run, cache)
    usage = index(run, cache)
    _linked(run, files[some:])
    more = index(run, cache)
    wall, cpu = more.wall - usage.wall, more.cpu - usage.cpu
    figure = (
        f"{wall:.2f} s, {cpu:.2f} s of CPU = {cpu / MORE * 1e3:.0f} ms a rank ({first.cpu / some * 1e3:.0f} of the"
        f" others); looking for news {usage.wall:.2f} s, {usage.cpu:.2f} s of CPU"
    )
    return Row(f"{MORE} ranks more than {some:,}", figure)


def _by_engine(folder: Path, files: list[Path], engine: str, plain: Taken) -> Iterator[Row]:
    """The same work on a cluster of this machine, its start apart: that is what one file takes longer there."""
    single = _linked(folder / "one", files[:1])
    alone = index(single, folder / "cache-one")
    started = index(single, folder / "cache-one-engine", engine)
    start_s, start_cpu = started.wall - alone.wall, started.cpu - alone.cpu
    yield Row(f"start of {engine}", f"{start_s:.1f} s, {start_cpu:.1f} s of CPU")
    usage = index(folder / f"of{len(files)}", folder / "cache-engine", engine)
    wall, cpu = (usage.wall - start_s) / plain.wall, (usage.cpu - start_cpu) / plain.cpu
    figure = f"{usage.wall:.1f} s against {plain.wall:.1f} s: without the start {wall:.2f} x, {cpu:.2f} x the CPU"
    yield Row(f"index, {len(files):,} ranks, {engine}", figure, f"at most {AT_MOST} x", wall <= AT_MOST)
    yield Row(f"largest process of {engine}", f"{usage.peak / 1e6:.0f} MB", "below 1 GB", usage.peak < PEAK)


def _index_row(what: str, taken: Taken, ranks: int, kept: int, megabytes: float) -> Row:
    figure = (
        f"{taken.wall:.1f} s, {taken.cpu:.1f} s of CPU = {taken.cpu / ranks * 1e3:.0f} ms a rank of"
        f" {megabytes / ranks:.1f} MB; {kept / ranks / 1e3:.0f} kB kept a rank;"
        f" largest process {taken.peak / 1e6:.0f} MB"
    )
    return Row(what, figure, "below 1 GB", taken.peak < PEAK)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--engine", default="ray")
    parser.add_argument("--folder", type=Path, help="for the files, which are deleted in the end")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=options.folder))
    try:
        rows = list[Row]()
        for row in scale(folder, options.ranks, options.events, options.engine):
            print(row.line(), flush=True)
            rows.append(row)
    finally:
        shutil.rmtree(folder)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
