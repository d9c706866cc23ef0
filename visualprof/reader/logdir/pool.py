"""Parse files in child processes, so that the server stays responsive and a crash affects one file only.

Each slot is a thread that feeds one spawned child. A killed child fails its own file and is replaced for the next one.
The result of a job is small, because the columns are passed through the cache.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from visualprof.messages import msg
from visualprof.reader.child import Failure, Limits, ReaderProcess, Result, Task
from visualprof.reader.processors import usable_processors
from visualprof.supervised_thread import SupervisedThread

# Two such files at the same time could need more memory than the machine has.
_HUGE_BYTES = 1024**3
# A child that is idle for this long exits: it holds 50 to 500 MiB. A new one starts in half a second.
_IDLE_S = 30.0
_MAX_STALE_ENTRIES = 1000

ListenerResult = TypeVar("ListenerResult", contravariant=True)
ParserResult = TypeVar("ParserResult", covariant=True)


class Listener(Protocol[ListenerResult]):
    """Receives the events of a parser, in its threads."""

    def on_progress(self, key: str, progress: float) -> None:
        """Handle progress: a job started (0.0) or advanced."""

    def on_finished(self, key: str, outcome: ListenerResult | Failure) -> None:
        """Handle the end of a job that was not canceled."""


class Parser(Protocol[ParserResult]):
    """Parses files in the background."""

    def start(self, listener: Listener[ParserResult]) -> None:
        """Report to `listener` from now on."""

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        """Queue a file, the lowest order first."""

    def prioritize(self, key: str) -> None:
        """Move a queued file to the front."""

    def cancel(self, key: str) -> None:
        """Drop a job without notifying the listener."""

    def close(self) -> None:
        """Stop all jobs."""


class Job(msgspec.Struct):
    """A file to parse.

    Attributes:
        key: Identifies the job.
        path: The file.
        huge: At most one such job runs at a time.
        order: The lowest order runs first.
        cancelled: The job was canceled.
        name: The file's name in messages.
        request: Input of the task; `None` for the path.
    """

    key: str
    path: str
    huge: bool
    order: tuple[int, ...]
    cancelled: bool = False
    name: str = ""
    request: Any = None


class JobQueue:
    """Waiting jobs by order. A moved or canceled job stays in the heap until it reaches the top."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._heaps: tuple[list[_HeapEntry], list[_HeapEntry]] = ([], [])  # of normal jobs, and of huge ones
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def add(self, job: Job) -> None:
        """Queue a job, or move a waiting one."""
        self._jobs[job.key] = job
        heap = self._heaps[job.huge]
        heappush(heap, (job.order, next(self._sequence), job))
        if len(heap) > 2 * len(self._jobs) + _MAX_STALE_ENTRIES:
            heap[:] = [entry for entry in heap if self._is_waiting(entry)]
            heapify(heap)

    def prioritize(self, key: str) -> None:
        """Move a waiting job before all others."""
        if job := self._jobs.get(key):
            job.order = (-1, -time.monotonic_ns())
            self.add(job)

    def remove(self, key: str) -> None:
        """Drop a waiting job."""
        self._jobs.pop(key, None)

    def take(self, huge: bool) -> Job | None:
        """Return the next job, a huge one only if allowed, or `None`."""
        best: list[_HeapEntry] = []
        for heap in self._heaps[: 1 + huge]:
            while heap and not self._is_waiting(heap[0]):
                heappop(heap)
            if heap and (not best or heap[0] < best[0]):
                best = heap
        return self._jobs.pop(heappop(best)[2].key) if best else None

    def _is_waiting(self, entry: _HeapEntry) -> bool:
        """Return whether a heap entry is the current one of its job."""
        order, _, job = entry
        return self._jobs.get(job.key) is job and job.order is order


_HeapEntry = tuple[tuple[int, ...], int, Job]


class Pool(Generic[Result]):
    """Parses files in child processes, the lowest `order` first.

    Args:
        task: Function of a path; must be picklable.
        workers: Maximum number of child processes (default: the usable processors, 2 to 4).
        limits: Resources that one file may use.
        idle_s: An idle child exits after this time.
        is_abandoned: Return whether no one waits for the job of a key; the job is canceled then.
    """

    def __init__(
        self,
        task: Task[Result],
        workers: int | None = None,
        limits: Limits | None = None,
        idle_s: float = _IDLE_S,
        is_abandoned: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._task = task
        self._is_abandoned = is_abandoned
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
        """Report to `listener` from now on; children start with their first job."""
        self._listener = listener

    def submit(
        self,
        key: str,
        path: str | Path,
        size: int,
        order: tuple[int, ...],
        *,
        name: str = "",
        request: object = None,
    ) -> None:
        """Queue a file; an earlier job of the same key is canceled.

        Args:
            key: Identifies the job.
            path: The file.
            size: Size of the file in bytes.
            order: The lowest order runs first.
            name: The file's name in messages, if it differs from the path's.
            request: Input of the task (default: the path); must be picklable.
        """
        with self._condition:
            self._cancel(key)
            job = Job(key, os.fspath(path), size >= _HUGE_BYTES, order, name=name or Path(path).name, request=request)
            self._waiting.add(job)
            if len(self._slots) < min(self._count, len(self._waiting) + len(self._running)) and not self._closed:
                slot = SupervisedThread(self._run_slot, f"parse-{len(self._slots)}", lambda: self._closed)
                self._slots.append(slot)
                slot.start()
            self._condition.notify()

    def prioritize(self, key: str) -> None:
        """Move a waiting file to the front of the queue."""
        with self._condition:
            self._waiting.prioritize(key)

    def cancel(self, key: str) -> None:
        """Drop a job. A child that reads the file is stopped; the outcome is not reported."""
        with self._condition:
            self._cancel(key)

    def close(self) -> None:
        """Stop all children and wait until they have exited."""
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
        """Return the next job, or `None` after closing or `idle_s` seconds without a job.

        At most one huge file is read at a time.
        """
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
        """Run the loop of a slot."""
        child: ReaderProcess[Result] | None = None
        while True:
            job = self._take(self._idle_s if child else None)
            if job is None:  # an idle child occupies memory for its libraries and its allocator
                if child:
                    child.stop()
                    child = None
                if self._closed:
                    return
                continue
            if self._is_abandoned(job.key):
                self._finish(job, None)
                continue
            self._report_progress(job, 0.0)
            try:
                child = child if child and child.is_alive() else ReaderProcess(self._task, self._limits)
                outcome = self._run(child, job)
            except OSError as error:  # out of processes or pipes
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
            job.path,
            job.name,
            partial(self._report_progress, job),
            lambda: job.cancelled or self._is_abandoned(job.key),
            readers,
            job.request,
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
