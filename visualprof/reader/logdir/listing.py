"""What the log directories hold at one moment: runs, their workers, their spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from visualprof.errors import NotFound
from visualprof.reader.logdir.layout import Place, natural, place, standing
from visualprof.reader.logdir.scan import LogFile, Problem, Version, examine, roots, walk
from visualprof.reader.logdir.summary import Failure, Summary

State = Literal["waiting", "parsing", "ready", "growing", "failed"]


@dataclass(frozen=True)
class Span:
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
    def version(self) -> Version:
        """Of the file, as last seen."""
        return self.log_file.version

    @property
    def rank(self) -> int:
        """As the content says, or else the name; -1 when neither does."""
        known = -1 if self.summary is None else self.summary.rank
        return known if known >= 0 else self.place.rank


@dataclass(frozen=True)
class Worker:
    """One process of a run; its spans in order of time."""

    id: str
    rank: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Run:
    """What ran together; workers in order of rank, then name."""

    id: str
    name: str
    workers: tuple[Worker, ...]

    @property
    def modified_ns(self) -> int:
        """Time of the newest file."""
        return max(span.version.mtime_ns for worker in self.workers for span in worker.spans)


@dataclass(frozen=True)
class Listing:
    """Everything at one moment, in natural order. revision grows with each change."""

    revision: int
    runs: tuple[Run, ...]
    skipped: tuple[Problem, ...]

    def find(self, run: str, worker: str = "", span: str = "") -> Span:
        """A span by its ids; the first worker and the first span when they are left out.

        Raises: NotFound.
        """
        chosen = _pick(self.runs, run, "run")
        return _pick(_pick(chosen.workers, worker, f"worker of run {run!r}").spans, span, f"span of run {run!r}")


_Named = TypeVar("_Named", Run, Worker, Span)


def _pick(items: Sequence[_Named], wanted: str, what: str) -> _Named:
    for item in items:
        if wanted in ("", item.id):
            return item
    some = ", ".join(item.id for item in items[:10]) + (", ..." if len(items) > 10 else "")
    raise NotFound(f"there is no {what} called {wanted!r}", f"there are: {some}" if items else "")


def arrange(revision: int, spans: Iterable[Span], skipped: Iterable[Problem]) -> Listing:
    """Groups spans by the places of their files."""
    runs: dict[str, dict[str, list[Span]]] = {}
    for span in spans:
        prefix, below = span.log_file.root.prefix, span.place.run
        run = f"{prefix}/{below}" if prefix and below != "." else prefix or below
        runs.setdefault(run, {}).setdefault(span.place.worker, []).append(span)
    return Listing(
        revision,
        tuple(_run(run, runs[run]) for run in sorted(runs, key=natural)),
        tuple(sorted(skipped, key=lambda problem: natural(problem.file))),
    )


def _run(run: str, workers: dict[str, list[Span]]) -> Run:
    whole = [_worker(name, spans) for name, spans in workers.items()]
    whole.sort(key=lambda worker: (worker.rank < 0, worker.rank, standing(worker.id), natural(worker.id)))
    name = run if run != "." else whole[0].spans[0].log_file.root.path.name or run
    return Run(run, name, tuple(whole))


def _worker(name: str, spans: list[Span]) -> Worker:
    taken: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: (natural(span.place.stamp), span.log_file.name)):
        wanted = span.place.stamp or "1"
        chosen = span.log_file.name if wanted in taken else wanted  # the same recording packed and unpacked
        taken[chosen] = replace(span, id=chosen)
    return Worker(name, next((span.rank for span in taken.values() if span.rank >= 0), -1), tuple(taken.values()))


def new_span(file: LogFile) -> Span:
    """A file that nothing is known of but its place."""
    return Span("", file, place(file.folder, file.name), "waiting")


def profiles(paths: Sequence[str | Path]) -> Listing:
    """What is there now, nothing parsed; for commands that look once."""
    spans: list[Span] = []
    skipped: list[Problem] = []
    for root in roots(paths):
        for item in walk(root):
            if isinstance(item, Problem):
                skipped.append(item)
                continue
            verdict = examine(item)
            if verdict.kind in ("profile", "growing"):
                spans.append(replace(new_span(item), format=verdict.format))
            elif verdict.kind == "skipped":
                skipped.append(Problem(item.file, verdict.error, verdict.hint))
    return arrange(0, spans, skipped)
