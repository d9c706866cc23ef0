"""`watch`: record a series of step times without a profiler, and record profiles of unusually slow steps."""

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
from visualprof.capture.ask import margin
from visualprof.capture.listen import Listener
from visualprof.capture.live import Heartbeat, RecordingOptions
from visualprof.capture.options import CaptureError, Options
from visualprof.capture.requests import Place
from visualprof.capture.topics import Topics

WINDOW = 128  # steps that make a band
RECOMPUTE_STEPS = 32  # after so many it is made anew
SKIPPED = 50  # first steps, and those after a recording, that say nothing
SLOW_STEPS, JUDGED_STEPS = 3, 5


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
    """Listen (`listen`), store the times of all steps, and record automatically.

    Args:
        logdir: The series is `<logdir>/<run>/<worker>.steps.bin`, at most 8 MiB.
        steps: Steps per recording.
        every: Start a recording after each such number of steps; the first rank triggers it.
        at: Start recordings at these steps; the first rank triggers them.
        slow: Record when steps are slower than usual (`Band`), on any rank.
        least_minutes: Minimum time between automatic recordings.
        keep: Recordings of this process; the oldest are deleted.
        memory: Like `profile`, as are shapes, stacks, topics, monitor, framework, model and run.

    Raises:
        CaptureError: The log directory cannot be written, or this number of steps cannot be recorded.
    """
    if every < 0:
        raise CaptureError(f"every={every} is no number of steps", "0 for never")
    options = Options(
        logdir, topics=topics, monitor=monitor, framework=framework or "", model=model, max_files=keep, run=run
    )
    wish = RecordingOptions(steps, memory, shapes, stacks)
    return Listener(options, Series(wish, every, sorted(at), slow, int(least_minutes * 60e9))).start()


class Band:
    """Normal range of step times: up to the median of 128 steps plus six deviations, at least 20 % above the median.

    The deviation is 1.4826 times the median of absolute differences from the median, which equals the standard
    deviation
    for normally distributed times. It is recomputed every 32 steps.
    """

    def __init__(self) -> None:
        self._window: deque[int] = deque(maxlen=WINDOW)
        self._last: deque[bool] = deque(maxlen=JUDGED_STEPS)
        self._count = 0
        self._skipped = 0
        self.limit_ns: float | None = None

    def rest(self) -> None:
        """Ignore the next steps."""
        self._skipped = 0
        self._last.clear()

    def left(self, duration: int) -> bool:
        """Return whether three of the last five steps, including this one, are above the range."""
        if self._skipped < SKIPPED:
            self._skipped += 1
            return False
        self._last.append(self.limit_ns is not None and duration > self.limit_ns)
        self._window.append(duration)
        self._count += 1
        if self._count % RECOMPUTE_STEPS == 0:
            self.limit_ns = limit_ns(self._window)
        return sum(self._last) >= SLOW_STEPS


def limit_ns(durations: Sequence[int] | deque[int]) -> float:
    """Return the upper end of the range for these steps."""
    middle = median(durations)
    deviation = 1.4826 * median([abs(duration - middle) for duration in durations])
    return middle + max(6 * deviation, 0.2 * middle)


class Series:
    """Step times in memory and on disk, and the decision when to record."""

    def __init__(self, wish: RecordingOptions, every: int, at: Sequence[int], slow: bool, least_ns: int) -> None:
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
        """Start the file with this step, which starts now."""
        now_ns = time.time_ns() - (time.perf_counter_ns() - end_ns)
        header = asdict(place.worker) | {"worker": place.worker.name, "framework": place.framework}
        self._head = {live.SERIES: 1, **header, "step": step, "t_ns": now_ns, "monotonic_ns": end_ns}
        self._path = place.folder / f"{place.worker.name}.steps.bin"
        self._kept = 0
        self._new = array("q")

    def take(self, durations: Sequence[int]) -> None:
        """Add steps."""
        self._new.extend(durations)
        if not self._recording and self._slow:
            for duration in durations:  # 1 us a step, beside the training
                self._left |= self._band.left(duration)

    def mark(self, mark: int) -> None:
        """Add a mark. Steps during a recording are not judged."""
        self._new.append(mark)
        self._recording = mark != live.OVER
        self._left = False
        self._band.rest()
        self._rested_ns = time.monotonic_ns()

    def wish(self, beat: Heartbeat) -> RecordingOptions | None:
        """Return what to record: slow steps, or scheduled steps, which the first rank triggers."""
        left, self._left = self._left, False
        first = self._due_step(beat) if beat.rank <= 0 else None
        if beat.problem or self._recording or (first is None and not left):
            return None
        if self._rested_ns and time.monotonic_ns() - self._rested_ns < self._least_ns:
            return None
        self._rested_ns = time.monotonic_ns()
        return self._wish.beginning(first or 0)

    def _due_step(self, beat: Heartbeat) -> int | None:
        """Return a scheduled step that is close; the ranks need some steps to agree on it."""
        near = beat.step + (2 * margin(beat.fastest_ns) if beat.fastest_ns else 0)
        due = [self._at.popleft() for _ in range(sum(step <= near for step in self._at))]
        if self._every and near // self._every > beat.step // self._every:
            due.append(near // self._every * self._every)
        return max(due, default=None)

    def flush(self) -> None:
        """Write new steps.

        Raises:
            OSError: The file cannot be written.
        """
        if self._kept + len(self._new) > live.MAX_SERIES_STEPS:
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
        """Load the newer half into memory, to be written as a new file."""
        with self._path.open("rb") as file:
            file.readline()
            recent = array("q", file.read(8 * self._kept))
        recent.extend(self._new)
        gone = [number for number in recent[: len(recent) // 2] if number >= 0]
        self._head["step"] += len(gone)
        self._head["t_ns"] += sum(gone)
        self._head["monotonic_ns"] += sum(gone)
        self._kept, self._new = 0, recent[len(recent) // 2 :]
