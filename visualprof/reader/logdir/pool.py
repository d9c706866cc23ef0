"""Parsing in a few processes of its own, so that the server stays free and a crash takes one file only.

Each slot is a thread that feeds one spawned child, so a killed child fails its own file and is replaced
for the next. The result of a job is small: the columns travel through the cache.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from visualprof.errors import VisualprofError
from visualprof.reader.logdir.summary import Failure, Outcome, Summary
from visualprof.reader.source import Progress

_log = logging.getLogger(__name__)

_PROGRESS_S = 0.1
_ASK_S = 0.1
# Above this much memory a child is replaced after its job: the allocator would keep most of it.
_HEAVY_BYTES = 512 * 1024**2
# Two such files at once could take more memory than the machine has.
_HUGE_BYTES = 1024**3


Task = Callable[[str, Progress], Summary]


class Listener(Protocol):
    """Who wants to know; called from the pool's threads."""

    def progressed(self, key: str, progress: float) -> None:
        """A job has begun (0.0) or got on."""

    def finished(self, key: str, outcome: Outcome) -> None:
        """A job is over, unless it was cancelled."""


class Parser(Protocol):
    """What parses files in the background."""

    def start(self, listener: Listener) -> None:
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


class Pool:
    """Parses files in child processes, the lowest `order` first.

    Args:
        task: what a child does with a path; must be picklable.
        workers: child processes at most; by default as many as processors, 2 to 4.
    """

    def __init__(self, task: Task, workers: int | None = None) -> None:
        self._task = task
        self._count = workers or max(2, min(os.cpu_count() or 2, 4))
        self._turn = threading.Condition()
        self._waiting: dict[str, _Job] = {}
        self._running: dict[str, _Job] = {}
        self._slots: list[threading.Thread] = []
        self._closed = False
        self._listener: Listener | None = None

    def start(self, listener: Listener) -> None:
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
        child: _Child | None = None
        while job := self._take():
            self._tell(job, 0.0)
            try:
                child = child if child and child.alive() else _Child(self._task)
                outcome = child.run(job, self._tell)
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

    def _over(self, job: _Job, outcome: Outcome | None) -> None:
        with self._turn:
            if self._running.get(job.key) is job:
                del self._running[job.key]
            self._turn.notify_all()
        if outcome is not None and not job.cancelled and self._listener:
            self._listener.finished(job.key, outcome)

    def _tell(self, job: _Job, progress: float) -> None:
        if self._listener and not job.cancelled:
            self._listener.progressed(job.key, progress)


class _Child:
    """One process and the pipe to it."""

    def __init__(self, task: Task) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_work, args=(theirs, task), daemon=True)
        self.heavy = False
        self._process.start()
        theirs.close()

    def alive(self) -> bool:
        return self._process.is_alive()

    def run(self, job: _Job, tell: Callable[[_Job, float], None]) -> Outcome | None:
        """The outcome; None when the job was cancelled meanwhile."""
        try:
            self._pipe.send(job.path)
            while not job.cancelled:
                if not self._pipe.poll(_ASK_S):
                    continue
                message: Any = self._pipe.recv()
                if isinstance(message, float):
                    tell(job, message)
                else:
                    outcome, self.heavy = message
                    return outcome
            return None
        except (EOFError, OSError):
            return self._died(job)

    def _died(self, job: _Job) -> Failure:
        self._process.join(timeout=5)
        code = self._process.exitcode
        name = Path(job.path).name
        how, hint = f"ended with code {code}", "the log says more"
        if code is not None and code < 0:
            cause = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            how, hint = f"was ended by {cause}", "this is a defect of the reader or of a library"
            if cause == "SIGKILL":
                hint = "it probably ran out of memory"
        return Failure(f"{name}: the process that read it {how}", hint, 500, "ProcessDied")

    def stop(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join(timeout=5)


def _work(pipe: Connection, task: Task) -> None:
    """The life of a child: a path in, progress and the outcome out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops the children
    if hasattr(os, "nice"):
        os.nice(5)  # the server and the training job go first
    try:
        while True:
            path: str = pipe.recv()
            outcome = _outcome(path, task, _throttled(pipe))
            pipe.send((outcome, _peak_bytes() > _HEAVY_BYTES))
    except (EOFError, OSError):  # the parent is gone
        return


def _outcome(path: str, task: Task, progress: Progress) -> Outcome:
    name = Path(path).name
    try:
        return task(path, progress)
    except VisualprofError as error:
        return Failure(error.error, error.hint, error.status, type(error).__name__)
    except MemoryError:
        hint = "close other programs or take a shorter profile"
        return Failure(f"{name}: not enough memory to read it", hint, 500, "MemoryError")
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - one file must not end the process of the next
        _log.exception("reading %s", path)
        what = f"{name}: the reader failed ({type(error).__name__}: {error})"
        return Failure(what, "please report it with the file", 500)


def _throttled(pipe: Connection) -> Progress:
    last = 0.0

    def report(fraction: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_S:
            last = now
            pipe.send(float(min(max(fraction, 0.0), 1.0)))

    return report


def _peak_bytes() -> int:
    try:
        import resource
    except ImportError:  # Windows: children are kept whatever they hold
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
