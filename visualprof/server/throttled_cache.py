"""What takes a while to find out, and may be some seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_IDLE_FACTOR = 20  # of the time at most a twentieth is spent on it


class ThrottledCache(Generic[KeyT, ValueT]):
    """Asks at most every so many seconds, whoever wants to know. What did not change stays the same object.

    Args:
        ask: finds it out.
        every_s: how old it may be; older where it takes long to find out.
    """

    def __init__(self, ask: Callable[[KeyT], ValueT], every_s: float) -> None:
        self._ask, self._every_s = ask, every_s
        self._lock = threading.Lock()
        self._known: tuple[KeyT, ValueT] | None = None
        self._due = 0.0

    def get(self, thing: KeyT) -> ValueT:
        """What was found out of it last, or now."""
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
        """Ask again when somebody wants to know."""
        self._due = 0.0
