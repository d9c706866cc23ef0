"""Waiting for work inside this process, by a limited number of threads."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from visualprof.remote.queue.refusals import Crowded


class Notifier:
    """Told when there may be work. Who waits says how many notices it knows of, so that none is missed.

    limit: how many may wait at a time; each holds a thread of the server.
    """

    def __init__(self, limit: int) -> None:
        self._slots = threading.Semaphore(limit)
        self._condition = threading.Condition()
        self.notices = 0
        self.closed = False

    def notify(self) -> None:
        """There may be work."""
        with self._condition:
            self.notices += 1
            self._condition.notify_all()

    def close(self) -> None:
        """Nobody waits any more."""
        self.closed = True
        self.notify()

    def wait(self, known: int, timeout_s: float) -> None:
        """Until there are other notices than those that are known, or the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self.notices != known or self.closed, timeout_s)

    @contextmanager
    def slot(self) -> Generator[None]:
        """Room to wait in.

        Raises: Crowded.
        """
        if not self._slots.acquire(blocking=False):
            raise Crowded("many agents wait already", "ask again soon")
        try:
            yield
        finally:
            self._slots.release()
