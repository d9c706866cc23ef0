"""Parsing in a few processes of its own, so that the server stays free and a crash takes one file only.

Each slot is a thread that feeds one spawned child, so a killed child fails its own file and is replaced
for the next. The result of a job is small: the columns travel through the cache.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from visualprof.reader.child import Child, Failure, Limits, Result, Task

# Two such files at once could take more memory than the machine has.
_HUGE_BYTES = 1024**3

Told = TypeVar("Told", contravariant=True)
Read = TypeVar("Read", covariant=True)


class Listener(Protocol[Told]):
    """Who wants to know; called from the pool's threads."""

    def progressed(self, key: str, progress: float) -> None:
        """A job has begun (0.0) or got on."""

    def finished(self, key: str, outcome: Told | Failure) -> None:
        """A job is over, unless it was cancelled."""


class Parser(Protocol[Read]):
    """What parses files in the background."""

    def start(self, listener: Listener[Read]) -> None:
        """Tells `listener` from now on."""

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        """Queues a file, the lowest order first."""

    def hurry(self, key: str) -> None:
        """Moves a queued file to the front."""

    def cancel(self, key: str) -> None:
        """Forgets a job without a word to the listener."""

    def close(self) -> None:
        """Stops everything."""


@dataclass
class _Job:
    key: str
    path: str
    size: int
    order: tuple[int, ...]
    cancelled: bool = False


class Pool(Generic[Result]):
    """Parses files in child processes, the lowest `order` first.

    Args:
        task: what a child does with a path; must be picklable.
        workers: child processes at most; by default as many as processors, 2 to 4.
        limits: what one file may take.
    """

    def __init__(self, task: Task[Result], workers: int | None = None, limits: Limits | None = None) -> None:
        self._task = task
        self._limits = limits
        self._count = workers or max(2, min(os.cpu_count() or 2, 4))
        self._turn = threading.Condition()
        self._waiting: dict[str, _Job] = {}
        self._running: dict[str, _Job] = {}
        self._slots: list[threading.Thread] = []
        self._closed = False
        self._listener: Listener[Result] | None = None

    def start(self, listener: Listener[Result]) -> None:
        """From now on tells `listener`; children start with their first job."""
        self._listener = listener

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        """Queues a file; a job of the same key is cancelled first."""
        with self._turn:
            self._cancel(key)
            self._waiting[key] = _Job(key, os.fspath(path), size, order)
            if len(self._slots) < min(self._count, len(self._waiting) + len(self._running)) and not self._closed:
                slot = threading.Thread(target=self._serve, name=f"parse-{len(self._slots)}", daemon=True)
                self._slots.append(slot)
                slot.start()
            self._turn.notify()

    def hurry(self, key: str) -> None:
        """Someone waits for this file: it is the next."""
        with self._turn:
            job = self._waiting.get(key)
            if job:
                job.order = (-1, -time.monotonic_ns())

    def cancel(self, key: str) -> None:
        """Forgets the job; a child busy with it is stopped. Its outcome is not reported."""
        with self._turn:
            self._cancel(key)

    def close(self) -> None:
        """Stops all children; returns when they are gone."""
        with self._turn:
            self._closed = True
            for key in [*self._waiting, *self._running]:
                self._cancel(key)
            self._turn.notify_all()
        for slot in self._slots:
            slot.join(timeout=5)

    def _cancel(self, key: str) -> None:
        self._waiting.pop(key, None)
        job = self._running.pop(key, None)
        if job:
            job.cancelled = True

    def _take(self) -> _Job | None:
        """The next job; None at the end. At most one huge file runs at a time."""
        with self._turn:
            while not self._closed:
                huge = any(job.size >= _HUGE_BYTES for job in self._running.values())
                ready = [job for job in self._waiting.values() if not (huge and job.size >= _HUGE_BYTES)]
                if ready:
                    job = min(ready, key=lambda job: job.order)
                    del self._waiting[job.key]
                    self._running[job.key] = job
                    return job
                self._turn.wait()
        return None

    def _serve(self) -> None:
        child: Child[Result] | None = None
        while job := self._take():
            self._tell(job, 0.0)
            try:
                child = child if child and child.alive() else Child(self._task, self._limits)
                outcome = self._run(child, job)
            except OSError as error:  # no process or no pipe left
                outcome = Failure(
                    f"cannot start a process to read {Path(job.path).name}: {error}", "close other programs", 500
                )
            if child and (outcome is None or child.heavy):
                child.stop()
                child = None
            self._over(job, outcome)
        if child:
            child.stop()

    def _run(self, child: Child[Result], job: _Job) -> Result | Failure | None:
        return child.run(job.path, Path(job.path).name, partial(self._tell, job), lambda: job.cancelled)

    def _over(self, job: _Job, outcome: Result | Failure | None) -> None:
        with self._turn:
            if self._running.get(job.key) is job:
                del self._running[job.key]
            self._turn.notify_all()
        if outcome is not None and not job.cancelled and self._listener:
            self._listener.finished(job.key, outcome)

    def _tell(self, job: _Job, progress: float) -> None:
        if self._listener and not job.cancelled:
            self._listener.progressed(job.key, progress)
