"""Cache for values that are slow to compute and may be a few seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_IDLE_FACTOR = 20  # the pause is at least 20 times the computing time


class ThrottledCache(Generic[KeyT, ValueT]):
    """Cached result of a function that is called at most once per interval. An unchanged result stays the same object.

    Args:
        ask: Computes the value.
        every_s: Minimum seconds between calls; longer if the computation is slow.
    """

    def __init__(self, ask: Callable[[KeyT], ValueT], every_s: float) -> None:
        self._ask, self._every_s = ask, every_s
        self._lock = threading.Lock()
        self._known: tuple[KeyT, ValueT] | None = None
        self._due = 0.0

    def get(self, thing: KeyT) -> ValueT:
        """Return the cached value of a key, computed again if it is too old."""
        with self._lock:
            begun = time.monotonic()
            if self._known is None or self._known[0] is not thing or begun >= self._due:
                found = self._ask(thing)
                same = self._known is not None and self._known == (thing, found)
                self._known = self._known if same else (thing, found)
                end = time.monotonic()
                self._due = end + max(self._every_s, _IDLE_FACTOR * (end - begun))
            assert self._known
            return self._known[1]

    def invalidate(self) -> None:
        """Compute the value again at the next request."""
        self._due = 0.0
