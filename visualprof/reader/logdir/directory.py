"""The log directories, always as they are now.

A scan finds what is there (`logdir.scan`), names say what belongs together (`logdir.layout`), and a file at rest
(`logdir.entry`) is parsed in the background (`logdir.pool`). When the next scan comes, `logdir.scan_scheduler` says.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.entry import Entry
from visualprof.reader.logdir.file_index import FileIndex
from visualprof.reader.logdir.listing import Changes, Listing, RunIndex, Span, collect_extras, new_span
from visualprof.reader.logdir.open_traces import OpenTraces
from visualprof.reader.logdir.pool import Parser
from visualprof.reader.logdir.remote_files import RemoteFileSource, RemoteFileSources, is_local
from visualprof.reader.logdir.remote_folder import open_addresses
from visualprof.reader.logdir.scan import LogFile, Problem, Root, Verdict, examine, roots, walk
from visualprof.reader.logdir.scan_scheduler import ScanScheduler
from visualprof.reader.logdir.summary import Failure, Outcome, Summary
from visualprof.reader.trace import Trace

_SETTLING_SCAN_S = 0.25
_GROWING_SCAN_S = 1.0  # no event tells of growth
_ABANDONED_HINT = msg(
    "logdir.nobody_writes_any_more",
    "nobody writes to it any more, so it was cut short or recorded nothing; it opens by itself if it is completed",
)
_NOT_FETCHED = ("waiting", None)  # state and summary of what is kept elsewhere, until somebody asks
_MIN_PROGRESS_STEP = 0.02
_MAX_CACHE_MISSES, _MAX_ATTEMPTS = 2, 2


class LogDirectory:
    """Watches folders (or single files) and keeps what is known of their profiles.

    Args:
        paths: the log directories: folders, files, or addresses such as `s3://bucket/runs`.
        parser: parses files; closed with this.
        cache: where the parser leaves traces.
        events: listen for file events; without, only the scans find changes.
        scan_s: seconds between scans with events, and without.
        settle_s: a file is left alone until it has not changed for so long.
        outside: also show what links lead to out of the log directories.
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
        follow_outside: bool = True,
    ) -> None:
        local_paths, self._remote_folders = open_addresses(paths, cache.folder)
        self.roots = roots(local_paths)
        for folder in self._remote_folders:
            self.roots = folder.join(self.roots)
        self._remote_files = RemoteFileSources(self._remote_folders)
        self._parser, self.cache = parser, cache
        self._settle_s, self._follow_outside = settle_s, follow_outside
        self._files: dict[str, Entry] = {}
        self._runs = RunIndex()
        self._index = FileIndex(cache.folder, [str(root.path) for root in self.roots])
        self._walk_problems: list[Problem] = []
        self._active_run = ""
        self.files_revision = 0  # grows when a file, shown or not, comes, changes or goes
        self._jobs: dict[str, str] = {}
        self._job_count = 0
        self._traces = OpenTraces(cache)
        self._lock = threading.RLock()
        self._scanning = threading.Lock()
        folders = [root.path for root in self.roots] if events else []
        self._scheduler = ScanScheduler(self.rescan, self._next_change_s, folders, scan_s)
        parser.start(self)

    @property
    def home(self) -> Root:
        """The log directory that results are written to: the first that is here."""
        return next((root for root in self.roots if not root.address), self.roots[0])

    def start(self) -> None:
        """Begin to look; returns at once."""
        for folder in self._remote_folders:
            folder.start()
        self._scheduler.start()

    def add_remote_source(self, source: RemoteFileSource) -> None:
        """Files that are kept elsewhere belong to it, too; before the start."""
        self._remote_files = RemoteFileSources([*self._remote_folders, source])

    def close(self) -> None:
        """Stops looking and parsing."""
        self._scheduler.close()
        self._parser.close()
        for folder in self._remote_folders:
            folder.close()

    @property
    def watching(self) -> str:
        """`events` where the system tells of changes, else `polling`."""
        return self._scheduler.watching

    @property
    def revision(self) -> int:
        """Grow with each change."""
        return self._runs.revision

    def listing(self) -> Listing:
        """Everything that is known now."""
        with self._lock:
            return self._runs.listing()

    def changes(self, since: int | None) -> Changes:
        """What changed since a revision; everything, when that is None or not known any more."""
        with self._lock:
            return self._runs.changes(since)

    def bump_revision(self) -> int:
        """Count a change that is none of the files; the new revision."""
        with self._lock:
            self._runs.revision += 1
            return self._runs.revision

    def files(self, is_wanted: Callable[[str], bool]) -> list[LogFile]:
        """Every file whose name is wanted as of the last look, whether it is shown or not."""
        with self._lock:
            return [entry.file for entry in self._files.values() if is_wanted(entry.file.name)]

    def prioritize(self, *spans: Span) -> None:
        """Somebody waits for these spans: they are parsed next, in this order."""
        with self._lock:
            for span in reversed(spans):
                entry = self._files.get(span.log_file.file)
                if entry and entry.job:
                    self._parser.prioritize(entry.key)
                elif (
                    entry
                    and entry.span
                    and entry.file.verdict
                    and (entry.span.state, entry.span.summary) == _NOT_FETCHED
                ):
                    entry.last_change = 0.0
                    self._submit(entry, entry.span)

    def ensure_local(self, path: str) -> None:
        """Somebody is about to read a file of a listed run.

        Raises: NotReady: it is being fetched, ask again. VisualprofError: it cannot be.
        """
        self._remote_files.ensure_local(path)

    def busy_paths(self) -> set[str]:
        """Paths of files that are being parsed, or are about to be."""
        with self._lock:
            return {entry.file.path for entry in self._files.values() if entry.job}

    def set_active_run(self, run: str) -> None:
        """A page shows this run: its files are parsed next, also those that are found later."""
        with self._lock:
            self._active_run = run
            self.prioritize(*self._runs.spans(run))

    def open(self, span: Span) -> Trace | None:
        """The columns of a parsed span; None when they are gone from the cache and the file is read again."""
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
        """Evicted from the cache: parse once more, but not for ever when the cache cannot keep it."""
        entry.cache_misses += 1
        if entry.cache_misses <= _MAX_CACHE_MISSES:
            self._submit(entry, span)
            self._parser.prioritize(entry.key)
            return
        problem, hint = (
            msg("logdir.columns_cannot_kept", f"{span.log_file.name}: its columns cannot be kept"),
            msg("logdir.disk_cache_folder_full", "is the disk of the cache folder full?"),
        )
        failure = Failure(problem, hint, 500)
        self._set_span(entry, replace(span, state="failed", summary=None, failure=failure))

    def retry_failed(self) -> None:
        """Read again what failed for no fault of its own: its process was ended, or memory or disk were full."""
        with self._lock:
            for entry in self._files.values():
                if entry.span and entry.span.failure and entry.span.failure.status >= 500 and not entry.job:
                    entry.cache_misses = entry.process_deaths = 0
                    self._submit(entry, entry.span)

    def rescan_for(self, file: str) -> bool:
        """Looks now for a file, by its name towards users, that came after the last look; is it there?"""
        for root in self.roots:
            prefix = f"{root.prefix}/" if root.prefix else ""
            relative = file.removeprefix(prefix)
            is_visible = file.startswith(prefix) and all(part and part[0] != "." for part in relative.split("/"))
            if is_visible and file not in self._files and os.path.isfile(root.path / relative):
                self.rescan()
                return file in self._files
        return False

    def rescan(self) -> float:
        """Look at every file now. Returns the seconds that it took to find them; new ones take more to look into."""
        with self._scanning:
            began = time.monotonic()
            local_items = [item for root in self.roots for item in walk(root, follow_outside=self._follow_outside)]
            remote_items = self._remote_files.files()
            items = [*local_items, *(remote_items or ())]
            files = list({item.file: item for item in items if isinstance(item, LogFile)}.values())
            # The newest first: it is what a page shows, and what is parsed while the others are looked into.
            changed = sorted(filter(self._has_changed, files), key=lambda file: -file.version.mtime_ns)
            listed_at = time.monotonic()
            for file in changed:
                self._examine(file)
            began += time.monotonic() - listed_at
            if remote_items is not None:
                self._index.finish_first_scan()
            with self._lock:
                for name in self._files.keys() - {file.file for file in files}:
                    self._remove_file(name)
                for entry in self._files.values():
                    self._stop_growing(entry)
                self._runs.set_extras(collect_extras(local_items))
                self._report_problems([item for item in items if isinstance(item, Problem)])
            return time.monotonic() - began

    def _report_problems(self, problems: list[Problem]) -> None:
        """What the walk could not look at."""
        for problem in set(self._walk_problems).difference(problems):
            self._runs.set_problem(problem.file, None)
        for problem in problems:
            self._runs.set_problem(problem.file, problem)
        self._walk_problems = problems

    def _next_change_s(self) -> float:
        """Seconds until a file is expected to have changed; inf for none."""
        with self._lock:
            files = list(self._files.values())
        if any(entry.last_change for entry in files):
            return _SETTLING_SCAN_S
        return _GROWING_SCAN_S if any(entry.may_grow() for entry in files) else math.inf

    def _has_changed(self, file: LogFile) -> bool:
        """Is it new or changed? One that is neither may have come to rest."""
        entry = self._files.get(file.file)
        if entry is None or entry.file.version != file.version:
            return True
        if entry.last_change:
            with self._lock:
                self._settle(entry)
        return False

    def _examine(self, file: LogFile) -> None:
        verdict, outcome = self._index.pop_finding(file)
        if verdict is None:
            verdict = file.verdict or examine(file)
            self._index.record(file, verdict)
        with self._lock:
            self.files_revision += 1
            previous = self._files.get(file.file)
            entry = self._files[file.file] = previous or Entry(file)
            if previous:
                entry.changed, entry.process_deaths = time.monotonic(), 0
            self._cancel_job(entry)
            entry.file, entry.last_change = file, time.monotonic()
            span = None
            if verdict.kind in ("profile", "growing"):
                failure = Failure(verdict.error, verdict.hint, kind="EmptyFile") if verdict.error else None
                # A file that was seen to change is being written; one that is new may as well be whole.
                state = "growing" if failure or (previous and not file.verdict) else "waiting"
                span = replace(new_span(file), state=state, format=verdict.format, failure=failure)
            problem = Problem(file.file, verdict.error.removeprefix(f"{file.name}: "), verdict.hint)
            self._set_span(entry, span, problem if verdict.kind == "skipped" else None)
            if outcome:
                entry.last_change = 0.0
                self._apply_outcome(entry, outcome)
            else:
                self._settle(entry)

    def _set_span(self, entry: Entry, span: Span | None, problem: Problem | None = None) -> None:
        """From now on this is what is known of a file."""
        if span:
            self._runs.put(span)
        elif entry.span:
            self._runs.drop(entry.span)
        self._runs.set_problem(entry.file.file, problem)
        entry.span = span

    def _stop_growing(self, entry: Entry) -> None:
        """What ends in the middle and does not change any more is all that there is."""
        span = entry.span
        if span is None or span.state != "growing" or entry.changed_recently():
            return
        if span.summary:
            self._set_span(entry, replace(span, state="ready"))
        elif span.failure:
            self._set_span(entry, replace(span, state="failed", failure=replace(span.failure, hint=_ABANDONED_HINT)))

    def _settle(self, entry: Entry) -> None:
        """A profile that has come to rest is parsed; one that is not here, when somebody asks for it."""
        if entry.is_settled(self._settle_s):
            entry.last_change = 0.0
            if entry.span and entry.span.format and is_local(entry.file):
                self._submit(entry, entry.span)

    def _submit(self, entry: Entry, span: Span) -> None:
        self._job_count += 1
        entry.job, entry.submitted = self._job_count, time.monotonic()
        self._jobs[entry.key] = entry.file.file
        if not is_local(entry.file):
            self._set_span(entry, replace(span, state="waiting", progress=0.0))
            self._remote_files.fetch(entry.file.path, partial(self._on_fetched, entry.key))
        else:
            self._parse(entry, span)

    def _parse(self, entry: Entry, span: Span) -> None:
        self._set_span(entry, replace(span, state="waiting", progress=0.0, failure=None))
        self._parser.submit(entry.key, entry.file.path, entry.file.version.size, (0, -entry.file.version.mtime_ns))
        if span.run == self._active_run:
            self._parser.prioritize(entry.key)

    def _on_fetched(self, key: str, error: VisualprofError | None) -> None:
        """From elsewhere: a file is here, or cannot be; what may come later is fetched when it is asked for again."""
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
        """From the parser: a job has begun or got on."""
        with self._lock:
            entry = self._files.get(self._jobs.get(key, ""))
            if entry is None or entry.span is None:
                return
            if progress == 0.0:
                entry.submitted = time.monotonic()
            if entry.span.state != "parsing" or progress - entry.span.progress >= _MIN_PROGRESS_STEP:
                self._set_span(entry, replace(entry.span, state="parsing", progress=progress))

    def on_finished(self, key: str, outcome: Outcome) -> None:
        """From the parser: a job is over."""
        with self._lock:
            entry = self._files.get(self._jobs.pop(key, ""))
            if entry is None or entry.span is None:
                return
            entry.job, entry.parse_s = 0, time.monotonic() - entry.submitted
            may_retry = isinstance(outcome, Failure) and (
                outcome.kind == "ProcessDied" or (outcome.kind == "SourceError" and not is_local(entry.file))
            )
            if may_retry and entry.process_deaths + 1 < _MAX_ATTEMPTS:
                entry.process_deaths += 1  # something else may have ended it, or taken the file away
                self._submit(entry, entry.span)
                return
            self._apply_outcome(entry, outcome)
            self._index.record(entry.file, Verdict("profile", entry.span.format), outcome)

    def _apply_outcome(self, entry: Entry, outcome: Outcome) -> None:
        """Show what came of a parse, of this server or of one before it."""
        if entry.span is None:
            return
        if isinstance(outcome, Summary):
            state = "growing" if outcome.truncated and entry.changed_recently() else "ready"
            span = replace(entry.span, state=state, progress=1.0, summary=outcome, format=outcome.format)
            entry.process_deaths = 0
        else:
            state = "growing" if outcome.kind == "EmptyFile" else "failed"
            span = replace(entry.span, state=state, progress=0.0, summary=None, failure=outcome)
        self._set_span(entry, span)
