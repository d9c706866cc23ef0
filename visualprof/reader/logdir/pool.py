"""Parsing in a few processes of its own, so that the server stays free and a crash takes one file only.

Each slot is a thread that feeds one spawned child, so a killed child fails its own file and is replaced
for the next. The result of a job is small: the columns travel through the cache.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from visualprof.messages import msg
from visualprof.reader.child import Failure, Limits, ReaderProcess, Result, Task
from visualprof.reader.processors import usable_processors

# Two such files at once could take more memory than the machine has.
_HUGE_BYTES = 1024**3
# A child that has had nothing to do for so long ends: it holds 50 to 500 MiB. Another one is there in half a second.
_IDLE_S = 30.0
_MAX_STALE_ENTRIES = 1000

ListenerResult = TypeVar("Told", contravariant=True)
ParserResult = TypeVar("Read", covariant=True)


class Listener(Protocol[ListenerResult]):
    """Who wants to know; called from the pool's threads."""

    def on_progress(self, key: str, progress: float) -> None:
        """A job has begun (0.0) or got on."""

    def on_finished(self, key: str, outcome: ListenerResult | Failure) -> None:
        """A job is over, unless it was cancelled."""


class Parser(Protocol[ParserResult]):
    """What parses files in the background."""

    def start(self, listener: Listener[ParserResult]) -> None:
        """Tell `listener` from now on."""

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        """Queues a file, the lowest order first."""

    def prioritize(self, key: str) -> None:
        """Move a queued file to the front."""

    def cancel(self, key: str) -> None:
        """Forget a job without a word to the listener."""

    def close(self) -> None:
        """Stops everything."""


class Job(msgspec.Struct):
    """A file to parse. huge: never two at once. order: the lowest first."""

    key: str
    path: str
    huge: bool
    order: tuple[int, ...]
    cancelled: bool = False


class JobQueue:
    """Waiting jobs by their order; one that was moved or cancelled stays in the heap until its turn comes."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._heaps: tuple[list[_HeapEntry], list[_HeapEntry]] = ([], [])  # of other files, and of huge ones
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def add(self, job: Job) -> None:
        """Queues a job, or moves one that waits."""
        self._jobs[job.key] = job
        heap = self._heaps[job.huge]
        heappush(heap, (job.order, next(self._sequence), job))
        if len(heap) > 2 * len(self._jobs) + _MAX_STALE_ENTRIES:
            heap[:] = [entry for entry in heap if self._is_waiting(entry)]
            heapify(heap)

    def prioritize(self, key: str) -> None:
        """Put a job, if it waits, before all others."""
        if job := self._jobs.get(key):
            job.order = (-1, -time.monotonic_ns())
            self.add(job)

    def remove(self, key: str) -> None:
        """Forget a job, if it waits."""
        self._jobs.pop(key, None)

    def take(self, huge: bool) -> Job | None:
        """The next job, a huge one only if that is allowed; None when there is none."""
        best: list[_HeapEntry] = []
        for heap in self._heaps[: 1 + huge]:
            while heap and not self._is_waiting(heap[0]):
                heappop(heap)
            if heap and (not best or heap[0] < best[0]):
                best = heap
        return self._jobs.pop(heappop(best)[2].key) if best else None

    def _is_waiting(self, entry: _HeapEntry) -> bool:
        order, _, job = entry
        return self._jobs.get(job.key) is job and job.order is order


_HeapEntry = tuple[tuple[int, ...], int, Job]


class Pool(Generic[Result]):
    """Parses files in child processes, the lowest `order` first.

    Args:
        task: what a child does with a path; must be picklable.
        workers: child processes at most; by default as many as processors that this process may use, 2 to 4.
        idle_s: after so long without a file a child ends.
        limits: what one file may take.
    """

    def __init__(
        self, task: Task[Result], workers: int | None = None, limits: Limits | None = None, idle_s: float = _IDLE_S
    ) -> None:
        self._task = task
        self._limits = limits
        self._count = workers or max(2, min(usable_processors(), 4))
        self._idle_s = idle_s
        self._condition = threading.Condition()
        self._waiting = JobQueue()
        self._running: dict[str, Job] = {}
        self._slots: list[threading.Thread] = []
        self._closed = False
        self._listener: Listener[Result] | None = None

    def start(self, listener: Listener[Result]) -> None:
        """From now on tells `listener`; children start with their first job."""
        self._listener = listener

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        """Queues a file; a job of the same key is cancelled first."""
        with self._condition:
            self._cancel(key)
            self._waiting.add(Job(key, os.fspath(path), size >= _HUGE_BYTES, order))
            if len(self._slots) < min(self._count, len(self._waiting) + len(self._running)) and not self._closed:
                slot = threading.Thread(target=self._run_slot, name=f"parse-{len(self._slots)}", daemon=True)
                self._slots.append(slot)
                slot.start()
            self._condition.notify()

    def prioritize(self, key: str) -> None:
        """Someone waits for this file: it is the next."""
        with self._condition:
            self._waiting.prioritize(key)

    def cancel(self, key: str) -> None:
        """Forget the job; a child busy with it is stopped. Its outcome is not reported."""
        with self._condition:
            self._cancel(key)

    def close(self) -> None:
        """Stop all children; returns when they are gone."""
        with self._condition:
            self._closed = True
            for key in [*self._waiting, *self._running]:
                self._cancel(key)
            self._condition.notify_all()
        for slot in self._slots:
            slot.join(timeout=5)

    def _cancel(self, key: str) -> None:
        self._waiting.remove(key)
        job = self._running.pop(key, None)
        if job:
            job.cancelled = True

    def _take(self, idle_s: float | None) -> Job | None:
        """The next job; None at the end, and after that time without one. At most one huge file is read at a time."""
        with self._condition:
            while not self._closed:
                job = self._waiting.take(huge=not any(job.huge for job in self._running.values()))
                if job:
                    self._running[job.key] = job
                    return job
                if not self._condition.wait(idle_s):
                    return None
        return None

    def _run_slot(self) -> None:
        child: ReaderProcess[Result] | None = None
        while True:
            job = self._take(self._idle_s if child else None)
            if job is None:  # an idle child holds its libraries and what its allocator kept
                if child:
                    child.stop()
                    child = None
                if self._closed:
                    return
                continue
            self._report_progress(job, 0.0)
            try:
                child = child if child and child.is_alive() else ReaderProcess(self._task, self._limits)
                outcome = self._run(child, job)
            except OSError as error:  # no process or no pipe left
                outcome = Failure(
                    msg(
                        "logdir.cannot_start_process_read",
                        f"cannot start a process to read {Path(job.path).name}: {error}",
                    ),
                    msg("logdir.close_other_programs", "close other programs"),
                    500,
                )
            if child and (outcome is None or child.heavy):
                child.stop()
                child = None
            self._finish(job, outcome)

    def _run(self, child: ReaderProcess[Result], job: Job) -> Result | Failure | None:
        with self._condition:
            readers = min(self._count, len(self._running) + len(self._waiting))
        return child.run(
            job.path, Path(job.path).name, partial(self._report_progress, job), lambda: job.cancelled, readers
        )

    def _finish(self, job: Job, outcome: Result | Failure | None) -> None:
        with self._condition:
            if self._running.get(job.key) is job:
                del self._running[job.key]
            self._condition.notify_all()
        if outcome is not None and not job.cancelled and self._listener:
            self._listener.on_finished(job.key, outcome)

    def _report_progress(self, job: Job, progress: float) -> None:
        if self._listener and not job.cancelled:
            self._listener.on_progress(job.key, progress)
