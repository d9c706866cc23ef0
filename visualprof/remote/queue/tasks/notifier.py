"""Waiting for work inside this process, by a limited number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from visualprof.messages import msg
from visualprof.remote.queue.errors import ServerBusy

RECHECK_INTERVAL_S = 0.5  # another server on the same database may have received a job


class Notifier:
    """Wakes waiting agents when there may be work.

    A waiter passes the last notification count that it has seen, so that it misses none. A notification wakes one
    waiter
    per new task, the longest-waiting first. A waiter that wakes and finds no task wakes the next one; the rest stay
    asleep. This avoids a thundering herd.

    Args:
        limit: Maximum number of waiters; each occupies a server thread.

    Attributes:
        forward: Called with each notification, to inform other servers.
        recheck_interval_s: Interval at which waiters query the database without a notification, because notifications
            of other servers may be lost.
        notification_count: Number of notifications so far.
    """

    forward: Callable[[int], object] | None = None
    recheck_interval_s = RECHECK_INTERVAL_S

    def __init__(self, limit: int) -> None:
        self._limit, self._unclaimed = limit, 0  # announced tasks without a claim; at most one per waiter
        self._slots = threading.Semaphore(limit)
        self._condition = threading.Condition()
        self.notification_count = 0
        self.closed = False

    def notify(self, tasks: int = 1) -> None:
        """Announce new tasks to waiters here and on other servers."""
        self.notify_local(tasks)
        if self.forward:
            self.forward(tasks)

    def notify_local(self, tasks: int) -> None:
        """Announce new tasks to waiters of this process only."""
        with self._condition:
            self.notification_count += 1
            self._unclaimed = min(self._unclaimed + tasks, self._limit)
            self._condition.notify(tasks)

    def task_claimed(self) -> None:
        """Record that a task was claimed, perhaps before the waiter that was woken for it could claim it."""
        with self._condition:
            self._unclaimed = max(self._unclaimed - 1, 0)

    def wake_next(self) -> None:
        """Wake the next waiter, because the one that was woken found no task.

        Waiters that have seen the notification sleep on.
        """
        with self._condition:
            self._condition.notify()

    def close(self) -> None:
        """Release all waiters for good."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait for a notification of an unclaimed task, at most `timeout_s`.

        Args:
            seen: Notification count that the caller has seen.
            timeout_s: Maximum waiting time.
        """

        def has_news() -> bool:
            return (self.notification_count != seen and self._unclaimed > 0) or self.closed

        with self._condition:
            self._condition.wait_for(has_news, timeout_s)

    @contextmanager
    def waiter_slot(self) -> Generator[None]:
        """Reserve a place to wait for the duration of the block.

        Raises:
            ServerBusy: All places are in use.
        """
        if not self._slots.acquire(blocking=False):
            raise ServerBusy(
                msg("queue.many_agents_wait_already", "many agents wait already"),
                msg("queue.ask_again_soon", "ask again soon"),
            )
        try:
            yield
        finally:
            self._slots.release()
