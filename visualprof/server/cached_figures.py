"""What takes a while to find out, and may be some seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Of = TypeVar("Of")
Found = TypeVar("Found")

_SHARE = 20  # of the time at most a twentieth is spent on it


class Lately(Generic[Of, Found]):
    """Asks at most every so many seconds, whoever wants to know. What did not change stays the same object.

    Args:
        ask: finds it out.
        every_s: how old it may be; older where it takes long to find out.
    """

    def __init__(self, ask: Callable[[Of], Found], every_s: float) -> None:
        self._ask, self._every_s = ask, every_s
        self._lock = threading.Lock()
        self._known: tuple[Of, Found] | None = None
        self._due = 0.0

    def of(self, thing: Of) -> Found:
        """What was found out of it last, or now."""
        with self._lock:
            begun = time.monotonic()
            if self._known is None or self._known[0] is not thing or begun >= self._due:
                found = self._ask(thing)
                same = self._known is not None and self._known == (thing, found)
                self._known = self._known if same else (thing, found)
                end = time.monotonic()
                self._due = end + max(self._every_s, _SHARE * (end - begun))
            assert self._known
            return self._known[1]

    def forget(self) -> None:
        """Ask again when somebody wants to know."""
        self._due = 0.0
