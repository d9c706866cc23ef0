"""Tasks on one device take turns, stage by stage, so that what drifts while they run meets all of them alike.

The order of two specs is A B B A A B B A: forwards in every other round and backwards in the others, so that over an
even number of rounds a steady drift adds the same to the mean of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

LOOK_S = 0.2


@dataclass(eq=False)
class Runner:
    """A task in the relay. index: of its spec in the job. stage: how many of its stages are over."""

    index: int
    stage: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Who has the lowest is next."""
        return self.stage, self.index if self.stage % 2 else -self.index


class Relay:
    """The turns of an agent's tasks, of which one at a time works on a device."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runners: dict[str, list[Runner]] = {}
        self._working: set[str] = set()  # devices

    @contextmanager
    def runner(self, device: str, index: int) -> Generator[Runner]:
        """A place for a task until the block ends."""
        runner = Runner(index)
        with self._changed:
            self._runners.setdefault(device, []).append(runner)
        try:
            yield runner
        finally:
            with self._changed:
                self._runners[device].remove(runner)
                self._changed.notify_all()

    @contextmanager
    def turn(self, device: str, runner: Runner, check: Callable[[], None]) -> Generator[None]:
        """Hold the device for a stage. check: called while waiting; what it raises ends that."""
        with self._changed:
            while device in self._working or min(self._runners[device], key=lambda r: r.rank) is not runner:
                check()
                self._changed.wait(LOOK_S)
            self._working.add(device)
        try:
            yield
        finally:
            with self._changed:
                self._working.remove(device)
                runner.stage += 1
                self._changed.notify_all()
