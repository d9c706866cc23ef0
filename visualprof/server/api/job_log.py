"""A piece of a task's log as text."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.remote.protocol import FINAL
from visualprof.server.remote_service import Queue
from visualprof.server.routes import Query


class LogQuery(Query):
    """A piece of a log."""

    offset: Annotated[int, Meta(ge=-(1 << 40), lt=1 << 40, description="bytes to skip; from the end when negative")] = 0
    attempt: Annotated[int, Meta(ge=0, lt=1 << 40, description="which attempt; the last one when absent")] | None = None


class LogAnswer(msgspec.Struct):
    """A piece of a task's log. offset, next_offset: bytes. ended: nothing more will come. cut: bytes beyond the cap."""

    text: str
    offset: int
    next_offset: int
    size_bytes: int
    ended: bool
    cut: int


def piece(queue: Queue, name: str, query: LogQuery) -> LogAnswer:
    """What the request asks for: bytes from `offset`, or the last ones when it is negative.

    Raises: NotFound.
    """
    task = next(task for task in queue.jobs.of_task(name).tasks if task.id == name)
    attempt = task.attempt if query.attempt is None else query.attempt
    data, begin, size = queue.logs.read(task, attempt, query.offset)
    ended = attempt < task.attempt or task.state in FINAL
    lead = _lead(data) if begin else 0
    more = begin + len(data) < size or not ended
    data = data[lead : _end_of_text(data) if more else None]
    begin += lead
    cut = task.log_cut if attempt == task.attempt else 0
    done = ended and begin + len(data) >= size
    return LogAnswer(data.decode("utf-8", "replace"), begin, begin + len(data), size, done, cut)


def _lead(data: bytes) -> int:
    """Bytes that belong to a character before."""
    return next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))


def _end_of_text(data: bytes) -> int:
    """Where the last whole character of UTF-8 ends; a cut one comes with the next piece."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the first of a character
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)
