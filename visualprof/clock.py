"""The clock of schedules, leases and settling times: a parameter, so that tests move time instead of waiting."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time that threads can wait on."""

    def time_ns(self) -> int:
        """Return the time since the epoch, in nanoseconds."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary point; they never decrease."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until an event is set, at most for some seconds; return whether it is set."""
        ...


class SystemClock:
    """The clock of this machine."""

    def time_ns(self) -> int:
        """Return the time since the epoch, in nanoseconds."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary point; they never decrease."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until an event is set, at most for some seconds; return whether it is set."""
        return event.wait(timeout_s)


SYSTEM_CLOCK = SystemClock()
