"""A piece of a task's log as text."""

from __future__ import annotations

from flask import request

from visualprof.errors import BadParameter
from visualprof.remote.protocol import FINAL
from visualprof.server.api.job_schema import LogAnswer
from visualprof.server.remote_service import Queue


def piece(queue: Queue, name: str) -> LogAnswer:
    """What the request asks for: bytes from `offset`, or the last ones when it is negative.

    Raises: NotFound, BadParameter.
    """
    task = next(task for task in queue.jobs.of_task(name).tasks if task.id == name)
    attempt = _whole("attempt", task.attempt, 0)
    data, begin, size = queue.logs.read(task, attempt, _whole("offset", 0, -(1 << 40)))
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


def _whole(name: str, absent: int, least: int) -> int:
    text = request.args.get(name, "")
    if not text:
        return absent
    try:
        number = int(text[:20])
    except ValueError:
        number = least - 1
    if not least <= number < 1 << 40:
        raise BadParameter(f"{name} {text[:40]!r} is no number that fits", f"at least {least}")
    return number
