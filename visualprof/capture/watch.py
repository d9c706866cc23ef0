"""`watch`: a series of step times without a profiler, and recordings of what is slower than usual."""

from __future__ import annotations

import json
import os
import time
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from visualprof.capture import live
from visualprof.capture.listen import Listener
from visualprof.capture.live import Beat, Wish
from visualprof.capture.options import CaptureError, Options
from visualprof.capture.requests import Place
from visualprof.capture.topics import Topics

WINDOW = 128  # steps that make a band
OFTEN = 32  # after so many it is made anew
SKIPPED = 50  # first steps, and those after a recording, that say nothing
SLOW, OF = 3, 5


def watch(
    logdir: str | os.PathLike[str],
    *,
    steps: int = 5,
    every: int = 0,
    at: Iterable[int] = (),
    slow: bool = True,
    least_minutes: float = 10.0,
    keep: int = 10,
    memory: bool = True,
    shapes: bool = True,
    stacks: bool = False,
    topics: Topics = Topics.ALL,
    monitor: bool = True,
    framework: str | None = None,
    model: Any = None,
    run: str = "",
) -> Listener:
    """Listens (`listen`), keeps the times of all steps, and records by itself.

    Args:
        logdir: the series is `<logdir>/<run>/<worker>.steps.bin`, at most 8 MiB.
        steps: of a recording.
        every, at: steps with which recordings begin: each so many, and these; the first rank sees to it.
        slow: record when steps are slower than usual (`Band`), on whatever rank.
        least_minutes: between recordings of its own.
        keep: recordings of this process; the oldest go.
        memory, shapes, stacks, topics, monitor, framework, model, run: as of `profile`.

    Raises:
        CaptureError: the log directory cannot be written, or no such number of steps can be recorded.
    """
    if every < 0:
        raise CaptureError(f"every={every} is no number of steps", "0 for never")
    options = Options(
        logdir, topics=topics, monitor=monitor, framework=framework or "", model=model, max_files=keep, run=run
    )
    wish = Wish(steps, memory, shapes, stacks)
    return Listener(options, Series(wish, every, sorted(at), slow, int(least_minutes * 60e9))).start()


class Band:
    """What steps usually take: up to the median of 128 steps and six times their deviation, at least 20 % more.

    The deviation is 1.4826 times the median of absolute differences from the median, which is the standard deviation
    where times are normal. It is made anew each 32 steps.
    """

    def __init__(self) -> None:
        self._window: deque[int] = deque(maxlen=WINDOW)
        self._last: deque[bool] = deque(maxlen=OF)
        self._count = 0
        self._skipped = 0
        self.limit_ns: float | None = None

    def rest(self) -> None:
        """The next steps say nothing."""
        self._skipped = 0
        self._last.clear()

    def left(self, duration: int) -> bool:
        """Were, with this step, three of five above it?"""
        if self._skipped < SKIPPED:
            self._skipped += 1
            return False
        self._last.append(self.limit_ns is not None and duration > self.limit_ns)
        self._window.append(duration)
        self._count += 1
        if self._count % OFTEN == 0:
            self.limit_ns = limit_ns(self._window)
        return sum(self._last) >= SLOW


def limit_ns(durations: Sequence[int] | deque[int]) -> float:
    """The upper end of the band of these steps."""
    middle = median(durations)
    deviation = 1.4826 * median([abs(duration - middle) for duration in durations])
    return middle + max(6 * deviation, 0.2 * middle)


class Series:
    """The times of steps in memory and on disk, and when to record."""

    def __init__(self, wish: Wish, every: int, at: Sequence[int], slow: bool, least_ns: int) -> None:
        self._wish, self._every, self._slow, self._least_ns = wish, every, slow, least_ns
        self._at = deque(at)
        self._band = Band()
        self._left = self._recording = False
        self._rested_ns = 0
        self._head: dict[str, Any] = {}
        self._path = Path()
        self._kept = self._start = 0
        self._new = array("q")

    def begin(self, place: Place, step: int, end_ns: int) -> None:
        """Begin the file with this step, which begins now."""
        now_ns = time.time_ns() - (time.perf_counter_ns() - end_ns)
        who = asdict(place.worker) | {"worker": place.worker.name, "framework": place.framework}
        self._head = {live.SERIES: 1, **who, "step": step, "t_ns": now_ns, "monotonic_ns": end_ns}
        self._path = place.folder / f"{place.worker.name}.steps.bin"
        self._kept = 0
        self._new = array("q")

    def take(self, durations: Sequence[int]) -> None:
        """Adds steps."""
        self._new.extend(durations)
        if not self._recording and self._slow:
            for duration in durations:  # 1 us a step, beside the training
                self._left |= self._band.left(duration)

    def mark(self, mark: int) -> None:
        """Add a mark; while it records steps say nothing."""
        self._new.append(mark)
        self._recording = mark != live.OVER
        self._left = False
        self._band.rest()
        self._rested_ns = time.monotonic_ns()

    def wish(self, beat: Beat) -> Wish | None:
        """What to record: slow steps, or those whose turn it is; the first rank sees to the latter."""
        left, self._left = self._left, False
        first = self._due_step(beat) if beat.rank <= 0 else None
        if beat.problem or self._recording or (first is None and not left):
            return None
        if self._rested_ns and time.monotonic_ns() - self._rested_ns < self._least_ns:
            return None
        self._rested_ns = time.monotonic_ns()
        return self._wish.beginning(first or 0)

    def _due_step(self, beat: Beat) -> int | None:
        """A step to record that is close; the ranks need some steps to agree on it."""
        near = beat.step + (2 * live.margin(beat.fastest_ns) if beat.fastest_ns else 0)
        due = [self._at.popleft() for _ in range(sum(step <= near for step in self._at))]
        if self._every and near // self._every > beat.step // self._every:
            due.append(near // self._every * self._every)
        return max(due, default=None)

    def flush(self) -> None:
        """Write what is new. Raises: OSError."""
        if self._kept + len(self._new) > live.MOST_STEPS:
            self._halve()
        if not self._kept:
            head = json.dumps(self._head).encode() + b"\n"
            part = self._path.with_name(f".{self._path.name}.part")
            part.write_bytes(head + self._new.tobytes())
            os.replace(part, self._path)
            self._start = len(head)
        elif self._new:
            with self._path.open("r+b") as out:  # not "a": what a full disk left half written is written over
                out.seek(self._start + 8 * self._kept)
                out.write(self._new.tobytes())
        self._kept += len(self._new)
        self._new = array("q")

    def _halve(self) -> None:
        """Take the newer half into memory again, to be written as a new file."""
        with self._path.open("rb") as file:
            file.readline()
            kept = array("q", file.read(8 * self._kept))
        kept.extend(self._new)
        gone = [number for number in kept[: len(kept) // 2] if number >= 0]
        self._head["step"] += len(gone)
        self._head["t_ns"] += sum(gone)
        self._head["monotonic_ns"] += sum(gone)
        self._kept, self._new = 0, kept[len(kept) // 2 :]
