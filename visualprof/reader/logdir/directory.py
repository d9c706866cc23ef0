"""The current state of the log directories.

A scan finds the files (`logdir.scan`), their names give the runs (`logdir.layout`), and a settled file (`logdir.entry`)
is parsed in the background (`logdir.pool`). `logdir.scan_scheduler` decides when the next scan runs.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.errors import VisualprofError
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.entry import Entry
from visualprof.reader.logdir.file_index import FileIndex
from visualprof.reader.logdir.listing import Changes, Listing, RunIndex, Span, new_span
from visualprof.reader.logdir.open_traces import OpenTraces
from visualprof.reader.logdir.pool import Parser
from visualprof.reader.logdir.remote_files import RemoteFileSource, RemoteFileSources, is_local
from visualprof.reader.logdir.remote_folder import open_addresses
from visualprof.reader.logdir.run_extras import collect_extras
from visualprof.reader.logdir.scan import LogFile, Problem, Root, Verdict, examine, is_run_data, roots, walk
from visualprof.reader.logdir.scan_scheduler import ScanScheduler
from visualprof.reader.logdir.summary import Failure, Outcome, Summary
from visualprof.reader.logdir.trace_tasks import TraceTasks
from visualprof.reader.trace import Trace

_SETTLING_SCAN_S = 0.25
_GROWING_SCAN_S = 1.0  # growth causes no file events
_MIN_PROGRESS_STEP = 0.02
_MAX_CACHE_MISSES, _MAX_ATTEMPTS = 2, 2


class LogDirectory:
    """Watches folders (or single files) and holds the state of their profiles.

    Args:
        paths: The log directories: folders, files, or addresses such as `s3://bucket/runs`.
        parser: Parses files; closed with this object.
        cache: The cache in which the parser stores traces.
        events: Listen for file events. Otherwise only the scans find changes.
        scan_s: Seconds between scans with events, and without.
        settle_s: A file is parsed after it has not changed for this long.
        follow_outside: Also show targets of links out of the log directories. Otherwise each is a problem.
        tasks: Runs costly functions of traces; closed with this object (default: there is no pool).
        clock: Times changes of files and schedules scans.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        parser: Parser[Summary],
        cache: Cache,
        *,
        events: bool = True,
        scan_s: tuple[float, float] = (5.0, 2.0),
        settle_s: float = 1.0,
        follow_outside: bool = False,
        tasks: TraceTasks | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.tasks = tasks or TraceTasks()
        local_paths, self._remote_folders = open_addresses(paths, cache.folder)
        self.roots = roots(local_paths)
        for folder in self._remote_folders:
            self.roots = folder.join(self.roots)
        self._remote_files = RemoteFileSources(self._remote_folders)
        self._parser, self.cache, self._clock = parser, cache, clock
        self._settle_s, self._follow_outside = settle_s, follow_outside
        self._files: dict[str, Entry] = {}
        self._runs = RunIndex()
        self._index = FileIndex(cache.folder, [str(root.path) for root in self.roots])
        self._walk_problems: list[Problem] = []
        self._active_run = ""
        self.files_revision = 0  # increases when a file, shown or not, appears, changes or disappears
        self._jobs: dict[str, str] = {}
        self._job_count = 0
        self._traces = OpenTraces(cache)
        self._lock = threading.RLock()
        self._scanning = threading.Lock()
        folders = [root.path for root in self.roots] if events else []
        self._scheduler = ScanScheduler(self.rescan, self._next_change_s, folders, scan_s, clock)
        parser.start(self)

    @property
    def home(self) -> Root:
        """The log directory to which results are written: the first local one."""
        return next((root for root in self.roots if not root.address), self.roots[0])

    def start(self) -> None:
        """Start scanning in the background."""
        for folder in self._remote_folders:
            folder.start()
        self._scheduler.start()

    def add_remote_source(self, source: RemoteFileSource) -> None:
        """Add a source of remote files; before `start` only."""
        self._remote_files = RemoteFileSources([*self._remote_folders, source])

    def close(self) -> None:
        """Stop scanning and parsing."""
        self._scheduler.close()
        self._parser.close()
        self.tasks.close()
        for folder in self._remote_folders:
            folder.close()

    @property
    def watching(self) -> str:
        """`events` if the system reports changes, else `polling`."""
        return self._scheduler.watching

    @property
    def revision(self) -> int:
        """Increases with each change."""
        return self._runs.revision

    def listing(self) -> Listing:
        """Return the current listing."""
        with self._lock:
            return self._runs.listing()

    def changes(self, since: int | None) -> Changes:
        """Return the changes since a revision; everything if the revision is `None` or too old."""
        with self._lock:
            return self._runs.changes(since)

    def bump_revision(self) -> int:
        """Record a change that does not affect the files; return the new revision."""
        with self._lock:
            self._runs.revision += 1
            return self._runs.revision

    def files(self, is_wanted: Callable[[str], bool]) -> list[LogFile]:
        """Return the files with a wanted name, as of the last scan, shown or not."""
        with self._lock:
            return [entry.file for entry in self._files.values() if is_wanted(entry.file.name)]

    def prioritize(self, *spans: Span) -> None:
        """Parse these spans next, in this order, because a user waits for them."""
        with self._lock:
            for span in reversed(spans):
                entry = self._files.get(span.log_file.file)
                if entry and entry.job:
                    self._parser.prioritize(entry.key)
                elif entry and entry.span and entry.awaits_request:
                    entry.last_change = 0.0
                    self._submit(entry, entry.span)

    def ensure_local(self, path: str) -> None:
        """Make sure that a file of a listed run can be read.

        Raises:
            NotReady: The file is being downloaded; ask again.
            VisualprofError: The file cannot be downloaded.
        """
        self._remote_files.ensure_local(path)

    def busy_paths(self) -> set[str]:
        """Return the paths of files that are being parsed or queued."""
        with self._lock:
            return {entry.file.path for entry in self._files.values() if entry.job}

    def set_active_run(self, run: str) -> None:
        """Set the run that the web UI shows. Its files are parsed next, including those found later."""
        with self._lock:
            self._active_run = run
            self.prioritize(*self._runs.spans(run))

    def open(self, span: Span) -> Trace | None:
        """Return the trace of a parsed span, or `None` if it was evicted from the cache and is parsed again."""
        if span.summary is None:
            return None
        trace = self._traces.get(span.summary.fingerprint)
        with self._lock:
            entry = self._files.get(span.log_file.file)
            if entry and trace:
                entry.cache_misses = 0
            elif entry and entry.span and not entry.job:
                self._parse_evicted(entry, entry.span)
        return trace

    def _parse_evicted(self, entry: Entry, span: Span) -> None:
        """Parse an evicted file again, but not repeatedly if the cache cannot hold it."""
        entry.cache_misses += 1
        if entry.cache_misses <= _MAX_CACHE_MISSES:
            self._submit(entry, span)
            self._parser.prioritize(entry.key)
            return
        self._set_span(entry, entry.uncacheable(span))

    def retry_failed(self) -> None:
        """Parse files again that failed for external reasons: a killed process, or full memory or disk."""
        with self._lock:
            for entry in self._files.values():
                if entry.span and entry.span.failure and entry.span.failure.status >= 500 and not entry.job:
                    entry.cache_misses = entry.process_deaths = 0
                    self._submit(entry, entry.span)

    def rescan_for(self, file: str) -> bool:
        """Scan now if the file, by its name for users, was created after the last scan; return whether it was found."""
        for root in self.roots:
            prefix = f"{root.prefix}/" if root.prefix else ""
            relative = file.removeprefix(prefix)
            is_visible = file.startswith(prefix) and all(part and part[0] != "." for part in relative.split("/"))
            if is_visible and file not in self._files and os.path.isfile(root.path / relative):
                self.rescan()
                return file in self._files
        return False

    def rescan(self) -> float:
        """Scan all files now. Return the seconds spent on listing them, excluding the examination of new files."""
        with self._scanning:
            began = self._clock.monotonic()
            local_items = [
                item
                for root in self.roots
                for item in walk(root, follow_outside=self._follow_outside, others=self.roots)
            ]
            remote_items = self._remote_files.files()
            items = [*local_items, *(remote_items or ())]
            found = (item for item in items if isinstance(item, LogFile) and not is_run_data(item.name))
            files = list({item.file: item for item in found}.values())
            # The newest first: the web UI shows these, and they are parsed while the others are examined.
            changed = sorted(filter(self._has_changed, files), key=lambda file: -file.version.mtime_ns)
            listed_at = self._clock.monotonic()
            for file in changed:
                self._examine(file)
            began += self._clock.monotonic() - listed_at
            if remote_items is not None:
                self._index.finish_first_scan()
            with self._lock:
                for name in self._files.keys() - {file.file for file in files}:
                    self._remove_file(name)
                for entry in self._files.values():
                    if span := entry.abandoned(self._clock):
                        self._set_span(entry, span)
                self._runs.set_extras(collect_extras(local_items, self._runs.recorded))
                self._report_problems([item for item in items if isinstance(item, Problem)])
            return self._clock.monotonic() - began

    def _report_problems(self, problems: list[Problem]) -> None:
        """Update the problems that the walk reported."""
        for problem in set(self._walk_problems).difference(problems):
            self._runs.set_problem(problem.file, None)
        for problem in problems:
            self._runs.set_problem(problem.file, problem)
        self._walk_problems = problems

    def _next_change_s(self) -> float:
        """Return the seconds until a file is expected to change, infinity for none."""
        with self._lock:
            files = list(self._files.values())
        if any(entry.last_change for entry in files):
            return _SETTLING_SCAN_S
        return _GROWING_SCAN_S if any(entry.may_grow(self._clock) for entry in files) else math.inf

    def _has_changed(self, file: LogFile) -> bool:
        """Return whether a file is new or changed. An unchanged file may have settled."""
        entry = self._files.get(file.file)
        if entry is None or entry.file.version != file.version:
            return True
        if entry.last_change:
            with self._lock:
                self._settle(entry)
        return False

    def _examine(self, file: LogFile) -> None:
        """Examine a new or changed file."""
        verdict, outcome = self._index.pop_finding(file)
        if verdict is None:
            verdict = file.verdict or examine(file)
            self._index.record(file, verdict)
        with self._lock:
            self.files_revision += 1
            previous = self._files.get(file.file)
            entry = self._files[file.file] = previous or Entry(file)
            if previous:
                entry.changed, entry.process_deaths = self._clock.monotonic(), 0
            self._cancel_job(entry)
            entry.file, entry.last_change = file, self._clock.monotonic()
            span = None
            if verdict.kind in ("profile", "growing"):
                failure = Failure(verdict.error, verdict.hint, kind="EmptyFile") if verdict.error else None
                # A file that was seen to change is being written; a new file may be complete.
                state = "growing" if failure or (previous and not file.verdict) else "waiting"
                span = replace(new_span(file, verdict), state=state, failure=failure)
            problem = Problem(file.file, verdict.error.removeprefix(f"{file.name}: "), verdict.hint)
            self._set_span(entry, span, problem if verdict.kind == "skipped" else None)
            if outcome:
                entry.last_change = 0.0
                self._apply_outcome(entry, outcome)
            else:
                self._settle(entry)

    def _set_span(self, entry: Entry, span: Span | None, problem: Problem | None = None) -> None:
        """Set the current state of a file."""
        if span:
            self._runs.set_span(span)
        elif entry.span:
            self._runs.drop(entry.span)
        self._runs.set_problem(entry.file.file, problem)
        entry.span = span

    def _settle(self, entry: Entry) -> None:
        """Parse a profile that has settled; a remote profile only on request."""
        if entry.is_settled(self._settle_s, self._clock):
            entry.last_change = 0.0
            if entry.span and entry.span.format and is_local(entry.file):
                self._submit(entry, entry.span)

    def _submit(self, entry: Entry, span: Span) -> None:
        """Queue a file for parsing, after its download if it is remote."""
        self._job_count += 1
        entry.job, entry.submitted = self._job_count, self._clock.monotonic()
        self._jobs[entry.key] = entry.file.file
        if not is_local(entry.file):
            self._set_span(entry, replace(span, state="waiting", progress=0.0))
            self._remote_files.fetch(entry.file.path, partial(self._on_fetched, entry.key))
        else:
            self._parse(entry, span)

    def _parse(self, entry: Entry, span: Span) -> None:
        self._set_span(entry, replace(span, state="waiting", progress=0.0, failure=None))
        self._parser.submit(entry.key, entry.file.path, entry.file.version.size, (0, -entry.file.version.mtime_ns))
        if self._runs.run_of(entry.file.file) == self._active_run:
            self._parser.prioritize(entry.key)

    def _on_fetched(self, key: str, error: VisualprofError | None) -> None:
        """Handle the end of a download; a file that may arrive later is downloaded on the next request."""
        with self._lock:
            entry = self._files.get(self._jobs.get(key, ""))
            if entry is None or entry.span is None:
                return
            if error is None:
                self._parse(entry, entry.span)
                return
            del self._jobs[key]
            entry.job = entry.cache_misses = 0
            state = "ready" if entry.span.summary else "waiting" if error.status == 503 else "failed"
            failure = Failure(error.error, error.hint, error.status)
            self._set_span(entry, replace(entry.span, state=state, failure=failure))

    def _cancel_job(self, entry: Entry) -> None:
        if entry.job:
            self._jobs.pop(entry.key, None)
            self._parser.cancel(entry.key)
            entry.job = 0

    def _remove_file(self, name: str) -> None:
        entry = self._files.pop(name)
        self.files_revision += 1
        self._cancel_job(entry)
        self._set_span(entry, None)

    def on_progress(self, key: str, progress: float) -> None:
        """Handle progress of the parser: a job started or advanced."""
        with self._lock:
            entry = self._files.get(self._jobs.get(key, ""))
            if entry is None or entry.span is None:
                return
            if progress == 0.0:
                entry.submitted = self._clock.monotonic()
            if entry.span.state != "parsing" or progress - entry.span.progress >= _MIN_PROGRESS_STEP:
                self._set_span(entry, replace(entry.span, state="parsing", progress=progress))

    def on_finished(self, key: str, outcome: Outcome) -> None:
        """Handle the end of a parser's job."""
        with self._lock:
            entry = self._files.get(self._jobs.pop(key, ""))
            if entry is None or entry.span is None:
                return
            entry.job, entry.parse_s = 0, self._clock.monotonic() - entry.submitted
            may_retry = isinstance(outcome, Failure) and (
                outcome.kind == "ProcessDied" or (outcome.kind == "SourceError" and not is_local(entry.file))
            )
            if may_retry and entry.process_deaths + 1 < _MAX_ATTEMPTS:
                entry.process_deaths += 1  # it may have been killed, or the file deleted, by something else
                self._submit(entry, entry.span)
                return
            self._apply_outcome(entry, outcome)
            self._index.record(entry.file, Verdict("profile", entry.span.format, rank=entry.span.stated), outcome)

    def _apply_outcome(self, entry: Entry, outcome: Outcome) -> None:
        """Show the outcome of a parse, by this or an earlier server."""
        if entry.span is None:
            return
        if isinstance(outcome, Summary):
            entry.process_deaths = 0
        self._set_span(entry, entry.parsed(entry.span, outcome, self._clock))
