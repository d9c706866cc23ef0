"""Step times that a process records on its own, `<worker>.steps.bin`.

The format is defined in `visualprof.capture.live`.

The file is untrusted: an invalid file is rejected, and the amount read is limited.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from visualprof.errors import SourceError
from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, integer, json_object
from visualprof.reader.source import DECODE_ERRORS
from visualprof.reader.trace import Ints

HEADER_KEY = "visualprof_steps"
MAX_HEADER_BYTES = 1 << 16
MAX_STEPS = 1 << 20
MAX_TOTAL_NS = 10**18  # of all steps together: 30 years
REQUESTED_MARK, NOTICED_MARK, END_MARK = -1, -2, -3

RecordingReason = Literal["asked", "noticed"]


@dataclass(frozen=True)
class Recorded:
    """Recorded steps.

    Attributes:
        index: Index of the first step in `StepTimes.durations`.
        steps: Number of steps, `None` while the recording continues.
        by: What triggered the recording.
    """

    index: int
    steps: int | None
    by: RecordingReason


@dataclass(frozen=True)
class StepTimes:
    """Duration of each step of a process.

    Attributes:
        worker: The worker.
        first: Number of the first step.
        begin_ns: Unix time of its start.
        durations: Durations in ns, end to end.
        recorded: Recordings of steps.
    """

    worker: str
    first: int
    begin_ns: int
    durations: Ints
    recorded: tuple[Recorded, ...]


def read_step_times(path: str) -> StepTimes:
    """Return the times in a file.

    Raises:
        SourceError: The file does not exist or is invalid.
    """
    name = Path(path).name
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SourceError(msg("reader.no_plain_file", f"{name} is not a regular file"))
            header_line, body = file.readline(MAX_HEADER_BYTES), file.read(8 * MAX_STEPS)
    except OSError as error:
        raise SourceError(msg("reader.cannot_read", f"{name}: cannot read: {error.strerror}")) from error
    header = _parse_header(header_line)
    first_step, begin_ns = integer(header.get("step")), integer(header.get("t_ns"))
    if header.get(HEADER_KEY) != 1 or first_step is None or begin_ns is None:
        raise SourceError(msg("reader.not_begin_like_times", f"{name} does not begin like times of steps"))
    numbers = np.frombuffer(body[: len(body) // 8 * 8], "<i8").astype(np.int64)
    durations = numbers[numbers >= 0]
    if numbers.min(initial=0) < END_MARK or durations.sum(dtype=np.float64) > MAX_TOTAL_NS:
        raise SourceError(
            msg("reader.damaged_2", f"{name} is damaged"),
            msg("reader.holds_time_no_step", "it holds a time that no step takes"),
        )
    return StepTimes(name.partition(".")[0], first_step, begin_ns, durations, _recordings(numbers))


def _parse_header(line: bytes) -> Json:
    try:
        return json_object(msgspec.json.decode(line))
    except DECODE_ERRORS:
        return {}


def _recordings(numbers: Ints) -> tuple[Recorded, ...]:
    """Return the recordings between the marks.

    A recording without an end mark lasts until the next one, or still continues.
    """
    mark_positions = np.flatnonzero(numbers < 0)
    marks = numbers[mark_positions].tolist()
    steps_before = (mark_positions - np.arange(len(mark_positions))).tolist()  # number of durations before each mark
    recordings: list[Recorded] = []
    for number, (mark, index) in enumerate(zip(marks, steps_before, strict=True)):
        if mark != END_MARK:
            step_count = steps_before[number + 1] - index if number + 1 < len(marks) else None
            recordings.append(Recorded(index, step_count, "asked" if mark == REQUESTED_MARK else "noticed"))
    return tuple(recordings)
