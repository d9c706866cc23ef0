"""Limit how many expensive requests one user may have in progress, so that no user blocks the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from visualprof.messages import msg
from visualprof.remote.queue.errors import TooManyAttempts


class UserSlots:
    """Counts the requests of each user that are in progress.

    Args:
        limit: Requests of one user at the same time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, user: str | None) -> Generator[None]:
        """Hold a slot of a user.

        Raises:
            TooManyAttempts: The user holds all slots.
        """
        with self._lock:
            if self._counts[user] >= self._limit:
                raise TooManyAttempts(
                    msg("server.own_files_being_read", f"{self._limit} of your files are being read already"),
                    msg("server.try_again_when_one_ends", "try again when a file has been read"),
                )
            self._counts[user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._counts[user] -= 1
                if not self._counts[user]:
                    del self._counts[user]
