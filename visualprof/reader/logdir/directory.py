"""The log directories, always as they are now.

A scan finds what is there (`reader.scan`), names say what belongs together (`reader.layout`), and a file
that has come to rest is parsed in the background (`reader.pool`), the newest first. File events
(`reader.watch`) only make the next scan come sooner; a scan every few seconds finds what they missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from visualprof.reader.cache import Cache
from visualprof.reader.logdir.listing import Listing, Span, arrange, new_span
from visualprof.reader.logdir.pool import Parser
from visualprof.reader.logdir.scan import Found, Problem, Verdict, examine, roots, walk
from visualprof.reader.logdir.summary import Failure, Outcome, Summary
from visualprof.reader.logdir.watch import Watcher
from visualprof.reader.trace import Trace

_log = logging.getLogger(__name__)

_OPEN_TRACES = 8
_TICK_S = 0.25
# No event tells of growth. Whoever has not written for ten minutes is not going to.
_GROWING_TICK_S = 1.0
_GROWS_FOR_S = 600
_PROGRESS_STEP = 0.02
_MISSES = 2


@dataclass
class _File:
    """What this process knows of one file, whatever it turned out to be.

    span: None for a file that is not shown. job: of the parse under way, 0 for none.
    restless_since: monotonic time of the last change; 0 once it has come to rest.
    misses: how often in a row the cache did not have what was just parsed.
    """

    found: Found
    span: Span | None = None
    problem: Problem | None = None
    job: int = 0
    restless_since: float = 0.0
    parse_s: float = 0.0
    submitted: float = 0.0
    misses: int = 0


class LogDirectory:
    """Watches folders (or single files) and keeps what is known of their profiles.

    Args:
        paths: the log directories.
        parser: parses files; closed with this.
        cache: where the parser leaves traces.
        events: listen for file events; without, only the scans find changes.
        scan_s: seconds between scans with events, and without.
        settle_s: a file is left alone until it has not changed for so long.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        parser: Parser,
        cache: Cache,
        *,
        events: bool = True,
        scan_s: tuple[float, float] = (5.0, 2.0),
        settle_s: float = 1.0,
    ) -> None:
        self.roots = roots(paths)
        self.watching = "polling"
        self._parser = parser
        self._cache = cache
        self._events = events
        self._scan_s = scan_s
        self._settle_s = settle_s
        self._files: dict[str, _File] = {}
        self._walk_problems: list[Problem] = []
        self._revision = 0
        self._scans = 0
        self._jobs: dict[str, str] = {}
        self._last_job = 0
        self._listing: Listing | None = None
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._lock = threading.RLock()
        self._scanning = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="logdir", daemon=True)
        parser.start(self)

    def start(self) -> None:
        """Begins to look; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stops looking and parsing."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self._parser.close()

    @property
    def revision(self) -> int:
        """Grows with each change."""
        return self._revision

    def listing(self) -> Listing:
        """Everything that is known now."""
        with self._lock:
            if self._listing is None or self._listing.revision != self._revision:
                files = list(self._files.values())
                spans = [file.span for file in files if file.span]
                problems = [file.problem for file in files if file.problem]
                self._listing = arrange(self._revision, spans, [*self._walk_problems, *problems])
            return self._listing

    @property
    def scans(self) -> int:
        """Grows with each look at the files; between two of them nothing is known to have changed."""
        return self._scans

    def files(self, wanted: Callable[[str], bool]) -> list[Found]:
        """Every file whose name is wanted as of the last look, whether it is shown or not."""
        with self._lock:
            return [file.found for file in self._files.values() if wanted(file.found.name)]

    def hurry(self, span: Span) -> None:
        """Somebody waits for this span: it is parsed next."""
        with self._lock:
            file = self._files.get(span.found.file)
            if file and file.job:
                self._parser.hurry(_key(file))

    def open(self, span: Span) -> Trace | None:
        """The columns of a parsed span; None when they are gone from the cache and the file is read again."""
        if span.summary is None:
            return None
        fingerprint = span.summary.fingerprint
        with self._lock:
            trace = self._traces.get(fingerprint)
            if trace:
                self._traces.move_to_end(fingerprint)
                return trace
        trace = self._cache.load(fingerprint)
        with self._lock:
            file = self._files.get(span.found.file)
            if trace is None:
                if file and not file.job and file.span:
                    self._read_again(file, file.span)
                return None
            if file:
                file.misses = 0
            self._traces[fingerprint] = trace
            while len(self._traces) > _OPEN_TRACES:
                self._traces.popitem(last=False)
        return trace

    def _read_again(self, file: _File, span: Span) -> None:
        """Evicted from the cache: parse once more, but not for ever when the cache cannot keep it."""
        file.misses += 1
        if file.misses <= _MISSES:
            self._submit(file, span)
            self._parser.hurry(_key(file))
            return
        failure = Failure(
            f"{span.found.name}: its columns cannot be kept", "is the disk of the cache folder full?", 500
        )
        file.span = replace(span, state="failed", summary=None, failure=failure)
        self._revision += 1

    def rescan(self) -> None:
        """Looks at every file now."""
        with self._scanning:
            seen: set[str] = set()
            problems: list[Problem] = []
            for item in (item for root in self.roots for item in walk(root)):
                if isinstance(item, Problem):
                    problems.append(item)
                else:
                    seen.add(item.file)
                    self._look(item)
            with self._lock:
                for file in [file for name, file in self._files.items() if name not in seen]:
                    self._forget(file)
                if problems != self._walk_problems:
                    self._walk_problems = problems
                    self._revision += 1
                self._scans += 1

    def _loop(self) -> None:
        self._scan()  # before the watches: setting them up walks the whole tree once more
        watcher = Watcher([root.path for root in self.roots], self._wake.set)
        if self._events and watcher.start():
            self.watching = "events"
        while not self._closed:
            began = time.monotonic()
            self._wake.clear()
            self._scan()
            # A tree that takes long to walk is walked less often: at most a tenth of the time.
            rest = 10 * (time.monotonic() - began)
            self._wake.wait(max(rest, self._pause()))
            if self._wake.is_set() and not self._closed:
                time.sleep(max(0.1, rest))  # events come in showers
        watcher.stop()

    def _scan(self) -> None:
        try:
            self.rescan()
        except Exception:  # noqa: BLE001 - a scanner that stops is worse than one that skips a turn
            _log.exception("looking at the log directories")

    def _pause(self) -> float:
        """Seconds until the next scan: fewer while a file is expected to change."""
        with self._lock:
            files = list(self._files.values())
        if any(file.restless_since for file in files):
            return _TICK_S
        pause = self._scan_s[0 if self.watching == "events" else 1]
        fresh_ns = time.time_ns() - int(_GROWS_FOR_S * 1e9)
        growing = any(
            file.span and file.span.state == "growing" and file.found.version.mtime_ns > fresh_ns for file in files
        )
        return min(pause, _GROWING_TICK_S) if growing else pause

    def _look(self, found: Found) -> None:
        file = self._files.get(found.file)
        if file and file.found.version == found.version:
            if file.restless_since and self._rests(file):
                file.restless_since = 0.0
                with self._lock:
                    if file.span and file.span.format:
                        self._submit(file, file.span)
            return
        verdict = examine(found)
        with self._lock:
            known, file = file, file or _File(found)
            self._files[found.file] = file
            self._drop_job(file)
            had_something = bool(file.span or file.problem)
            file.found, file.span, file.problem, file.restless_since = found, None, None, time.monotonic()
            if verdict.kind in ("profile", "growing"):
                failure = Failure(verdict.error, verdict.hint, kind="EmptyFile") if verdict.error else None
                # A file that was seen to change is being written; one that is new may as well be whole.
                state = "growing" if known or failure else "waiting"
                file.span = replace(new_span(found), state=state, format=verdict.format, failure=failure)
            elif verdict.kind == "skipped":
                file.problem = _problem(found, verdict)
            if had_something or file.span or file.problem:
                self._revision += 1
            if self._rests(file):
                file.restless_since = 0.0
                if file.span and file.span.format:
                    self._submit(file, file.span)

    def _rests(self, file: _File) -> bool:
        """Has it been unchanged for long enough? What takes long to parse must rest longer between two parses."""
        settle = max(self._settle_s, 2 * file.parse_s)
        old = time.time() - file.found.version.mtime_ns / 1e9 > settle
        return old or time.monotonic() - file.restless_since >= settle

    def _submit(self, file: _File, span: Span) -> None:
        self._last_job += 1
        file.job, file.submitted = self._last_job, time.monotonic()
        self._jobs[_key(file)] = file.found.file
        file.span = replace(span, state="waiting", progress=0.0, failure=None)
        self._revision += 1
        self._parser.submit(_key(file), file.found.path, file.found.version.size, (0, -file.found.version.mtime_ns))

    def _drop_job(self, file: _File) -> None:
        if file.job:
            self._jobs.pop(_key(file), None)
            self._parser.cancel(_key(file))
            file.job = 0

    def _forget(self, file: _File) -> None:
        self._drop_job(file)
        del self._files[file.found.file]
        if file.span or file.problem:
            self._revision += 1

    def progressed(self, key: str, progress: float) -> None:
        """From the parser: a job has begun or got on."""
        with self._lock:
            file = self._files.get(self._jobs.get(key, ""))
            if file is None or file.span is None:
                return
            if progress == 0.0:
                file.submitted = time.monotonic()
            if file.span.state != "parsing" or progress - file.span.progress >= _PROGRESS_STEP:
                file.span = replace(file.span, state="parsing", progress=progress)
                self._revision += 1

    def finished(self, key: str, outcome: Outcome) -> None:
        """From the parser: a job is over."""
        with self._lock:
            file = self._files.get(self._jobs.pop(key, ""))
            if file is None or file.span is None:
                return
            file.job, file.parse_s = 0, time.monotonic() - file.submitted
            changes: dict[str, Any]
            if isinstance(outcome, Summary):
                state = "growing" if outcome.truncated else "ready"
                changes = {"state": state, "progress": 1.0, "summary": outcome, "format": outcome.format}
            else:
                state = "growing" if outcome.kind == "EmptyFile" else "failed"
                changes = {"state": state, "progress": 0.0, "summary": None, "failure": outcome}
            file.span = replace(file.span, **changes)
            self._revision += 1


def _problem(found: Found, verdict: Verdict) -> Problem:
    return Problem(found.file, verdict.error.removeprefix(f"{found.name}: "), verdict.hint)


def _key(file: _File) -> str:
    return f"{file.job}:{file.found.file}"
