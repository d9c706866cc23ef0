"""Logs of tasks, while the tasks run."""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, bindparam, update

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import UploadOffsetMismatch, disk_errors
from visualprof.remote.queue.store.database import without_result
from visualprof.remote.queue.store.records import Task
from visualprof.remote.queue.store.tables import tasks
from visualprof.remote.queue.tasks.report_batcher import ReportBatcher

LOG_FILE = "log.txt"  # name in the folder of a result
MAX_LOG_BYTES = 16 << 20
CHUNK_BYTES = 256 << 10
_SET_LOG_SIZE = without_result(
    update(tasks).where(tasks.c.id == bindparam("task_id"), tasks.c.attempt == bindparam("task_attempt"))
)


class Logs:
    """One log file per attempt of a task."""

    def __init__(self, folder: Path, reports: ReportBatcher) -> None:
        self._folder = folder
        self._reports = reports
        self._locks = [threading.Lock() for _ in range(64)]

    def path(self, task: Task, attempt: int) -> Path:
        """Return the path of a log, whether it exists or not."""
        return self._folder / f"{task.id}-{attempt}.txt"

    def append(self, task: Task, offset: int, data: bytes) -> tuple[int, bool]:
        """Append the new part of a chunk.

        Args:
            task: The task.
            offset: Position of `data` in the log.
            data: The chunk.

        Returns:
            The size of the log, and whether it was truncated.

        Raises:
            UploadOffsetMismatch: Bytes before the chunk are missing.
            DiskFull: The disk is full.
        """
        path = self.path(task, task.attempt)
        with self._locks[hash(path) % 64], disk_errors(str(self._folder)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("ab") as file:
                size = file.tell()
                if offset > size and size < MAX_LOG_BYTES:
                    raise UploadOffsetMismatch(size)
                file.write(data[max(size - offset, 0) :][: MAX_LOG_BYTES - size])
                file.flush()
                size = file.tell()
        cut = max(offset + len(data) - MAX_LOG_BYTES, 0)
        if size != task.log_bytes or cut > task.log_cut:
            self._record_size(task, size, max(cut, task.log_cut))
        return size, cut > 0

    def read(
        self, task: Task, attempt: int, offset: int, limit: int = CHUNK_BYTES, published: Path | None = None
    ) -> tuple[bytes, int, int]:
        """Read a chunk of a log.

        Args:
            task: The task.
            attempt: Number of the attempt.
            offset: Position; a negative one counts from the end.
            limit: Maximum number of bytes.
            published: Path of the log in a published result; None is the task's own file.

        Returns:
            The bytes, their position, and the size of the log.

        Raises:
            NotFound: The task has no such attempt.
        """
        if not 0 <= attempt <= task.attempt:
            raise NotFound(msg("queue.task_no_attempt", f"task {task.id} has no attempt {attempt}"))
        try:
            with (published or self.path(task, attempt)).open("rb") as file:
                size = file.seek(0, 2)
                start = max(size + offset, 0) if offset < 0 else min(offset, size)
                file.seek(start)
                return file.read(limit), start, size
        except FileNotFoundError:
            return b"", 0, 0

    def _record_size(self, task: Task, size: int, cut: int) -> None:
        values = {"task_id": task.id, "task_attempt": task.attempt, "log_bytes": size, "log_cut": cut}

        def update_row(connection: Connection) -> tuple[None, tuple[str]]:
            connection.execute(_SET_LOG_SIZE, values)
            return None, (task.id,)

        self._reports.commit(update_row)
