"""What the log directories hold at one moment: runs, their workers, their spans."""

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
from visualprof.reader.logdir.layout import Place, natural, place, standing
from visualprof.reader.logdir.scan import SERIES, LiveFolder, LogFile, Problem, Root, Version, examine, roots, walk
from visualprof.reader.logdir.summary import Failure, Summary

# So many runs that are gone are remembered at least, for those who ask what changed.
_GONE = 1000

State = Literal["waiting", "parsing", "ready", "growing", "failed"]


class Span(msgspec.Struct, frozen=True):
    """One file as it is known at the moment.

    id: unique within its worker. summary: set once parsed, also when only the whole part of a file cut short
    could be. failure: set when failed, and of a file too short to be read.
    """

    id: str
    log_file: LogFile
    place: Place
    state: State
    format: str = ""
    progress: float = 0.0
    summary: Summary | None = None
    failure: Failure | None = None

    @property
    def run(self) -> str:
        """Id of its run."""
        return run_id(self.log_file.root, self.place.run)

    @property
    def version(self) -> Version:
        """Of the file, as last seen."""
        return self.log_file.version

    @property
    def rank(self) -> int:
        """As the content says, or else the name; -1 when neither does."""
        known = -1 if self.summary is None else self.summary.rank
        return known if known >= 0 else self.place.rank


class Worker(msgspec.Struct, frozen=True):
    """One process of a run; its spans in order of time."""

    id: str
    rank: int
    spans: tuple[Span, ...]


class Beside(msgspec.Struct, frozen=True):
    """What is there of a run besides its recordings; it may be all that there is.

    modified_ns: of its folder. live: path of its `.live`, "" without one. series: paths of its times of steps.
    """

    root: Root
    modified_ns: int
    live: str = ""
    series: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True):
    """What ran together; workers in order of rank, then name, none while nothing is recorded."""

    id: str
    name: str
    workers: tuple[Worker, ...]
    beside: Beside | None = None

    @property
    def modified_ns(self) -> int:
        """Time of the newest file."""
        files = (span.version.mtime_ns for worker in self.workers for span in worker.spans)
        return max(files, default=self.beside.modified_ns if self.beside else 0)


class Listing(msgspec.Struct, frozen=True):
    """Everything at one moment, in natural order. revision grows with each change."""

    revision: int
    runs: tuple[Run, ...]
    skipped: tuple[Problem, ...]

    def find(self, run: str, worker: str = "", span: str = "") -> Span:
        """A span by its ids; the first worker and the first span when they are left out.

        Raises: NotFound.
        """
        chosen = _pick(self.runs, run, "run")
        if not chosen.workers:
            raise NotFound(
                msg("logdir.run_no_recording_yet", f"the run {run!r} has no recording yet"),
                msg("logdir.record_some_steps_visualprof", "record some steps of it: visualprof record"),
            )
        return _pick(
            _pick(chosen.workers, worker, msg("logdir.worker_run", f"worker of run {run!r}")).spans,
            span,
            msg("logdir.span_run", f"span of run {run!r}"),
        )


class Changes(msgspec.Struct, frozen=True):
    """What became of the log directories since a revision.

    since: None when this is everything. removed: ids of runs that are gone. skipped: None when they are the same.
    """

    revision: int
    since: int | None
    runs: tuple[Run, ...]
    removed: tuple[str, ...]
    skipped: tuple[Problem, ...] | None


_Named = TypeVar("_Named", Run, Worker, Span)


def _pick(items: Sequence[_Named], wanted: str, what: str) -> _Named:
    for item in items:
        if wanted in ("", item.id):
            return item
    some = ", ".join(item.id for item in items[:10]) + (", ..." if len(items) > 10 else "")
    raise NotFound(
        msg("logdir.there_no_called", f"there is no {what} called {wanted!r}"),
        msg("logdir.there", f"there are: {some}") if items else "",
    )


