"""Load of this machine by other programs while a part runs: it makes times incomparable."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import psutil

MAX_OTHERS_RATIO = 0.25  # of all processors; above it, a difference of times proves nothing


def _busy_s() -> float:
    """Return the processor time of all programs since the start of the machine."""
    times = psutil.cpu_times()._asdict()
    return sum(times.get(name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


def _own_s() -> float:
    """Return the processor time of this process and of its ended children."""
    return sum(os.times()[:4])


@dataclass
class HostLoad:
    """A measurement that starts with its creation."""

    busy_s: float = field(default_factory=_busy_s)
    own_s: float = field(default_factory=_own_s)
    start_s: float = field(default_factory=time.monotonic)

    def others_ratio(self) -> float:
        """Return the share of all processors that other programs have used since the start."""
        return others_ratio(_busy_s() - self.busy_s, _own_s() - self.own_s, time.monotonic() - self.start_s)


def others_ratio(busy_s: float, own_s: float, wall_s: float, processors: int | None = None) -> float:
    """Return the share of the processors that other programs used.

    Args:
        busy_s: Processor time of all programs.
        own_s: Processor time of our own.
        wall_s: Elapsed time.
        processors: Number of processors (default: this machine).
    """
    capacity_s = wall_s * (processors or os.cpu_count() or 1)
    return min(max((busy_s - own_s) / capacity_s, 0.0), 1.0) if capacity_s > 0 else 0.0
