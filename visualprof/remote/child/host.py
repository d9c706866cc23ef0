"""How busy the machine was while a point was measured, and how much memory this process took at most."""

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
BUSY_SWITCHES_PER_S = 20  # of CPU time: a runtime on 16 cores is interrupted 16 times as often by the same clockwork


@dataclass(frozen=True)
class HostLoad:
    """How busy the machine was during a stretch of time.

    pressure: share of it in which some task waited for a CPU, None where the system does not tell.
    """

    switches: int
    pressure: float | None
    busy: bool


class LoadMeter:
    """Measures the load from its creation to `load()`."""

    def __init__(self) -> None:
        self._start_ns = time.perf_counter_ns()
        self._switches, self._cpu_s, self._waited_us = _switches(), time.process_time(), cpu_wait_us()

    def load(self) -> HostLoad:
        """The load since its creation."""
        took_ns = max(1, time.perf_counter_ns() - self._start_ns)
        switches, waited = _switches() - self._switches, cpu_wait_us()
        pressure = None
        if waited is not None and self._waited_us is not None:
            pressure = min(1.0, (waited - self._waited_us) * 1000 / took_ns)
        worked_s = max(took_ns / 1e9, time.process_time() - self._cpu_s)
        too_many = switches > BUSY_SWITCHES_PER_S * worked_s
        return HostLoad(switches, pressure, too_many or (pressure or 0.0) > BUSY_PRESSURE)


def _switches() -> int:
    """Involuntary context switches of all threads of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def cpu_wait_us() -> int | None:
    """Microseconds in which some task waited for a CPU, since boot; None on a kernel without pressure."""
    try:
        first = PRESSURE.read_text("ascii").splitlines()[0]
        return int(first.rpartition("total=")[2])
    except (OSError, IndexError, ValueError):
        return None


def reset_peak_rss() -> None:
    """Reset the peak of memory, where the system can."""
    try:
        CLEAR.write_text("5", "ascii")
    except OSError:
        return


def peak_rss_bytes() -> int:
    """Most resident memory since `forget_peak()`.

    From /proc: `ru_maxrss` starts with that of the process that started this one.
    """
    try:
        line = next(line for line in STATUS.read_text("ascii", "replace").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
