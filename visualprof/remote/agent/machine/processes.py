"""Processes of a task: their resource usage, and how to end them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

MARK_VARIABLE = "VISUALPROF_TASK"  # in the environment of every process of a task
MEMORY_SHARE = 0.9  # of the machine's memory, for a task without a limit
REFRESH_S = 1.0
SCRATCH_MOUNTS = ("", "dev", "tmp")
MAX_SWEEPS = 20  # processes may fork during a sweep
_PROCESS_ERRORS = (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError, OSError)


def default_memory_bytes() -> int:
    """Return the memory limit of a task without a limit of the user, in bytes."""
    return round(MEMORY_SHARE * psutil.virtual_memory().total)


@dataclass(frozen=True)
class Usage:
    """Resource usage summed over a process tree.

    Attributes:
        cpu_s: CPU seconds, user and system.
        rss_bytes: Resident memory.
        switches: Involuntary context switches of all threads.
    """

    cpu_s: float
    rss_bytes: int
    switches: int


class ProcessTree:
    """A process and its descendants. Listing them reads all of /proc, so the list is cached for a second."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._root = psutil.Process(pid)
        self._processes = [self._root]
        self._created_s = self._listed_s = time.monotonic()

    def processes(self) -> list[psutil.Process]:
        """Return the living processes, the root first. In the first second every call renews the list."""
        now = time.monotonic()
        if now - self._listed_s > REFRESH_S or now - self._created_s < REFRESH_S:
            self._listed_s = now
            with suppress(*_PROCESS_ERRORS):
                self._processes = [self._root, *self._root.children(recursive=True)]
        return self._processes

    def pids(self) -> set[int]:
        """Return the process ids."""
        return {process.pid for process in self.processes()}

    def rss_bytes(self) -> int:
        """Return the resident memory of all processes."""
        total = 0
        for process in self.processes():
            with suppress(*_PROCESS_ERRORS):
                total += process.memory_info().rss
        return total

    def usage(self) -> Usage:
        """Return the resource usage so far."""
        cpu, rss, switches = 0.0, 0, 0
        for process in self.processes():
            with suppress(*_PROCESS_ERRORS):
                times = process.cpu_times()
                cpu += times.user + times.system
                rss += process.memory_info().rss
                switches += _switches(process.pid)
        return Usage(cpu, rss, switches)


def scratch_bytes(tree: ProcessTree) -> int:
    """Return the size of a sandbox's files in memory: its own /, /dev and /tmp, which count toward no process."""
    root, total = os.path.join("/proc", str(tree.processes()[-1].pid), "root", ""), 0
    with suppress(*_PROCESS_ERRORS):
        if os.stat(root).st_dev == os.stat("/").st_dev:
            return 0  # the sandbox is not set up yet
        for name in SCRATCH_MOUNTS:
            disk = os.statvfs(root + name)
            total += (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return total


def _switches(pid: int) -> int:
    """Return the involuntary switches of every thread; the status of the process counts only its first thread."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError), open(f"/proc/{pid}/task/{thread}/status", "rb") as file:
            total += int(file.read().rpartition(b"nonvoluntary_ctxt_switches:")[2].split()[0])
    return total


def signal_tree(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process group and its descendants.

    SIGTERM skips bubblewrap, which would exit at once and kill the child before it can clean up.
    """
    with suppress(*_PROCESS_ERRORS):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(*_PROCESS_ERRORS):
                if number != signal.SIGTERM or process.name() != "bwrap":
                    process.send_signal(number)
    with suppress(*_PROCESS_ERRORS):
        if number != signal.SIGTERM or psutil.Process(pid).name() != "bwrap":
            os.killpg(pid, number)


def kill_marked(mark: str) -> int:
    """Kill every process of a task, found by the mark in its environment; return how many were killed."""
    total = 0
    for _ in range(MAX_SWEEPS):
        processes = list(_marked_processes(mark))
        for process in processes:
            with suppress(*_PROCESS_ERRORS):
                process.kill()
        total += len(processes)
        if not processes:
            break
    return total


def _marked_processes(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(*_PROCESS_ERRORS):
            if process.environ().get(MARK_VARIABLE) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def read_start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if there is no such process.

    Together with the process id this identifies a process.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def kill_orphan(pid: int, start_ticks: int, mark: str) -> None:
    """Kill the child of a killed agent: the process with this start time, its group, and all processes of the task."""
    if pid and start_ticks and read_start_ticks(pid) == start_ticks:
        signal_tree(pid, signal.SIGKILL)
    kill_marked(mark)
