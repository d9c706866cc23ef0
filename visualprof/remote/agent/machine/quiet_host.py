"""Waiting until the host is quiet: what others do meanwhile would be in the numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from visualprof.remote.child.host import BUSY_PRESSURE, waited_us

BUSY_CPU_SHARE = 0.1  # share of the time of all CPUs
WINDOW_S = 1.0


@dataclass(frozen=True)
class HostLoad:
    """How much a host did in a second. cpus: share of the time of all CPUs. pressure: None where it does not tell."""

    cpu_share: float
    pressure: float | None

    @property
    def quiet(self) -> bool:
        """Whether a measurement would hardly notice it."""
        return self.cpu_share <= BUSY_CPU_SHARE and (self.pressure or 0.0) <= BUSY_PRESSURE

    def __str__(self) -> str:
        pressure = "" if self.pressure is None else f", tasks waited for one {self.pressure:.0%} of the time"
        return f"CPUs {self.cpu_share:.0%} busy{pressure}"


def sample_host_load() -> Iterator[HostLoad]:
    """The use of the host, one second after the other."""
    psutil.cpu_percent(None)  # the first answer is since nothing
    while True:
        waited, began = waited_us(), time.monotonic()
        time.sleep(WINDOW_S)
        cpus, now, took_us = psutil.cpu_percent(None) / 100, waited_us(), (time.monotonic() - began) * 1e6
        yield HostLoad(cpus, None if waited is None or now is None else min(1.0, (now - waited) / took_us))


def wait_for_quiet(
    timeout_s: float, loads: Iterator[HostLoad], check: Callable[[], None]
) -> tuple[float, HostLoad | None]:
    """Waits until a second was quiet, at most so long.

    Args: uses: of `host_use`. check: called after each second; what it raises ends the wait.
    Returns: the seconds that it took, and the use that was too much at last; None for a host that became quiet.
    """
    took_s, use = 0.0, None
    while took_s < timeout_s:
        use = next(loads)
        took_s += WINDOW_S
        if use.quiet:
            return took_s, None
        check()
    return took_s, use
