"""Logs of tasks, as they arrive."""

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

LOG_FILE = "log.txt"  # in the folder of a result
MAX_LOG_BYTES = 16 << 20
CHUNK_BYTES = 256 << 10
_NOTED = without_result(update(tasks).where(tasks.c.id == bindparam("of"), tasks.c.attempt == bindparam("of_attempt")))


class Logs:
    """A file for each attempt of a task."""

    def __init__(self, folder: Path, reports: ReportBatcher) -> None:
        self._folder = folder
        self._reports = reports
        self._locks = [threading.Lock() for _ in range(64)]

    def path(self, task: Task, attempt: int) -> Path:
        """Where a log is, or would be."""
        return self._folder / f"{task.id}-{attempt}.txt"

    def append(self, task: Task, offset: int, data: bytes) -> tuple[int, bool]:
        """Add what is new of a piece; the size now, and whether something did not fit.

        Raises: Elsewhere: bytes before the piece are missing. DiskFull.
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
            self._note(task, size, max(cut, task.log_cut))
        return size, cut > 0

    def read(
        self, task: Task, attempt: int, offset: int, limit: int = CHUNK_BYTES, published: Path | None = None
    ) -> tuple[bytes, int, int]:
        """A piece, where it begins, and the whole size; a negative offset counts from the end.

        published: where it is as a part of the result instead.

        Raises: NotFound: no such attempt.
        """
        if not 0 <= attempt <= task.attempt:
            raise NotFound(msg("queue.task_no_attempt", f"task {task.id} has no attempt {attempt}"))
        try:
            with (published or self.path(task, attempt)).open("rb") as file:
                size = file.seek(0, 2)
                begin = max(size + offset, 0) if offset < 0 else min(offset, size)
                file.seek(begin)
                return file.read(limit), begin, size
        except FileNotFoundError:
            return b"", 0, 0

    def _note(self, task: Task, size: int, cut: int) -> None:
        values = {"of": task.id, "of_attempt": task.attempt, "log_bytes": size, "log_cut": cut}

        def note(connection: Connection) -> tuple[None, tuple[str]]:
            connection.execute(_NOTED, values)
            return None, (task.id,)

        self._reports.commit(note)
