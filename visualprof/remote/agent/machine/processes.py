"""Processes of a task: what they use, and their end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

MARK_VARIABLE = "VISUALPROF_TASK"  # in the environment of every process of a task
REFRESH_S = 1.0
SCRATCH = ("", "dev", "tmp")
ROUNDS = 20  # a process may fork while it is looked for
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError, OSError)


@dataclass(frozen=True)
class Usage:
    """Sums over the tree: CPU seconds of user and system, bytes, involuntary context switches of all threads."""

    cpu_s: float
    rss_bytes: int
    switches: int


class ProcessTree:
    """A process and its descendants. To list them reads all of /proc, so the list is kept for a second."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._root = psutil.Process(pid)
        self._all = [self._root]
        self._born = self._listed = time.monotonic()

    def processes(self) -> list[psutil.Process]:
        """The living ones, the root first. In the first second the list is renewed at each call."""
        now = time.monotonic()
        if now - self._listed > REFRESH_S or now - self._born < REFRESH_S:
            self._listed = now
            with suppress(*_GONE):
                self._all = [self._root, *self._root.children(recursive=True)]
        return self._all

    def pids(self) -> set[int]:
        """Their numbers."""
        return {process.pid for process in self.processes()}

    def rss_bytes(self) -> int:
        """Resident memory of all processes of the tree."""
        total = 0
        for process in self.processes():
            with suppress(*_GONE):
                total += process.memory_info().rss
        return total

    def usage(self) -> Usage:
        """What the tree has used until now."""
        cpu, rss, switches = 0.0, 0, 0
        for process in self.processes():
            with suppress(*_GONE):
                times = process.cpu_times()
                cpu += times.user + times.system
                rss += process.memory_info().rss
                switches += _switches(process.pid)
        return Usage(cpu, rss, switches)


def scratch_bytes(tree: ProcessTree) -> int:
    """Files of a sandbox that lie in memory: bubblewrap's own /, /dev and /tmp, which count to no process."""
    root, total = os.path.join("/proc", str(tree.processes()[-1].pid), "root", ""), 0
    with suppress(*_GONE):
        if os.stat(root).st_dev == os.stat("/").st_dev:
            return 0  # the sandbox is still being made
        for name in SCRATCH:
            disk = os.statvfs(root + name)
            total += (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return total


def _switches(pid: int) -> int:
    """Involuntary switches of every thread; the process's own status counts its first thread alone."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError), open(f"/proc/{pid}/task/{thread}/status", "rb") as file:
            total += int(file.read().rpartition(b"nonvoluntary_ctxt_switches:")[2].split()[0])
    return total


def signal_tree(pid: int, number: signal.Signals) -> None:
    """Signals a process group and its descendants.

    SIGTERM spares bubblewrap: it would end at once and take the child with it, before that could tidy up.
    """
    with suppress(*_GONE):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(*_GONE):
                if number != signal.SIGTERM or process.name() != "bwrap":
                    process.send_signal(number)
    with suppress(*_GONE):
        if number != signal.SIGTERM or psutil.Process(pid).name() != "bwrap":
            os.killpg(pid, number)


def kill_marked(mark: str) -> int:
    """Kill every process of a task, wherever it went: by the mark in its environment. Returns how many."""
    total = 0
    for _ in range(ROUNDS):
        processes = list(_marked(mark))
        for process in processes:
            with suppress(*_GONE):
                process.kill()
        total += len(processes)
        if not processes:
            break
    return total


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(*_GONE):
            if process.environ().get(MARK_VARIABLE) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def read_start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with the pid it names one process. 0: there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def kill_orphan(pid: int, started: int, mark: str) -> None:
    """End what a killed agent left: the process with that start and its group, and all with the mark."""
    if pid and started and read_start_ticks(pid) == started:
        signal_tree(pid, signal.SIGKILL)
    kill_marked(mark)
