"""Schedule scans of the log directories.

A scan runs soon after a file event, else after a pause that depends on the cost of a scan.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.reader.logdir.watch import Watcher
from visualprof.supervised_thread import SupervisedThread

_log = logging.getLogger(__name__)

# Pause after a scan, as a multiple of its duration: minimum, while events report most changes, and after an event.
_REST_RATIO, _WATCHED_REST_RATIO, _EVENT_REST_RATIO = 10, 100, 3


class ScanScheduler:
    """Scans repeatedly, in its own thread.

    Args:
        scan: Scans all files and returns the seconds that it took.
        next_change_s: Returns the seconds until a file is expected to change, infinity for none.
        roots: Folders to watch for file events; without any, only scans find changes.
        intervals_s: Seconds between scans with events, and without.
        clock: Measures the pauses.

    Attributes:
        watching: `events`, or `polling` without events.
    """

    def __init__(
        self,
        scan: Callable[[], float],
        next_change_s: Callable[[], float],
        roots: Sequence[Path],
        intervals_s: tuple[float, float],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.watching = "polling"
        self._scan, self._next_change_s, self._roots, self._intervals_s = scan, next_change_s, roots, intervals_s
        self._clock = clock
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread = SupervisedThread(self._loop, "logdir", self._closed.is_set)

    def start(self) -> None:
        """Start scanning in the background."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the current scan."""
        self._closed.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        self._run_scan()  # before the watches, whose setup walks the whole tree once more
        watcher = Watcher(self._roots, self._wake.set)
        try:
            self._scan_until_closed(watcher)
        finally:
            watcher.stop()

    def _scan_until_closed(self, watcher: Watcher) -> None:
        self.watching = "events" if self._roots and watcher.start() else "polling"
        while not self._closed.is_set():
            if self.watching == "events" and not watcher.is_alive():
                _log.warning("the watch of the log directories ended and is started again")
                watcher.stop()
                self.watching = "events" if watcher.start() else "polling"
            self._wake.clear()
            # A tree that is slow to walk is walked less often: a tenth of the time, a quarter while it changes.
            scan_s = self._run_scan()
            if self._clock.wait(self._wake, max(_REST_RATIO * scan_s, self._pause_s(scan_s))):
                self._clock.wait(self._closed, max(0.1, _EVENT_REST_RATIO * scan_s))  # events come in bursts

    def _run_scan(self) -> float:
        try:
            return self._scan()
        except Exception:  # noqa: BLE001 - a failed scan must not stop the scanner
            _log.exception("looking at the log directories")
            return 0.0

    def _pause_s(self, scan_s: float) -> float:
        """Return the pause before the next scan: shorter if a file is expected to change, longer after a slow scan."""
        watched_s, unwatched_s = self._intervals_s
        pause = max(watched_s, _WATCHED_REST_RATIO * scan_s) if self.watching == "events" else unwatched_s
        return min(pause, self._next_change_s())
