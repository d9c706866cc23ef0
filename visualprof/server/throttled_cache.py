"""Cache for values that are slow to compute and may be a few seconds old."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from visualprof.clock import SYSTEM_CLOCK, Clock

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_IDLE_FACTOR = 20  # the pause is at least 20 times the computing time


class ThrottledCache(Generic[KeyT, ValueT]):
    """Cached result of a function that is called at most once per interval. An unchanged result stays the same object.

    Args:
        ask: Computes the value.
        every_s: Minimum seconds between calls; longer if the computation is slow.
        clock: Measures the interval.
    """

    def __init__(self, ask: Callable[[KeyT], ValueT], every_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ask, self._every_s, self._clock = ask, every_s, clock
        self._lock = threading.Lock()
        self._cached: tuple[KeyT, ValueT] | None = None
        self._due = 0.0

    def get(self, thing: KeyT) -> ValueT:
        """Return the cached value of a key, computed again if it is too old."""
        with self._lock:
            start = self._clock.monotonic()
            if self._cached is None or self._cached[0] is not thing or start >= self._due:
                value = self._ask(thing)
                same = self._cached is not None and self._cached == (thing, value)
                self._cached = self._cached if same else (thing, value)
                end = self._clock.monotonic()
                self._due = end + max(self._every_s, _IDLE_FACTOR * (end - start))
            assert self._cached
            return self._cached[1]

    def invalidate(self) -> None:
        """Compute the value again at the next request."""
        self._due = 0.0
