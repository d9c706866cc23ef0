"""A line of the report, and the running of a process that is measured."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
wall = time.perf_counter() - start
sys.stdout.buffer.write(done.stdout)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print("\\nMEASURED", wall, peak, done.returncode, file=sys.stderr)
"""


class Row(NamedTuple):
    """One line of the report; bar "" where there is none."""

    what: str
    figure: str
    bar: str = ""
    ok: bool = True

    def line(self) -> str:
        """The row as the terminal shows it."""
        return f"{'ok  ' if self.ok else 'MISS'}  {self.what}: {self.figure}{f'  ({self.bar})' if self.bar else ''}"


def measured(command: list[str], **env: str) -> tuple[float, int, str]:
    """Wall seconds, peak resident bytes and output of a process."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **env},
        check=True,
    )
    match = re.search(r"MEASURED (\S+) (\d+) (-?\d+)", done.stderr)
    if match is None or match.group(3) != "0":
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
    return float(match.group(1)), int(match.group(2)), done.stdout
