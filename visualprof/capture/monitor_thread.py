"""Background thread next to the training thread: heartbeat, requests, step times, five times per second."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from visualprof.capture import files, live, notes
from visualprof.capture.ask import ask
from visualprof.capture.files import warn
from visualprof.capture.live import Heartbeat, RecordingOptions, Request
from visualprof.capture.notes import read_now
from visualprof.capture.options import CaptureBusy, CaptureError, CaptureWarning
from visualprof.capture.requests import Place, RequestHandler

RING = 1 << 16  # step ends that the background thread may lag behind
POLL_S = live.POLL_NS / 1e9
STOP_S = 5.0
_LIBRARIES = (os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(__file__)), "<frozen")


class Steps:
    """End times of steps, written by the training thread.

    Attributes:
        count: Number of ended steps.
        wake: Step at which there is more to do.

    Args:
        act: Called at that step with the count; it sets the next `wake`.
    """

    def __init__(self, act: Callable[[int], None]) -> None:
        self._ring = array("q", bytes(8 * RING))
        self._act = act
        self.count = 0
        self.wake = 1

    def end(self) -> None:
        """End a step now."""
        count = self.count
        self._ring[count & (RING - 1)] = time.perf_counter_ns()
        self.count = count = count + 1
        if count >= self.wake:
            self._act(count)

    def begin(self, at_ns: int) -> None:
        """Record that the first step ended at `at_ns`."""
        self._ring[0] = at_ns
        self.count = 1

    def ends(self, first: int, count: int) -> list[int]:
        """Return the ends of steps `first` to `count` - 1 that are still stored, in ns of `perf_counter_ns`."""
        return [self._ring[step & (RING - 1)] for step in range(max(first, count - RING + 1), count)]


class Watcher(Protocol):
    """Interface of a writer of step times that requests recordings automatically."""

    def begin(self, place: Place, step: int, end_ns: int) -> None:
        """Start a series at this step (`perf_counter_ns`), again after lost steps."""
        ...

    def take(self, durations: Sequence[int]) -> None:
        """Add the durations of ended steps, in ns."""
        ...

    def mark(self, mark: int) -> None:
        """Record that a recording starts with the next step or is over, as marks of `live`."""
        ...

    def wish(self, beat: Heartbeat) -> RecordingOptions | None:
        """Return the options of a recording, if one is wanted."""
        ...

    def flush(self) -> None:
        """Write the buffered steps."""
        ...


class BackgroundThread:
    """Background thread.

    Attributes:
        incoming: Request for the training thread, which empties it.
        signalled: Whether SIGUSR2 arrived.
    """

    def __init__(self, steps: Steps, place: Place, asked: RequestHandler, watcher: Watcher | None) -> None:
        self.incoming: Request | None = None
        self.signalled = False
        self._steps, self._place, self._asked, self._watcher = steps, place, asked, watcher
        self._path = place.folder / live.FOLDER / f"{place.worker.name}.json"
        self._started = files.started(place.worker.pid)
        self._trains = 0
        self._seen = 0
        self._last_ns = 0
        self._recent: deque[int] = deque(maxlen=128)
        self._request = str(self._path.with_name(live.REQUEST))
        self._version = _version(self._request)  # an earlier request is for others
        self._last_id = ""
        self._beaten = 0, ""
        self._said: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="visualprof listen", daemon=True)

    def start(self) -> None:
        """Start the thread, on the training thread, after the first step."""
        self._restart(self._steps.count)
        self._trains = threading.get_ident()
        self._thread.start()

    def stop(self) -> bool:
        """End the thread; return False if it hangs in the file system."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        return not self._thread.is_alive()

    def last(self) -> None:
        """Report that the process ends, after `stop`."""
        self._look("ended")

    def _run(self) -> None:
        while not self._end.wait(POLL_S):
            self._look()

    def _look(self, state: str = "") -> None:
        """Run one round. A folder that cannot be written is retried in the next round."""
        try:
            self._tell_and_hear(state)
        except OSError as error:
            self._say(f"the live state was not written: {error}")

    def _tell_and_hear(self, state: str) -> None:
        self._asked.settle()
        now = time.time_ns()
        reported = state or self._asked.state
        due = reported != self._beaten[1] or now - self._beaten[0] >= live.BEAT_NS or self.signalled
        if due or self._steps.count - self._seen > RING // 4:  # polling in each round would cost 1 us per step of 1 ms
            self._take()
        if due:
            self._beaten = now, reported
            beat = self._beat(reported, now)
            notes.write(self._path, beat)
            if self._watcher:
                self._watcher.flush()
            if not state:
                self._ask(beat)
        if not state:
            self._look_for_request()

    def _restart(self, count: int) -> None:
        self._seen = count
        (self._last_ns,) = self._steps.ends(count - 1, count)
        if self._watcher:
            self._watcher.begin(self._place, count, self._last_ns)

    def _take(self) -> None:
        """Take the steps that ended since the last round, with marks before the steps that they belong to."""
        count = self._steps.count
        ends = [self._last_ns, *self._steps.ends(self._seen, count)]
        if len(ends) <= count - self._seen:  # this thread was blocked for more steps than the ring holds
            self._restart(count)
            return
        durations = [b - a for a, b in pairwise(ends)]
        self._recent.extend(durations[-128:])
        marks = self._asked.marks
        while marks and marks[0][0] <= count:
            step, mark = marks.popleft()
            before = max(0, step - self._seen)
            self._report(durations[:before], mark)
            del durations[:before]
            self._seen += before
        self._report(durations)
        self._seen, self._last_ns = count, ends[-1]

    def _report(self, durations: list[int], mark: int = 0) -> None:
        if self._watcher:
            self._watcher.take(durations)
            if mark:
                self._watcher.mark(mark)

    def _beat(self, state: str, now: int) -> Heartbeat:
        worker, place, recent = self._place.worker, self._place, sorted(self._recent)
        clock_ns = time.perf_counter_ns()
        still = clock_ns - self._last_ns > live.SILENT_NS
        return Heartbeat(
            worker=worker.name,
            rank=worker.rank,
            world_size=worker.world_size,
            host=worker.host,
            pid=worker.pid,
            where=live.machine_id(),
            started=self._started,
            framework=place.framework,
            can=place.can,
            problem=place.problem[:1000],
            step=self._seen,
            step_ns=recent[len(recent) // 2] if recent else None,
            fastest_ns=recent[len(recent) // 20] if recent else None,
            stepped_ns=now - (clock_ns - self._last_ns),
            watches=self._watcher is not None,
            state=state,
            t_ns=now,
            monotonic_ns=clock_ns,
            at=_function(self._trains) if still else "",
        )

    def _look_for_request(self) -> None:
        """Wake the training thread if there is a request for this worker."""
        version = _version(self._request)
        if version == self._version:
            return
        asked = read_now(self._path.with_name(live.REQUEST), Request) if version else None  # on an error, retry
        asked = asked if asked and live.is_sound(asked) else None
        age_ns = os.lstat(self._path).st_mtime_ns - version[0] if asked else 0  # by the file system's clock
        self._version = version
        if not version or (asked and asked.id == self._last_id):
            return
        if not asked:
            self._say(f"{self._path.with_name(live.REQUEST)} is no request that can be understood")
        elif age_ns > asked.expires_ns - asked.t_ns:
            self._say(f"a request of {asked.by} came too late and is not answered")
        elif self._place.worker.name in asked.workers:
            self._last_id, self.incoming = asked.id, asked
            self._steps.wake = 0

    def _ask(self, beat: Heartbeat) -> None:
        """Request the recording that a signal or the watcher wants."""
        signalled, self.signalled = self.signalled, False
        wish = RecordingOptions() if signalled else self._watcher.wish(beat) if self._watcher else None
        if not wish:
            return
        try:
            ask(self._place.folder, wish, "signal" if signalled else "watch", self._place.worker.name)
        except CaptureBusy:  # another rank asked first: record with it
            return
        except CaptureError as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        """Warn once per text, without ending the thread where warnings are errors."""
        if text not in self._said:
            self._said.add(text)
            with contextlib.suppress(CaptureWarning):
                warn(text)


def _function(thread: int) -> str:
    """Return the function of the user's code that a thread is in, `evaluate, train.py:42`, "" outside of user code."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    while frame and (frame.f_code.co_filename.startswith(_LIBRARIES) or "-packages" in frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_name}, {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


def _version(request: str) -> tuple[int, ...]:
    """Return a value that changes when the request may have changed; empty without a request."""
    try:
        status = os.lstat(request)
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_ino, status.st_size
