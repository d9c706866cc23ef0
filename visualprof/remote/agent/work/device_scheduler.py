"""Schedules the stages of tasks that share a device, so that slow drift affects all of them alike.

Two run configurations run in the order A B B A A B B A: forward and backward in alternate rounds.
Over an even number of rounds, a steady drift adds the same to the mean of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

POLL_S = 0.2


@dataclass(eq=False)
class ScheduledTask:
    """A task that shares a device.

    Attributes:
        index: Index of its run configuration in the job.
        finished_stages: Number of its finished stages.
    """

    index: int
    finished_stages: int = 0

    @property
    def priority(self) -> tuple[int, int]:
        """Sort key; the task with the lowest one runs next."""
        return self.finished_stages, self.index if self.finished_stages % 2 else -self.index


class DeviceScheduler:
    """Schedules an agent's tasks. Only one task at a time runs on a device."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: dict[str, list[ScheduledTask]] = {}
        self._busy_devices: set[str] = set()

    @contextmanager
    def register(self, device: str, index: int) -> Generator[ScheduledTask]:
        """Register a task on a device until the block ends."""
        task = ScheduledTask(index)
        with self._changed:
            self._tasks.setdefault(device, []).append(task)
        try:
            yield task
        finally:
            with self._changed:
                self._tasks[device].remove(task)
                self._changed.notify_all()

    @contextmanager
    def time_slot(self, device: str, task: ScheduledTask, check: Callable[[], None]) -> Generator[None]:
        """Hold the device for one stage.

        Args:
            device: The device.
            task: The registered task.
            check: Called while waiting; an exception that it raises ends the wait.
        """
        with self._changed:
            while device in self._busy_devices or min(self._tasks[device], key=lambda r: r.priority) is not task:
                check()
                self._changed.wait(POLL_S)
            self._busy_devices.add(device)
        try:
            yield
        finally:
            with self._changed:
                self._busy_devices.remove(device)
                task.finished_stages += 1
                self._changed.notify_all()
