"""Logs of tasks as the API returns them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.remote.protocol import FINAL
from visualprof.remote.queue.store.records import Task
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobServices
from visualprof.server.routes import Query


class LogQuery(Query):
    """The position of a piece of a log."""

    offset: Annotated[int, Meta(ge=-(1 << 40), lt=1 << 40, description="bytes to skip; from the end when negative")] = 0
    attempt: (
        Annotated[int, Meta(ge=0, lt=1 << 40, description="number of the attempt; the last one when absent")] | None
    ) = None


class LogAnswer(msgspec.Struct):
    """A piece of a task's log.

    Attributes:
        text: The text.
        offset: Byte offset of the start of the text.
        next_offset: Byte offset of the end of the text.
        size_bytes: Size of the log.
        ended: Whether the log is complete.
        cut: Bytes beyond the size limit, which are not stored.
    """

    text: str
    offset: int
    next_offset: int
    size_bytes: int
    ended: bool
    cut: int


def read_log_part(queue: JobServices, name: str, query: LogQuery) -> LogAnswer:
    """Return the requested part of a log: bytes from `offset`, or the last bytes if it is negative.

    Raises:
        NotFound: There is no such task or attempt.
        NotReady: The log is being downloaded.
        StoreUnavailable: The bucket does not answer.
    """
    task = queue.jobs.get_by_task(name, current_principal().viewer).task(name)
    attempt = task.attempt if query.attempt is None else query.attempt
    data, start, size = queue.logs.read(task, attempt, query.offset, published=_published_log(queue, task, attempt))
    ended = attempt < task.attempt or task.state in FINAL
    skipped = _continuation_bytes(data) if start else 0
    more = start + len(data) < size or not ended
    data = data[skipped : _text_end(data) if more else None]
    start += skipped
    cut = task.log_cut if attempt == task.attempt else 0
    done = ended and start + len(data) >= size
    return LogAnswer(data.decode("utf-8", "replace"), start, start + len(data), size, done, cut)


def _continuation_bytes(data: bytes) -> int:
    """Return the number of leading bytes that belong to the previous character."""
    return next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))


def _text_end(data: bytes) -> int:
    """Return the end of the last complete UTF-8 character. The next piece starts with an incomplete character."""
    for distance in range(1, min(4, len(data)) + 1):
        byte = data[-distance]
        if byte & 0xC0 != 0x80:  # first byte of a character
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - distance if length > distance else len(data)
    return len(data)


def _published_log(queue: JobServices, task: Task, attempt: int) -> Path | None:
    """Return the path of the log in the bucket's run, or `None` if this server has the log itself."""
    if queue.mirror is None or task.run is None or attempt != task.attempt or queue.logs.path(task, attempt).is_file():
        return None
    return queue.mirror.log_path(task.run)
