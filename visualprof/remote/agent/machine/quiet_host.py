"""Waits until the host is quiet, because other load would distort the measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from visualprof.remote.child.host import BUSY_PRESSURE, cpu_wait_us

BUSY_CPU_SHARE = 0.1  # share of the time of all CPUs
WINDOW_S = 1.0


@dataclass(frozen=True)
class HostLoad:
    """Load of the host during one second.

    Attributes:
        cpu_share: Share of the time of all CPUs.
        pressure: Share of the time in which tasks waited for a CPU; `None` if the system does not report it.
    """

    cpu_share: float
    pressure: float | None

    @property
    def quiet(self) -> bool:
        """Whether the load is too small to influence a measurement noticeably."""
        return self.cpu_share <= BUSY_CPU_SHARE and (self.pressure or 0.0) <= BUSY_PRESSURE

    def __str__(self) -> str:
        pressure = "" if self.pressure is None else f", tasks waited for one {self.pressure:.0%} of the time"
        return f"CPUs {self.cpu_share:.0%} busy{pressure}"


def sample_host_load() -> Iterator[HostLoad]:
    """Yield the load of the host, one sample per second."""
    psutil.cpu_percent(None)  # the first answer has no reference interval
    while True:
        waited, start_s = cpu_wait_us(), time.monotonic()
        time.sleep(WINDOW_S)
        cpus, now, took_us = psutil.cpu_percent(None) / 100, cpu_wait_us(), (time.monotonic() - start_s) * 1e6
        yield HostLoad(cpus, None if waited is None or now is None else min(1.0, (now - waited) / took_us))


def wait_for_quiet(
    timeout_s: float, loads: Iterator[HostLoad], check: Callable[[], None]
) -> tuple[float, HostLoad | None]:
    """Wait until the host was quiet for one second.

    Args:
        timeout_s: Maximum wait.
        loads: Samples of `sample_host_load`.
        check: Called after each second; an exception that it raises ends the wait.

    Returns:
        The seconds waited, and the last load if it was still too high; `None` if the host became quiet.
    """
    waited_s, load = 0.0, None
    while waited_s < timeout_s:
        load = next(loads)
        waited_s += WINDOW_S
        if load.quiet:
            return waited_s, None
        check()
    return waited_s, load
