"""When the log directories are looked at: soon after a file event, else after a pause that suits what a look costs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from visualprof.reader.logdir.watch import Watcher

_log = logging.getLogger(__name__)

# Times that a look took, until the next one; while events tell of most changes; when one has told of something.
_REST_RATIO, _WATCHED_REST_RATIO, _EVENT_REST_RATIO = 10, 100, 3


class ScanScheduler:
    """Looks again and again, in a thread of its own.

    Args:
        look: looks at every file; gives the seconds that it took.
        due_s: seconds until a file is expected to have changed; inf where none is.
        roots: folders whose file events are listened for; none: only looks find changes.
        every_s: seconds between looks with events, and without.

    Attributes: watching: `events`, or `polling` without.
    """

    def __init__(
        self,
        scan: Callable[[], float],
        next_change_s: Callable[[], float],
        roots: Sequence[Path],
        intervals_s: tuple[float, float],
    ) -> None:
        self.watching = "polling"
        self._scan, self._next_change_s, self._roots, self._intervals_s = scan, next_change_s, roots, intervals_s
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="logdir", daemon=True)

    def start(self) -> None:
        """Begins; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Ends after the look that is under way."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        self._run_scan()  # before the watches: setting them up walks the whole tree once more
        watcher = Watcher(self._roots, self._wake.set)
        if self._roots and watcher.start():
            self.watching = "events"
        while not self._closed:
            self._wake.clear()
            # A tree that takes long to walk is walked less often: a tenth of the time, a quarter while it changes.
            scan_s = self._run_scan()
            self._wake.wait(max(_REST_RATIO * scan_s, self._pause_s(scan_s)))
            if self._wake.is_set() and not self._closed:
                time.sleep(max(0.1, _EVENT_REST_RATIO * scan_s))  # events come in showers
        watcher.stop()

    def _run_scan(self) -> float:
        try:
            return self._scan()
        except Exception:  # noqa: BLE001 - a scanner that stops is worse than one that skips a turn
            _log.exception("looking at the log directories")
            return 0.0

    def _pause_s(self, scan_s: float) -> float:
        """Seconds until the next look: fewer while a file is expected to change, more after one that took long."""
        watched_s, unwatched_s = self._intervals_s
        pause = max(watched_s, _WATCHED_REST_RATIO * scan_s) if self.watching == "events" else unwatched_s
        return min(pause, self._next_change_s())
