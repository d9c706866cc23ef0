"""Contents of the log directories at one time: runs, their workers, their spans."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.layout import NO_RANK, RunPath, StatedRank, natural_key, parse_run_path, recording_order
from visualprof.reader.logdir.rank_files import RankFiles
from visualprof.reader.logdir.run_extras import RunExtras
from visualprof.reader.logdir.same_ranks import SameRanks
from visualprof.reader.logdir.scan import LiveFolder, LogFile, Problem, Verdict, Version, examine, roots, walk
from visualprof.reader.logdir.summary import Failure, Summary

# Minimum number of deleted runs that are remembered for `changes`.
_MIN_REMEMBERED_RUNS = 1000

_UNEXAMINED = Verdict("profile")
State = Literal["waiting", "parsing", "ready", "growing", "failed"]


class Span(msgspec.Struct, frozen=True):
    """One file in its current state.

    Attributes:
        id: Unique within its worker.
        log_file: The file.
        run_path: Run and worker of the file.
        state: State of the file.
        format: Id of the format, "" if unknown.
        progress: Progress of the parse, 0 to 1.
        summary: Result of the parse, also if only a part of a truncated file could be parsed.
        failure: Set for a failed file, and for one that is too short to be parsed.
        stated: The rank that the file states.
    """

    id: str
    log_file: LogFile
    run_path: RunPath
    state: State
    format: str = ""
    progress: float = 0.0
    summary: Summary | None = None
    failure: Failure | None = None
    stated: StatedRank = NO_RANK

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.log_file.root.run_id(self.run_path.run)

    @property
    def version(self) -> Version:
        """Version of the file, as last seen."""
        return self.log_file.version

    @property
    def rank(self) -> int:
        """Rank from the content, else from the name, -1 if neither has one."""
        recorded = -1 if self.summary is None else self.summary.rank
        return recorded if recorded >= 0 else self.run_path.rank


class Worker(msgspec.Struct, frozen=True):
    """One process of a run; its spans are in order of time."""

    id: str
    rank: int
    spans: tuple[Span, ...]


class Run(msgspec.Struct, frozen=True):
    """A set of workers that ran together, ordered by rank, then name; empty while nothing is recorded."""

    id: str
    name: str
    workers: tuple[Worker, ...]
    extras: RunExtras | None = None

    @property
    def modified_ns(self) -> int:
        """Modification time of the newest file."""
        files = (span.version.mtime_ns for worker in self.workers for span in worker.spans)
        return max(files, default=self.extras.modified_ns if self.extras else 0)


class Listing(msgspec.Struct, frozen=True):
    """All runs at one time, in natural order; `revision` increases with each change."""

    revision: int
    runs: tuple[Run, ...]
    skipped: tuple[Problem, ...]

    def find(self, run: str, worker: str = "", span: str = "") -> Span:
        """Return a span by its ids. Without `worker` or `span` the first one is returned.

        Raises:
            NotFound: There is no such run, worker or span.
        """
        chosen = _pick(self.runs, run, "run")
        if not chosen.workers:
            raise NotFound(
                msg("logdir.run_no_recording_yet", f"the run {run!r} has no recording yet"),
                msg("logdir.record_some_steps_visualprof", "record some steps of it: visualprof record"),
            )
        # Before it is parsed, a file with several ranks is one worker; the first rank takes its place.
        ranks = [entry for entry in chosen.workers if entry.id.startswith(f"{worker} [")]
        if ranks and all(entry.id != worker for entry in chosen.workers):
            worker = ranks[0].id
        return _pick(
            _pick(chosen.workers, worker, msg("logdir.worker_run", f"worker of run {run!r}")).spans,
            span,
            msg("logdir.span_run", f"span of run {run!r}"),
        )


class Changes(msgspec.Struct, frozen=True):
    """Changes of the log directories since a revision.

    Attributes:
        revision: The current revision.
        since: The earlier revision, `None` if this is everything.
        runs: New and changed runs.
        removed: Ids of deleted runs.
        skipped: Skipped files, `None` if unchanged.
    """

    revision: int
    since: int | None
    runs: tuple[Run, ...]
    removed: tuple[str, ...]
    skipped: tuple[Problem, ...] | None


_Named = TypeVar("_Named", Run, Worker, Span)


def _pick(items: Sequence[_Named], wanted: str, label: str) -> _Named:
    for item in items:
        if wanted in ("", item.id):
            return item
    first_ids = ", ".join(item.id for item in items[:10]) + (", ..." if len(items) > 10 else "")
    raise NotFound(
        msg("logdir.there_no_called", f"there is no {label} called {wanted!r}"),
        msg("logdir.there", f"there are: {first_ids}") if items else "",
    )


class RunIndex:
    """Spans by run. A change costs time for its run only, however many other runs there are.

    `revision` increases with each change. It starts at the time in microseconds, so that revisions of an earlier server
    are never mistaken for revisions of this one.
    """

    def __init__(self) -> None:
        self.revision = self._oldest = time.time_ns() // 1000
        # All listed runs; empty for a run that only has extras.
        self._spans: dict[str, dict[str, Span]] = {}
        self._run_of: dict[str, str] = {}  # by file
        self._rank_files = RankFiles()
        self._same_ranks = SameRanks()
        self._extras: dict[str, RunExtras] = {}
        self._order: list[tuple[tuple[Any, ...], str]] = []
        # Cached runs, and the last revision of all runs, including deleted ones, in order of the revisions.
        self._runs: dict[str, Run] = {}
        self._changed: dict[str, int] = {}
        self._problems: dict[str, Problem] = {}
        self._problems_changed = self.revision
        self._listing: Listing | None = None

    def set_span(self, span: Span) -> None:
        """Show a span, in place of an earlier span of the same file."""
        self._show_files(self._rank_files.update(span.log_file.file, span))

    def drop(self, span: Span) -> None:
        """Remove a span."""
        file = span.log_file.file
        self._remove(file)
        self._show_files(self._rank_files.update(file, None))
        for shown in self._same_ranks.update(file, None):
            self._show(shown)

    def _show_files(self, spans: Iterable[Span]) -> None:
        """Show spans, unless their names put them into other runs."""
        for span in spans:
            for shown in self._same_ranks.update(span.log_file.file, span):
                self._show(shown)

    def run_of(self, file: str) -> str:
        """Return the id of the run that shows a file, "" if it is not shown."""
        return self._run_of.get(file, "")

    def _show(self, span: Span) -> None:
        file = span.log_file.file
        if self.run_of(file) not in ("", span.run):
            self._remove(file)
        self._list_run(span.run)[file] = span
        self._run_of[file] = span.run
        self._mark_changed(span.run)

    def _remove(self, file: str) -> None:
        run = self._run_of.pop(file)
        del self._spans[run][file]
        self._unlist_if_empty(run)

    def set_extras(self, extras: dict[str, RunExtras]) -> None:
        """Replace the extras of all runs."""
        previous, self._extras = self._extras, extras
        for run in previous.keys() | extras.keys():
            if previous.get(run) != extras.get(run):
                self._list_run(run)
                self._unlist_if_empty(run)

    def _list_run(self, run: str) -> dict[str, Span]:
        """Return the spans of a run, which is listed from now on."""
        if run not in self._spans:
            self._spans[run] = {}
            insort(self._order, (natural_key(run), run))
        return self._spans[run]

    def _unlist_if_empty(self, run: str) -> None:
        """Record a change of a run, and remove it if it is empty."""
        if not self._spans[run] and run not in self._extras:
            del self._spans[run]
            del self._order[bisect_left(self._order, (natural_key(run), run))]
        self._mark_changed(run)
        if len(self._changed) > 2 * len(self._spans) + _MIN_REMEMBERED_RUNS:
            self._changed = {run: revision for run, revision in self._changed.items() if run in self._spans}
            self._oldest = self.revision

    def set_problem(self, file: str, problem: Problem | None) -> None:
        """List a file that is not shown; `None` removes it from the list."""
        if self._problems.get(file) != problem:
            self.revision += 1
            self._problems_changed = self.revision
            if problem:
                self._problems[file] = problem
            else:
                del self._problems[file]

    def listing(self) -> Listing:
        """Return the current listing."""
        if self._listing is None or self._listing.revision != self.revision:
            runs = tuple(self._get_run(run) for _, run in self._order)
            self._listing = Listing(self.revision, runs, self._skipped(self._listing))
        return self._listing

    def changes(self, since: int | None) -> Changes:
        """Return the changes since a revision; everything if the revision is `None` or too old."""
        if since is None or not self._oldest <= since <= self.revision:
            now = self.listing()
            return Changes(now.revision, None, now.runs, (), now.skipped)
        changed = list(takewhile(lambda run: self._changed[run] > since, reversed(self._changed)))
        runs = tuple(self._get_run(run) for run in changed if run in self._spans)
        removed = tuple(run for run in changed if run not in self._spans)
        skipped = self.listing().skipped if self._problems_changed > since else None
        return Changes(self.revision, since, runs, removed, skipped)

    @property
    def recorded(self) -> set[str]:
        """Ids of runs with recordings."""
        return {run for run, spans in self._spans.items() if spans}

    def spans(self, run: str) -> list[Span]:
        """Return the spans of a run in order, none if it does not exist."""
        return [span for worker in self._get_run(run).workers for span in worker.spans] if run in self._spans else []

    def _mark_changed(self, run: str) -> None:
        self.revision += 1
        self._changed.pop(run, None)
        self._changed[run] = self.revision
        self._runs.pop(run, None)

    def _get_run(self, run: str) -> Run:
        if run not in self._runs:
            self._runs[run] = _build_run(run, self._spans[run].values(), self._extras.get(run))
        return self._runs[run]

    def _skipped(self, previous: Listing | None) -> tuple[Problem, ...]:
        if previous and previous.revision >= self._problems_changed:
            return previous.skipped
        return tuple(sorted(self._problems.values(), key=lambda problem: natural_key(problem.file)))


def _build_run(run: str, spans: Iterable[Span], extras: RunExtras | None) -> Run:
    workers: dict[str, list[Span]] = {}
    for span in (rank_span for file_span in spans for rank_span in _rank_spans(file_span)):
        workers.setdefault(span.run_path.worker, []).append(span)
    run_workers = [_build_worker(name, spans) for name, spans in workers.items()]
    run_workers.sort(
        key=lambda worker: (worker.rank < 0, worker.rank, recording_order(worker.id), natural_key(worker.id))
    )
    root = extras.root if extras else run_workers[0].spans[0].log_file.root
    return Run(run, run if run != "." else root.path.name or run, tuple(run_workers), extras)


def _rank_spans(span: Span) -> Iterable[Span]:
    """Return a span per rank of a file with several, the span itself for one rank."""
    if span.summary is None or not span.summary.ranks:
        return (span,)
    worker = span.run_path.worker
    return [
        replace(span, summary=summary, run_path=replace(span.run_path, worker=f"{worker} [{summary.label}]"))
        for summary in span.summary.ranks
    ]


def _build_worker(name: str, spans: list[Span]) -> Worker:
    spans_by_id: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: (natural_key(span.run_path.stamp), span.log_file.name)):
        stamp = span.run_path.stamp or "1"
        span_id = span.log_file.name if stamp in spans_by_id else stamp  # the same recording, packed and unpacked
        spans_by_id[span_id] = replace(span, id=span_id)
    return Worker(
        name, next((span.rank for span in spans_by_id.values() if span.rank >= 0), -1), tuple(spans_by_id.values())
    )


def new_span(file: LogFile, verdict: Verdict = _UNEXAMINED) -> Span:
    """Return the span of a file that has not been parsed."""
    run_path = parse_run_path(file.folder, file.name, verdict.rank)
    return Span("", file, run_path, "waiting", verdict.format, stated=verdict.rank)


def scan_profiles(paths: Sequence[str | Path]) -> Listing:
    """Return the current profiles, without parsing them; for commands that scan the user's own folders once."""
    return list_profiles(item for root in roots(paths) for item in walk(root, follow_outside=True))


def list_profiles(items: Iterable[LogFile | LiveFolder | Problem]) -> Listing:
    """Return the profiles among files, without parsing them."""
    arrangement = RunIndex()
    for item in items:
        if isinstance(item, Problem):
            arrangement.set_problem(item.file, item)
            continue
        if isinstance(item, LiveFolder):
            continue
        verdict = item.verdict or examine(item)
        if verdict.kind in ("profile", "growing"):
            arrangement.set_span(new_span(item, verdict))
        elif verdict.kind == "skipped":
            arrangement.set_problem(item.file, Problem(item.file, verdict.error, verdict.hint))
    return arrangement.listing()
