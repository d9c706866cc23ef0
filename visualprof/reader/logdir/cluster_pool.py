"""Parse files on the workers of a cluster, which see the same files and share the cache folder.

Files are sent in batches, because a task of a cluster costs milliseconds; their results are small. After the loss of a
worker its batch is read again file by file, so that a file that crashes its process only fails itself.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Generic

from visualprof.engines import ClusterExecutor, WorkerLost
from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.reader.child import Failure, Result, Task, read_or_fail
from visualprof.reader.logdir.pool import Job, JobQueue, Listener
from visualprof.reader.logdir.remote_folder import file_size
from visualprof.reader.processors import share_processors, usable_processors

_BATCH_FILES, _BATCH_BYTES = 16, 256 * 1024**2
_BATCHES_PER_WORKER = 2  # batches per worker, so that it has the next one when it finishes


class ClusterPool(Generic[Result]):
    """Parses files on a cluster, the lowest `order` first; a `Parser`.

    Args:
        executor: Executor of an engine; shut down with this pool.
        task: Function of a path; must be picklable.

    Attributes:
        lost_batches: Number of batches whose worker was lost and which were read again.
    """

    def __init__(self, executor: ClusterExecutor, task: Task[Result]) -> None:
        self._executor = executor
        self._task = task
        self._lock = threading.RLock()
        self._waiting = JobQueue()
        self._lost_keys: set[str] = set()  # keys of jobs whose batch was lost
        self._running: dict[str, Job] = {}
        self._batches: dict[Future[list[Result | Failure]], list[Job]] = {}
        self._listener: Listener[Result] | None = None
        self._closed = False
        self.lost_batches = 0

    def start(self, listener: Listener[Result]) -> None:
        """Report to `listener` from now on."""
        self._listener = listener

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        """Queue a file; an earlier job of the same key is canceled."""
        with self._lock:
            self.cancel(key)
            self._waiting.add(Job(key, os.fspath(path), size >= _BATCH_BYTES, order))
        self._send()

    def prioritize(self, key: str) -> None:
        """Move a waiting file to the front of the queue."""
        with self._lock:
            self._waiting.prioritize(key)

    def cancel(self, key: str) -> None:
        """Drop a job. A worker finishes a file that it is reading, but the result is not reported."""
        with self._lock:
            self._waiting.remove(key)
            self._lost_keys.discard(key)
            job = self._running.pop(key, None)
            if job:
                job.cancelled = True

    def close(self) -> None:
        """Cancel all tasks and leave the cluster."""
        with self._lock:
            self._closed = True
            batches = list(self._batches)
        for batch in batches:
            batch.cancel()
        self._executor.shutdown(cancel_futures=True)

    def _send(self) -> None:
        """Submit batches while workers have capacity. The listener has its own lock, so it is called without ours."""
        while submitted := self._submit_batch():
            batch, jobs = submitted
            if self._listener:
                for job in jobs:
                    self._listener.on_progress(job.key, 0.0)
            batch.add_done_callback(self._on_batch_done)

    def _submit_batch(self) -> tuple[Future[list[Result | Failure]], list[Job]] | None:
        """Submit a batch and return it with its jobs, or `None` if no worker has capacity or nothing waits."""
        with self._lock:
            if (
                self._closed
                or len(self._batches) >= _BATCHES_PER_WORKER * self._executor.workers
                or not (jobs := self._take_batch())
            ):
                return None
            paths = [job.path for job in jobs]
            batch = self._executor.submit(read_files, self._task, paths, [file_size(path) for path in paths])
            self._batches[batch] = jobs
            self._running |= {job.key: job for job in jobs}
            return batch, jobs

    def _take_batch(self) -> list[Job]:
        """Take waiting jobs.

        There are fewer if they would not last for all workers, and one if it is huge or its batch was lost.
        """
        limit = max(1, min(_BATCH_FILES, len(self._waiting) // (_BATCHES_PER_WORKER * self._executor.workers)))
        jobs: list[Job] = []
        while len(jobs) < limit and (job := self._waiting.take(huge=True)):
            if jobs and (job.huge or job.key in self._lost_keys):
                self._waiting.add(job)
                break
            jobs.append(job)
            if job.huge or job.key in self._lost_keys:
                break
        return jobs

    def _on_batch_done(self, batch: Future[list[Result | Failure]]) -> None:
        """Report the results of a batch, and queue lost files again."""
        finished: list[tuple[str, Result | Failure]] = []
        with self._lock:
            jobs = self._batches.pop(batch)
            if self._closed:
                return
            for job, outcome in zip(jobs, self._batch_outcomes(batch, jobs), strict=True):
                self._running.pop(job.key, None)
                if job.cancelled:
                    continue
                if outcome is None:
                    self._lost_keys.add(job.key)
                    self._waiting.add(job)
                else:
                    self._lost_keys.discard(job.key)
                    finished.append((job.key, outcome))
        if self._listener:
            for key, outcome in finished:
                self._listener.on_finished(key, outcome)
        self._send()

    def _batch_outcomes(
        self, batch: Future[list[Result | Failure]], jobs: list[Job]
    ) -> Sequence[Result | Failure | None]:
        """Return the outcome of each job, `None` for a job to be read again."""
        error = None if batch.cancelled() else batch.exception()
        if error is None:
            return [None] * len(jobs) if batch.cancelled() else batch.result()
        if not isinstance(error, WorkerLost):
            hint = (
                error.hint
                if isinstance(error, VisualprofError)
                else msg("logdir.every_worker_version_visualprof", "has every worker this version of visualprof?")
            )
            return [
                Failure(
                    msg("logdir.worker_could_not_read", f"{Path(job.path).name}: a worker could not read it: {error}"),
                    hint,
                    500,
                )
                for job in jobs
            ]
        self.lost_batches += 1
        if len(jobs) > 1:
            return [None] * len(jobs)
        name = Path(jobs[0].path).name
        return [
            Failure(
                msg("logdir.process_read_ended", f"{name}: the process that read it ended"),
                msg("logdir.probably_ran_out_memory", "it probably ran out of memory"),
                500,
                "ProcessDied",
            )
        ]


def read_files(task: Task[Result], paths: Sequence[str], sizes: Sequence[int]) -> list[Result | Failure]:
    """Run a task on several files, one after another, each with one thread. Runs on a worker.

    Args:
        task: Function of a path.
        paths: The files.
        sizes: Sizes in bytes as seen by the client; a worker that sees other sizes has another file system.
    """
    share_processors(usable_processors())
    return [_read_file(task, path, size) for path, size in zip(paths, sizes, strict=True)]


def _read_file(task: Task[Result], path: str, size: int) -> Result | Failure:
    name = Path(path).name
    if file_size(path) != size:
        hint = msg(
            "logdir.all_machines_cluster_must",
            "all machines of the cluster must see the log directory under the same path; or it changed just now",
        )
        return Failure(msg("logdir.not_here", f"{name} is not on {socket.gethostname()} as it is here"), hint, 500)
    return read_or_fail(path, name, task, _ignore_progress)


def _ignore_progress(fraction: float) -> None:
    """Ignore progress: progress within a file is not transmitted from a worker."""
