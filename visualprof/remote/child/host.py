"""The load of the machine while a point is measured, and the peak memory of this process."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
BUSY_PRESSURE = 0.1
BUSY_SWITCHES_PER_S = 20  # per second of CPU time: on 16 cores, timers interrupt a runtime 16 times as often


@dataclass(frozen=True)
class HostLoad:
    """The load of the machine during an interval.

    Attributes:
        switches: Involuntary context switches of this process.
        pressure: Share of the interval in which some task waited for a CPU; `None` if the system does not report it.
        busy: Whether other programs may have disturbed the measurement.
    """

    switches: int
    pressure: float | None
    busy: bool


class LoadMeter:
    """Measures the load of the machine from the meter's creation to `load()`."""

    def __init__(self) -> None:
        self._start_ns = time.perf_counter_ns()
        self._switches, self._cpu_s, self._waited_us = _switches(), time.process_time(), cpu_wait_us()

    def load(self) -> HostLoad:
        """Return the load since the creation of the meter."""
        took_ns = max(1, time.perf_counter_ns() - self._start_ns)
        switches, waited_us = _switches() - self._switches, cpu_wait_us()
        pressure = None
        if waited_us is not None and self._waited_us is not None:
            pressure = min(1.0, (waited_us - self._waited_us) * 1000 / took_ns)
        worked_s = max(took_ns / 1e9, time.process_time() - self._cpu_s)
        interrupted = switches > BUSY_SWITCHES_PER_S * worked_s
        return HostLoad(switches, pressure, interrupted or (pressure or 0.0) > BUSY_PRESSURE)


def _switches() -> int:
    """Return the involuntary context switches of all threads of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def cpu_wait_us() -> int | None:
    """Return the microseconds since boot in which some task waited for a CPU; `None` if the kernel has no counter."""
    try:
        line = PRESSURE.read_text("ascii").splitlines()[0]
        return int(line.rpartition("total=")[2])
    except (OSError, IndexError, ValueError):
        return None


def reset_peak_rss() -> None:
    """Reset the peak of resident memory, if the system can."""
    try:
        CLEAR.write_text("5", "ascii")
    except OSError:
        return


def peak_rss_bytes() -> int:
    """Return the peak of resident memory since `reset_peak_rss()`.

    Read from /proc, because `ru_maxrss` starts at the value of the parent process.
    """
    try:
        line = next(line for line in STATUS.read_text("ascii", "replace").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
