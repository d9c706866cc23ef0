"""Time and memory of a command and all its descendants, including those that outlive it."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

PAUSE_S, MARK = 0.2, "BENCHMARK_MARK"


class Taken(NamedTuple):
    """Wall and CPU seconds of all processes, the peak resident bytes of the largest of them, the output."""

    wall: float
    cpu: float
    peak: int
    out: str


class _Processes:
    """CPU seconds and peak bytes of every process that has the mark in its environment, as last seen."""

    def __init__(self, mark: str) -> None:
        self.mark = f"{MARK}={mark}".encode()
        self.seen: dict[str, tuple[float, int]] = {}
        self.others: set[str] = set()
        self.over = threading.Event()

    def watch(self) -> None:
        """Looks until it is over. Linux only."""
        while not self.over.wait(PAUSE_S):
            for folder in Path("/proc").iterdir():
                if folder.name.isdigit() and folder.name not in self.others:
                    self._look(folder)

    def _look(self, folder: Path) -> None:
        try:
            if folder.name not in self.seen and self.mark not in (folder / "environ").read_bytes():
                self.others.add(folder.name)
                return
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            status = (folder / "status").read_text()
        except OSError:  # it has ended meanwhile, or is somebody else's
            return
        if "VmHWM:" in status:
            peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
            ticks = os.sysconf("SC_CLK_TCK")
            self.seen[folder.name] = ((int(fields[11]) + int(fields[12])) / ticks, peak)


def watched(command: list[str], **env: str) -> Taken:
    """Runs a command to its end. CPU time of a process's last fifth of a second may be missed.

    Raises: RuntimeError: it failed.
    """
    mark = uuid4().hex
    processes = _Processes(mark)
    thread = threading.Thread(target=processes.watch, daemon=True)
    thread.start()
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env, MARK: mark})
    finally:
        wall = time.perf_counter() - begun
        processes.over.set()
        thread.join()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Whose parents waited for them is exact; of others what was seen.
    cpu = max(waited, sum(seconds for seconds, _ in processes.seen.values()))
    return Taken(wall, cpu, max((peak for _, peak in processes.seen.values()), default=0), done.stdout)
