"""Waiting for work inside this process, by a limited number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from visualprof.messages import msg
from visualprof.remote.queue.errors import ServerBusy

RECHECK_S = 0.5  # another server on the same database may have got a job


class Notifier:
    """Told when there may be work. Who waits says how many notices it knows of, so that none is missed.

    A notice wakes as many as there are new tasks, those that wait longest. Who was woken and found nothing passes it
    on, and the others sleep: a task is not looked for by everybody, and one that was taken by nobody any more.

    limit: how many may wait at a time; each holds a thread of the server.
    relay: told of every notice, for other servers. recheck_s: until who waits looks by itself: theirs may be missing.
    """

    forward: Callable[[int], object] | None = None
    recheck_s = RECHECK_S

    def __init__(self, limit: int) -> None:
        self._limit, self._untaken = limit, 0  # tasks of notices; no more than can be woken for them
        self._slots = threading.Semaphore(limit)
        self._condition = threading.Condition()
        self.notification_count = 0
        self.closed = False

    def notify(self, tasks: int = 1) -> None:
        """There may be so many tasks more."""
        self.notify_local(tasks)
        if self.forward:
            self.forward(tasks)

    def notify_local(self, tasks: int) -> None:
        """As `notify`; the others know it already."""
        with self._condition:
            self.notification_count += 1
            self._untaken = min(self._untaken + tasks, self._limit)
            self._condition.notify(tasks)

    def task_claimed(self) -> None:
        """Somebody has one of the tasks, perhaps before who was woken for it could look."""
        with self._condition:
            self._untaken = max(self._untaken - 1, 0)

    def wake_next(self) -> None:
        """Who was woken found nothing: it may be for another. Who has looked since the notice sleeps on."""
        with self._condition:
            self._condition.notify()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()

    def wait(self, known: int, timeout_s: float) -> None:
        """Until there are other notices than those that are known, of tasks that are there, or the time is over."""

        def called() -> bool:
            return (self.notification_count != known and self._untaken > 0) or self.closed

        with self._condition:
            self._condition.wait_for(called, timeout_s)

    @contextmanager
    def waiter_slot(self) -> Generator[None]:
        """Room to wait in.

        Raises: Crowded.
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
