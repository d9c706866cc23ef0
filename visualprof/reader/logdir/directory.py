"""The log directories, always as they are now.

A scan finds what is there (`logdir.scan`), names say what belongs together (`logdir.layout`), and a file at rest
(`logdir.entry`) is parsed in the background (`logdir.pool`). When the next scan comes, `logdir.rounds` says.
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
from visualprof.reader.logdir.file_index import Known
from visualprof.reader.logdir.listing import Arrangement, Changes, Listing, Span, beside, new_span
from visualprof.reader.logdir.open_traces import OpenTraces
from visualprof.reader.logdir.pool import Parser
from visualprof.reader.logdir.remote_files import Elsewhere, Places, is_here
from visualprof.reader.logdir.remote_folder import open_addresses
from visualprof.reader.logdir.rounds import Rounds
from visualprof.reader.logdir.scan import LogFile, Problem, Root, Verdict, examine, roots, walk
from visualprof.reader.logdir.summary import Failure, Outcome, Summary
from visualprof.reader.trace import Trace

_TICK_S = 0.25
_GROWING_TICK_S = 1.0  # no event tells of growth
_ABANDONED = msg(
    "logdir.nobody_writes_any_more",
    "nobody writes to it any more, so it was cut short or recorded nothing; it opens by itself if it is completed",
)
_ASLEEP = ("waiting", None)  # state and summary of what is kept elsewhere, until somebody asks
_PROGRESS_STEP = 0.02
_MISSES, _TRIES = 2, 2


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
        outside: bool = True,
    ) -> None:
        here, self._far = open_addresses(paths, cache.folder)
        self.roots = roots(here)
        for folder in self._far:
            self.roots = folder.join(self.roots)
        self._elsewhere = Places(self._far)
        self._parser, self.cache = parser, cache
        self._settle_s, self._outside = settle_s, outside
        self._files: dict[str, Entry] = {}
        self._arrangement = Arrangement()
        self._known = Known(cache.folder, [str(root.path) for root in self.roots])
        self._walk_problems: list[Problem] = []
        self._shown = ""
        self.files_revision = 0  # grows when a file, shown or not, comes, changes or goes
        self._jobs: dict[str, str] = {}
        self._last_job = 0
        self._traces = OpenTraces(cache)
        self._lock = threading.RLock()
        self._scanning = threading.Lock()
        folders = [root.path for root in self.roots] if events else []
        self._rounds = Rounds(self.rescan, self._due_s, folders, scan_s)
        parser.start(self)

    @property
    def home(self) -> Root:
        """The log directory that results are written to: the first that is here."""
        return next((root for root in self.roots if not root.address), self.roots[0])

    def start(self) -> None:
        """Begin to look; returns at once."""
        for folder in self._far:
            folder.start()
        self._rounds.start()

    def add(self, elsewhere: Elsewhere) -> None:
        """Files that are kept elsewhere belong to it, too; before the start."""
        self._elsewhere = Places([*self._far, elsewhere])

    def close(self) -> None:
        """Stops looking and parsing."""
        self._rounds.close()
        self._parser.close()
        for folder in self._far:
            folder.close()

    @property
    def watching(self) -> str:
        """`events` where the system tells of changes, else `polling`."""
        return self._rounds.watching

    @property
    def revision(self) -> int:
        """Grow with each change."""
        return self._arrangement.revision

    def listing(self) -> Listing:
        """Everything that is known now."""
        with self._lock:
            return self._arrangement.listing()

    def changes(self, since: int | None) -> Changes:
        """What changed since a revision; everything, when that is None or not known any more."""
        with self._lock:
            return self._arrangement.changes(since)

    def touch(self) -> int:
        """Count a change that is none of the files; the new revision."""
        with self._lock:
            self._arrangement.revision += 1
            return self._arrangement.revision

    def files(self, wanted: Callable[[str], bool]) -> list[LogFile]:
        """Every file whose name is wanted as of the last look, whether it is shown or not."""
        with self._lock:
            return [entry.file for entry in self._files.values() if wanted(entry.file.name)]

    def hurry(self, *spans: Span) -> None:
        """Somebody waits for these spans: they are parsed next, in this order."""
        with self._lock:
            for span in reversed(spans):
                entry = self._files.get(span.log_file.file)
                if entry and entry.job:
                    self._parser.hurry(entry.key)
                elif entry and entry.span and entry.file.known and (entry.span.state, entry.span.summary) == _ASLEEP:
                    entry.restless_since = 0.0
                    self._submit(entry, entry.span)

    def bring(self, path: str) -> None:
        """Somebody is about to read a file of a listed run.

        Raises: NotReady: it is being fetched, ask again. VisualprofError: it cannot be.
        """
        self._elsewhere.bring(path)

    def busy(self) -> set[str]:
        """Paths of files that are being parsed, or are about to be."""
        with self._lock:
            return {entry.file.path for entry in self._files.values() if entry.job}

    def show(self, run: str) -> None:
        """A page shows this run: its files are parsed next, also those that are found later."""
        with self._lock:
            self._shown = run
            self.hurry(*self._arrangement.spans(run))

    def open(self, span: Span) -> Trace | None:
        """The columns of a parsed span; None when they are gone from the cache and the file is read again."""
        if span.summary is None:
            return None
        trace = self._traces.get(span.summary.fingerprint)
        with self._lock:
            entry = self._files.get(span.log_file.file)
            if entry and trace:
                entry.misses = 0
            elif entry and entry.span and not entry.job:
                self._read_again(entry, entry.span)
        return trace

    def _read_again(self, entry: Entry, span: Span) -> None:
        """Evicted from the cache: parse once more, but not for ever when the cache cannot keep it."""
        entry.misses += 1
        if entry.misses <= _MISSES:
            self._submit(entry, span)
            self._parser.hurry(entry.key)
            return
        what, hint = (
            msg("logdir.columns_cannot_kept", f"{span.log_file.name}: its columns cannot be kept"),
            msg("logdir.disk_cache_folder_full", "is the disk of the cache folder full?"),
        )
        failure = Failure(what, hint, 500)
        self._show(entry, replace(span, state="failed", summary=None, failure=failure))

    def retry(self) -> None:
        """Read again what failed for no fault of its own: its process was ended, or memory or disk were full."""
        with self._lock:
            for entry in self._files.values():
                if entry.span and entry.span.failure and entry.span.failure.status >= 500 and not entry.job:
                    entry.misses = entry.deaths = 0
                    self._submit(entry, entry.span)

    def look_for(self, file: str) -> bool:
        """Looks now for a file, by its name towards users, that came after the last look; is it there?"""
        for root in self.roots:
            prefix = f"{root.prefix}/" if root.prefix else ""
            below = file.removeprefix(prefix)
            shown = file.startswith(prefix) and all(part and part[0] != "." for part in below.split("/"))
            if shown and file not in self._files and os.path.isfile(root.path / below):
                self.rescan()
                return file in self._files
        return False

    def rescan(self) -> float:
        """Look at every file now. Returns the seconds that it took to find them; new ones take more to look into."""
        with self._scanning:
            began = time.monotonic()
            own = [item for root in self.roots for item in walk(root, outside=self._outside)]
            others = self._elsewhere.files()
            items = [*own, *(others or ())]
            files = list({item.file: item for item in items if isinstance(item, LogFile)}.values())
            # The newest first: it is what a page shows, and what is parsed while the others are looked into.
            news = sorted(filter(self._is_news, files), key=lambda file: -file.version.mtime_ns)
            found = time.monotonic()
            for file in news:
                self._look(file)
            began += time.monotonic() - found
            if others is not None:
                self._known.forget()
            with self._lock:
                for name in self._files.keys() - {file.file for file in files}:
                    self._forget(name)
                for entry in self._files.values():
                    self._stop_growing(entry)
                self._arrangement.accompany(beside(own))
                self._report([item for item in items if isinstance(item, Problem)])
            return time.monotonic() - began

    def _report(self, problems: list[Problem]) -> None:
        """What the walk could not look at."""
        for problem in set(self._walk_problems).difference(problems):
            self._arrangement.skip(problem.file, None)
        for problem in problems:
            self._arrangement.skip(problem.file, problem)
        self._walk_problems = problems

    def _due_s(self) -> float:
        """Seconds until a file is expected to have changed; inf for none."""
        with self._lock:
            files = list(self._files.values())
        if any(entry.restless_since for entry in files):
            return _TICK_S
        return _GROWING_TICK_S if any(entry.grows() for entry in files) else math.inf

    def _is_news(self, file: LogFile) -> bool:
        """Is it new or changed? One that is neither may have come to rest."""
        entry = self._files.get(file.file)
        if entry is None or entry.file.version != file.version:
            return True
        if entry.restless_since:
            with self._lock:
                self._settle(entry)
        return False

    def _look(self, file: LogFile) -> None:
        verdict, outcome = self._known.take(file)
        if verdict is None:
            verdict = file.known or examine(file)
            self._known.keep(file, verdict)
        with self._lock:
            self.files_revision += 1
            known = self._files.get(file.file)
            entry = self._files[file.file] = known or Entry(file)
            if known:
                entry.changed, entry.deaths = time.monotonic(), 0
            self._drop_job(entry)
            entry.file, entry.restless_since = file, time.monotonic()
            span = None
            if verdict.kind in ("profile", "growing"):
                failure = Failure(verdict.error, verdict.hint, kind="EmptyFile") if verdict.error else None
                # A file that was seen to change is being written; one that is new may as well be whole.
                state = "growing" if failure or (known and not file.known) else "waiting"
                span = replace(new_span(file), state=state, format=verdict.format, failure=failure)
            problem = Problem(file.file, verdict.error.removeprefix(f"{file.name}: "), verdict.hint)
            self._show(entry, span, problem if verdict.kind == "skipped" else None)
            if outcome:
                entry.restless_since = 0.0
                self._take(entry, outcome)
            else:
                self._settle(entry)

    def _show(self, entry: Entry, span: Span | None, problem: Problem | None = None) -> None:
        """From now on this is what is known of a file."""
        if span:
            self._arrangement.put(span)
        elif entry.span:
            self._arrangement.drop(entry.span)
        self._arrangement.skip(entry.file.file, problem)
        entry.span = span

    def _stop_growing(self, entry: Entry) -> None:
        """What ends in the middle and does not change any more is all that there is."""
        span = entry.span
        if span is None or span.state != "growing" or entry.changes():
            return
        if span.summary:
            self._show(entry, replace(span, state="ready"))
        elif span.failure:
            self._show(entry, replace(span, state="failed", failure=replace(span.failure, hint=_ABANDONED)))

    def _settle(self, entry: Entry) -> None:
        """A profile that has come to rest is parsed; one that is not here, when somebody asks for it."""
        if entry.rests(self._settle_s):
            entry.restless_since = 0.0
            if entry.span and entry.span.format and is_here(entry.file):
                self._submit(entry, entry.span)

    def _submit(self, entry: Entry, span: Span) -> None:
        self._last_job += 1
        entry.job, entry.submitted = self._last_job, time.monotonic()
        self._jobs[entry.key] = entry.file.file
        if not is_here(entry.file):
            self._show(entry, replace(span, state="waiting", progress=0.0))
            self._elsewhere.fetch(entry.file.path, partial(self._fetched, entry.key))
        else:
            self._parse(entry, span)

    def _parse(self, entry: Entry, span: Span) -> None:
        self._show(entry, replace(span, state="waiting", progress=0.0, failure=None))
        self._parser.submit(entry.key, entry.file.path, entry.file.version.size, (0, -entry.file.version.mtime_ns))
        if span.run == self._shown:
            self._parser.hurry(entry.key)

    def _fetched(self, key: str, error: VisualprofError | None) -> None:
        """From elsewhere: a file is here, or cannot be; what may come later is fetched when it is asked for again."""
        with self._lock:
            entry = self._files.get(self._jobs.get(key, ""))
            if entry is None or entry.span is None:
                return
            if error is None:
                self._parse(entry, entry.span)
                return
            del self._jobs[key]
            entry.job = entry.misses = 0
            state = "ready" if entry.span.summary else "waiting" if error.status == 503 else "failed"
            failure = Failure(error.error, error.hint, error.status)
            self._show(entry, replace(entry.span, state=state, failure=failure))

    def _drop_job(self, entry: Entry) -> None:
        if entry.job:
            self._jobs.pop(entry.key, None)
            self._parser.cancel(entry.key)
            entry.job = 0

    def _forget(self, name: str) -> None:
        entry = self._files.pop(name)
        self.files_revision += 1
        self._drop_job(entry)
        self._show(entry, None)

    def progressed(self, key: str, progress: float) -> None:
        """From the parser: a job has begun or got on."""
        with self._lock:
            entry = self._files.get(self._jobs.get(key, ""))
            if entry is None or entry.span is None:
                return
            if progress == 0.0:
                entry.submitted = time.monotonic()
            if entry.span.state != "parsing" or progress - entry.span.progress >= _PROGRESS_STEP:
                self._show(entry, replace(entry.span, state="parsing", progress=progress))

    def finished(self, key: str, outcome: Outcome) -> None:
        """From the parser: a job is over."""
        with self._lock:
            entry = self._files.get(self._jobs.pop(key, ""))
            if entry is None or entry.span is None:
                return
            entry.job, entry.parse_s = 0, time.monotonic() - entry.submitted
            lost = isinstance(outcome, Failure) and (
                outcome.kind == "ProcessDied" or (outcome.kind == "SourceError" and not is_here(entry.file))
            )
            if lost and entry.deaths + 1 < _TRIES:
                entry.deaths += 1  # something else may have ended it, or taken the file away
                self._submit(entry, entry.span)
                return
            self._take(entry, outcome)
            self._known.keep(entry.file, Verdict("profile", entry.span.format), outcome)

    def _take(self, entry: Entry, outcome: Outcome) -> None:
        """Show what came of a parse, of this server or of one before it."""
        if entry.span is None:
            return
        if isinstance(outcome, Summary):
            state = "growing" if outcome.truncated and entry.changes() else "ready"
            span = replace(entry.span, state=state, progress=1.0, summary=outcome, format=outcome.format)
            entry.deaths = 0
        else:
            state = "growing" if outcome.kind == "EmptyFile" else "failed"
            span = replace(entry.span, state=state, progress=0.0, summary=None, failure=outcome)
        self._show(entry, span)
