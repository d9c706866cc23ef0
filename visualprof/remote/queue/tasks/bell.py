"""Waiting for work inside this process, by a limited number of threads."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from visualprof.remote.queue.refusals import Crowded


class Bell:
    """Rung when there may be work. Who waits says what it heard last, so that no ring is missed.

    places: how many may wait at a time; each holds a thread of the server.
    """

    def __init__(self, places: int) -> None:
        self._free = threading.Semaphore(places)
        self._condition = threading.Condition()
        self._rung = 0
        self.closed = False

    @property
    def rung(self) -> int:
        """How often it was rung."""
        return self._rung

    def ring(self) -> None:
        """There may be work."""
        with self._condition:
            self._rung += 1
            self._condition.notify_all()

    def close(self) -> None:
        """Nobody waits any more."""
        self.closed = True
        self.ring()

    def wait(self, heard: int, timeout_s: float) -> None:
        """Until it is rung once more than `heard`, or the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._rung != heard or self.closed, timeout_s)

    @contextmanager
    def place(self) -> Generator[None]:
        """A place to wait in.

        Raises: Crowded.
        """
        if not self._free.acquire(blocking=False):
            raise Crowded("many agents wait already", "ask again soon")
        try:
            yield
        finally:
            self._free.release()
