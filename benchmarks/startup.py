"""From the start of the process to the table of a small file: what a user of the command line waits for."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kinds import written
from benchmarks.opening import seconds
from benchmarks.rows import Row, Run, measured

EVENTS, ROUNDS, AT_MOST_S = 2_500, 15, 0.15


def startup() -> Iterator[Row]:
    """Rows of a file under a megabyte, read and found in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), ["generated"], EVENTS)["generated"]
        command = [sys.executable, "-m", "visualprof", "view", "operator", str(path)]
        read: list[Run] = []
        kept: list[Run] = []
        for turn in range(ROUNDS):
            for runs in (read, kept):
                runs.append(measured(command, 2, VISUALPROF_CACHE_DIR=f"{folder}/cache{turn}"))
        for what, runs in (("read", read), ("read before", kept)):
            wall = sorted(run.wall for run in runs)[ROUNDS // 2]
            size = f"{path.stat().st_size / 1e6:.1f} MB"
            yield Row(f"start to table, {size}, {what}", seconds(runs), f"at most {AT_MOST_S} s", wall <= AT_MOST_S)


if __name__ == "__main__":
    for line in startup():
        print(line.line())
