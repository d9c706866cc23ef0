"""A line of the report, and the running of a process that is measured."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# Runs a command on the first so many cores (0: all): the peak is that of the largest of its processes.
MEASURE = """
import os, resource, subprocess, sys, time
cores = int(sys.argv[1])
if cores and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
start = time.perf_counter()
done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE)
wall = time.perf_counter() - start
sys.stdout.buffer.write(done.stdout)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
unit = 1 if sys.platform == "darwin" else 1024
print("\\nMEASURED", wall, used.ru_utime + used.ru_stime, used.ru_maxrss * unit, done.returncode, file=sys.stderr)
"""


class Row(NamedTuple):
    """A line of the report; `bar` is "" without a limit."""

    what: str
    figure: str
    bar: str = ""
    ok: bool = True

    def line(self) -> str:
        """The row as the terminal shows it."""
        return f"{'ok  ' if self.ok else 'MISS'}  {self.what}: {self.figure}{f'  ({self.bar})' if self.bar else ''}"


class Run(NamedTuple):
    """Wall time, CPU time, peak resident memory and output of a process."""

    wall: float
    cpu: float
    peak: int
    out: str


def measured(command: list[str], cores: int = 0, cwd: Path = ROOT, **env: str) -> Run:
    """Run a process to its end, on so many cores.

    Raises: RuntimeError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(cores), *command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **env},  # as pip leaves an installation: compiled
        check=True,
    )
    match = re.search(r"MEASURED (\S+) (\S+) (\d+) (-?\d+)", done.stderr)
    if match is None or match.group(4) != "0":
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
    return Run(float(match.group(1)), float(match.group(2)), int(match.group(3)), done.stdout)
