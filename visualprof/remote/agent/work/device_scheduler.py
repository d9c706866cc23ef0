"""Tasks on one device take turns, stage by stage, so that what drifts while they run meets all of them alike.

The order of two specs is A B B A A B B A: forwards in every other round and backwards in the others, so that over an
even number of rounds a steady drift adds the same to the mean of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

POLL_S = 0.2


@dataclass(eq=False)
class ScheduledTask:
    """A task in the relay. index: of its spec in the job. stage: how many of its stages are over."""

    index: int
    finished_stages: int = 0

    @property
    def priority(self) -> tuple[int, int]:
        """Who has the lowest is next."""
        return self.finished_stages, self.index if self.finished_stages % 2 else -self.index


class DeviceScheduler:
    """The turns of an agent's tasks, of which one at a time works on a device."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runners: dict[str, list[ScheduledTask]] = {}
        self._working: set[str] = set()  # devices

    @contextmanager
    def register(self, device: str, index: int) -> Generator[ScheduledTask]:
        """A place for a task until the block ends."""
        runner = ScheduledTask(index)
        with self._changed:
            self._runners.setdefault(device, []).append(runner)
        try:
            yield runner
        finally:
            with self._changed:
                self._runners[device].remove(runner)
                self._changed.notify_all()

    @contextmanager
    def time_slot(self, device: str, runner: ScheduledTask, check: Callable[[], None]) -> Generator[None]:
        """Hold the device for a stage. check: called while waiting; what it raises ends that."""
        with self._changed:
            while device in self._working or min(self._runners[device], key=lambda r: r.priority) is not runner:
                check()
                self._changed.wait(POLL_S)
            self._working.add(device)
        try:
            yield
        finally:
            with self._changed:
                self._working.remove(device)
                runner.finished_stages += 1
                self._changed.notify_all()
