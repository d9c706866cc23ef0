"""Scalars of many runs: writing them, reading them for the first time, and again after a restart.

python -m benchmarks.run_data FOLDER [--runs 100]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rows import Row, measured
from visualprof.capture.log.fields import record
from visualprof.capture.log.messages import file_head
from visualprof.capture.log.scalars import ScalarEncoder

TAGS, STEPS = 20, 10_000
COLD_US, RESTART_S, PEAK, WRITE_US = 0.125, 0.3, 250 << 20, 10.0
READ = """
import sys
from pathlib import Path
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.data_pool import PoolReader
from visualprof.reader.run_data.folders import DataFile
from visualprof.reader.run_data.run import RunData
if __name__ == "__main__":
    reader = PoolReader(Cache(Path(sys.argv[2])))
    runs = [(RunData(reader), [DataFile("", str(path))]) for path in sorted(Path(sys.argv[1]).glob("*/*tfevents*"))]
    while not all([data.update(files, 0.01) for data, files in runs]):
        pass
    print(sum(row.points for data, _ in runs for row in data.scalar_tags()))
    reader.close()
"""
WRITE = """
import sys
from visualprof.capture import LogWriter
writer = LogWriter(sys.argv[1])
for step in range(int(sys.argv[2])):
    writer.add_scalar("train/loss", 0.5, step)
writer.close()
"""


def write_runs(folder: Path, runs: int) -> None:
    """Writes the same scalars into each run, as links to one file."""
    encoder, rng = ScalarEncoder(), random.Random(1)
    tags = [f"train/tag{i:03d}" for i in range(TAGS)]
    path = folder / "run000" / "events.out.tfevents.1800000000.host.1.0"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(record(file_head(1.8e9)))
        for step in range(STEPS):
            file.write(b"".join(encoder.encode(tag, rng.random(), step, 1.8e9 + step / 4) for tag in tags))
    for run in range(1, runs):
        link = folder / f"run{run:03d}" / path.name
        link.parent.mkdir()
        link.hardlink_to(path)


def reading(folder: Path, runs: int) -> Iterator[Row]:
    """Time and memory of reading all points, without and with a cache."""
    program = folder / "read.py"
    program.write_text(READ)
    points = runs * TAGS * STEPS
    for label, limit_s in (("first", points * COLD_US / 1e6), ("after a restart", RESTART_S)):
        run = measured([sys.executable, str(program), str(folder / "runs"), str(folder / "cache")])
        if int(run.out) != points:
            raise RuntimeError(f"{run.out} points of {points}")
        label = f"{points:,} scalars of {runs} runs, {label}"
        yield Row(label, f"CPU {run.cpu:.2f} s, {run.wall:.2f} s", f"CPU at most {limit_s:.2f} s", run.cpu <= limit_s)
        yield Row("its peak memory", f"{run.peak / 1e6:,.0f} MB", f"at most {PEAK >> 20} MiB", run.peak <= PEAK)


def writing(folder: Path, count: int = 500_000) -> Row:
    """CPU time of a scalar, its checksum and its share of the write."""
    empty, full = (measured([sys.executable, "-c", WRITE, str(folder / "log"), str(n)]).cpu for n in (0, count))
    us = (full - empty) / count * 1e6
    return Row("LogWriter.add_scalar", f"{us:.1f} us of CPU", f"at most {WRITE_US:.0f} us", us <= WRITE_US)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an empty folder for the files")
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    write_runs(options.folder / "runs", options.runs)
    for row in (*reading(options.folder, options.runs), writing(options.folder)):
        print(row.line(), flush=True)


if __name__ == "__main__":
    main()
