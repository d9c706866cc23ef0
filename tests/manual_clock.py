"""A clock that only moves when a test moves it."""

from __future__ import annotations

import threading
import time


class ManualClock:
    """Starts at the present time. `advance` moves it, which wakes the threads that wait on it."""

    def __init__(self) -> None:
        self._start_ns = time.time_ns()
        self._elapsed_ns = 0
        self._moved = threading.Condition()

    def time_ns(self) -> int:
        return self._start_ns + self._elapsed_ns

    def monotonic(self) -> float:
        return 1e6 + self._elapsed_ns / 1e9

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        end = self.monotonic() + timeout_s
        with self._moved:
            while not event.is_set() and self.monotonic() < end:
                self._moved.wait(0.01)  # setting the event notifies nobody here
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._moved:
            self._elapsed_ns += int(seconds * 1e9)
            self._moved.notify_all()

    def set_forward(self, seconds: float) -> None:
        """Set the time of day like an administrator; no time passes."""
        self._start_ns += int(seconds * 1e9)