class Arrangement:
    """Spans in their runs as files come, change and go: a change costs its run, however many others there are.

    revision grows with each change. It begins with the time in microseconds, so that no revision of an earlier server
    is taken for one of this.
    """

    def __init__(self) -> None:
        self.revision = self._oldest = time.time_ns() // 1000
        # Of every run that is listed; empty where all there is stands beside.
        self._spans: dict[str, dict[str, Span]] = {}
        self._beside: dict[str, Beside] = {}
        self._order: list[tuple[tuple[Any, ...], str]] = []
        # Runs as they were last asked for, and the revisions of all runs, gone ones too, the latest last.
        self._runs: dict[str, Run] = {}
        self._changed: dict[str, int] = {}
        self._problems: dict[str, Problem] = {}
        self._problems_changed = self.revision
        self._listing: Listing | None = None

    def put(self, span: Span) -> None:
        """Show a span, in place of an earlier one of the same file."""
        self._listed(span.run)[span.log_file.file] = span
        self._touch(span.run)

    def drop(self, span: Span) -> None:
        """Show a span no more."""
        del self._spans[span.run][span.log_file.file]
        self._unlist(span.run)

    def accompany(self, beside: dict[str, Beside]) -> None:
        """What there is of runs besides recordings, all of it, in place of what there was."""
        before, self._beside = self._beside, beside
        for run in before.keys() | beside.keys():
            if before.get(run) != beside.get(run):
                self._listed(run)
                self._unlist(run)

    def _listed(self, run: str) -> dict[str, Span]:
        """The spans of a run, which is listed from now on."""
        if run not in self._spans:
            self._spans[run] = {}
            insort(self._order, (natural(run), run))
        return self._spans[run]

    def _unlist(self, run: str) -> None:
        """A run changed; one of which nothing is left is listed no more."""
        if not self._spans[run] and run not in self._beside:
            del self._spans[run]
            del self._order[bisect_left(self._order, (natural(run), run))]
        self._touch(run)
        if len(self._changed) > 2 * len(self._spans) + _GONE:
            self._changed = {run: at for run, at in self._changed.items() if run in self._spans}
            self._oldest = self.revision

    def skip(self, file: str, problem: Problem | None) -> None:
        """List a file that is not shown, or, with None, does so no more."""
        if self._problems.get(file) != problem:
            self.revision += 1
            self._problems_changed = self.revision
            if problem:
                self._problems[file] = problem
            else:
                del self._problems[file]

    def listing(self) -> Listing:
        """Everything now."""
        if self._listing is None or self._listing.revision != self.revision:
            runs = tuple(self._run(run) for _, run in self._order)
            self._listing = Listing(self.revision, runs, self._skipped(self._listing))
        return self._listing

    def changes(self, since: int | None) -> Changes:
        """What changed since a revision; everything, when that is None or not known any more."""
        if since is None or not self._oldest <= since <= self.revision:
            now = self.listing()
            return Changes(now.revision, None, now.runs, (), now.skipped)
        changed = list(takewhile(lambda run: self._changed[run] > since, reversed(self._changed)))
        runs = tuple(self._run(run) for run in changed if run in self._spans)
        removed = tuple(run for run in changed if run not in self._spans)
        skipped = self.listing().skipped if self._problems_changed > since else None
        return Changes(self.revision, since, runs, removed, skipped)

    def spans(self, run: str) -> list[Span]:
        """Every span of a run in its order; none, when there is no such run."""
        return [span for worker in self._run(run).workers for span in worker.spans] if run in self._spans else []

    def _touch(self, run: str) -> None:
        self.revision += 1
        self._changed.pop(run, None)
        self._changed[run] = self.revision
        self._runs.pop(run, None)

    def _run(self, run: str) -> Run:
        if run not in self._runs:
            self._runs[run] = _run(run, self._spans[run].values(), self._beside.get(run))
        return self._runs[run]

    def _skipped(self, before: Listing | None) -> tuple[Problem, ...]:
        if before and before.revision >= self._problems_changed:
            return before.skipped
        return tuple(sorted(self._problems.values(), key=lambda problem: natural(problem.file)))


def _run(run: str, spans: Iterable[Span], beside: Beside | None) -> Run:
    workers: dict[str, list[Span]] = {}
    for span in spans:
        workers.setdefault(span.place.worker, []).append(span)
    whole = [_worker(name, spans) for name, spans in workers.items()]
    whole.sort(key=lambda worker: (worker.rank < 0, worker.rank, standing(worker.id), natural(worker.id)))
    root = beside.root if beside else whole[0].spans[0].log_file.root
    return Run(run, run if run != "." else root.path.name or run, tuple(whole), beside)


def _worker(name: str, spans: list[Span]) -> Worker:
    taken: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: (natural(span.place.stamp), span.log_file.name)):
        wanted = span.place.stamp or "1"
        chosen = span.log_file.name if wanted in taken else wanted  # the same recording packed and unpacked
        taken[chosen] = replace(span, id=chosen)
    return Worker(name, next((span.rank for span in taken.values() if span.rank >= 0), -1), tuple(taken.values()))


def run_id(root: Root, below: str) -> str:
    """What a run is called; below: its root, "." for the root itself."""
    return f"{root.prefix}/{below}" if root.prefix and below != "." else root.prefix or below


def beside(items: Iterable[LogFile | LiveFolder | Problem]) -> dict[str, Beside]:
    """What a walk found of runs besides their recordings."""
    found: dict[str, Beside] = {}
    for item in items:
        if isinstance(item, LiveFolder):
            run = run_id(item.root, item.folder or ".")
            series = found[run].series if run in found else ()
            found[run] = Beside(item.root, item.modified_ns, item.path, series)
        elif isinstance(item, LogFile) and item.name.endswith(SERIES):
            run = run_id(item.root, item.folder or ".")
            known = found.get(run) or Beside(item.root, item.version.mtime_ns)
            found[run] = replace(known, series=(*known.series, item.path))
    return found


def new_span(file: LogFile) -> Span:
    """A file that nothing is known of but its place."""
    return Span("", file, place(file.folder, file.name), "waiting")


def profiles(paths: Sequence[str | Path]) -> Listing:
    """What is there now, nothing parsed; for commands that look once."""
    return listed(item for root in roots(paths) for item in walk(root))


def listed(items: Iterable[LogFile | LiveFolder | Problem]) -> Listing:
    """The profiles among them, nothing parsed."""
    arrangement = Arrangement()
    for item in items:
        if isinstance(item, Problem):
            arrangement.skip(item.file, item)
            continue
        if isinstance(item, LiveFolder):
            continue
        verdict = item.known or examine(item)
        if verdict.kind in ("profile", "growing"):
            arrangement.put(replace(new_span(item), format=verdict.format))
        elif verdict.kind == "skipped":
            arrangement.skip(item.file, Problem(item.file, verdict.error, verdict.hint))
    return arrangement.listing()
