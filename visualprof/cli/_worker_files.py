"""Find the files of a run's workers, and open them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visualprof.cli._recording import find_named, join_named
from visualprof.errors import BadParameter, NotFound, VisualprofError

if TYPE_CHECKING:
    from visualprof.reader.logdir.scan import Problem
    from visualprof.reader.trace import Trace


MAX_SKIPPED = 20  # files that an error lists


def skipped_files(path: str) -> Iterator[str]:
    """Yield the files of a folder that are not read, with the reason."""
    from visualprof.reader.source import is_address

    if Path(path).is_dir() and not is_address(path):
        from visualprof.reader.logdir.listing import scan_profiles

        for problem in scan_profiles([Path(path)]).skipped:
            yield f"{problem.file} was skipped: {skip_reason(problem)}"


def skip_reason(problem: Problem) -> str:
    """Return why a file is skipped, without its name, which the error starts with."""
    return problem.error.removeprefix(f"{Path(problem.file).name}: ")


class WorkerFile(NamedTuple):
    """File of a worker.

    Attributes:
        id: Id of its span.
        path: Path of the file.
        step_range: Pattern of the ranges that are steps, "" for the file's own steps.
        rank: Label of the rank in a file with several, "" for a file with one.
        recordings: Recordings with which a memory snapshot is joined, none to choose by the names of the files.
    """

    id: str
    path: Path
    step_range: str = ""
    rank: str = ""
    recordings: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """Name of the worker: that of the file, with the label of the rank."""
        return f"{self.path.name} [{self.rank}]" if self.rank else self.path.name


def files_of(path: str, step_range: str = "") -> list[tuple[str, list[WorkerFile]]]:
    """Return the workers of a run with their files. A remote run is downloaded first."""
    from visualprof.reader.source import is_address

    whole = Path(path)
    if not whole.is_dir() and not is_address(path):
        return _ranks_of(whole.name, WorkerFile("", whole, step_range))
    from visualprof.reader.cache import Cache
    from visualprof.reader.logdir.listing import list_profiles, scan_profiles
    from visualprof.reader.logdir.remote_folder import RemoteFolder

    far = RemoteFolder(path, Cache.default().folder) if is_address(path) else None
    listing = list_profiles(far.files() or ()) if far else scan_profiles([whole])
    if not listing.runs:
        why = "".join(f"; {problem.file}: {skip_reason(problem)}" for problem in listing.skipped[:MAX_SKIPPED])
        rest = len(listing.skipped) - MAX_SKIPPED
        more = f"; {rest:,} more files were skipped" if rest > 0 else ""
        hints = {problem.hint for problem in listing.skipped if problem.hint}
        hint = hints.pop() if len(hints) == 1 else "name a file, or another folder"
        raise NotFound(f"there is no profile in {path}{why}{more}", hint)
    if len(listing.runs) > 1:
        some = ", ".join(run.workers[0].spans[0].log_file.file for run in listing.runs[:5])
        raise BadParameter(
            f"{path} holds {len(listing.runs)} runs", f"name a file or a folder of it, for example {some}"
        )
    run = next(iter(listing.runs))
    if far:
        far.copy_all(span.log_file.path for worker in run.workers for span in worker.spans)
    workers = [(w.id, [WorkerFile(s.id, Path(s.log_file.path), step_range) for s in w.spans]) for w in run.workers]
    if len(workers) == len(workers[0][1]) == 1:
        return _ranks_of(workers[0][0], workers[0][1][0])
    return workers


def _ranks_of(worker: str, file: WorkerFile) -> list[tuple[str, list[WorkerFile]]]:
    """Return the workers of a run with one file: one per rank that the file records."""
    ranks = [(f"{worker} [{label}]", [file._replace(rank=label)]) for label in _rank_labels(file.path)]
    return ranks or [(worker, [file])]


def _rank_labels(path: Path) -> list[str]:
    """Return the labels of the ranks that a file records, none for one rank or an unreadable file."""
    from visualprof.reader.cache import Cache
    from visualprof.reader.graph_capture.files import recording_fingerprint
    from visualprof.reader.trace.rank_split import rank_labels
    from visualprof.views.answers.disk_cache import cache_key

    try:
        fingerprint = recording_fingerprint(path)
        cache, key = Cache.default(), cache_key("ranks", fingerprint)
        if data := cache.load_bytes(key):
            return json.loads(data)
        labels = list(rank_labels(open_file(path, fingerprint)))
    except VisualprofError:  # reported by the command that needs the file
        return []
    cache.store_bytes(key, json.dumps(labels).encode())
    return labels


def file_of(
    workers: list[tuple[str, list[WorkerFile]]], worker: str, span: str, path: str, recording: str = ""
) -> WorkerFile:
    """Return the file of a worker (default: the first).

    Args:
        workers: The workers of a run.
        worker: Name of the worker, "" for the first.
        span: Id of the span, "" for the first.
        path: The run, for errors.
        recording: Recording with which a memory snapshot is joined, "" to choose by the names of the files.

    Raises:
        NotFound: There is no such worker, span or recording.
    """
    others: list[str] = []
    for name, spans in workers:
        for file in spans:
            # Also the label of a rank, and the name of the file for the first rank in it
            names = ("", name, file.rank or name, name.removesuffix(f" [{file.rank}]"))
            if worker in names and span in ("", file.id):
                return file._replace(recordings=find_named(file.path, recording)) if recording else file
            if worker in names and span:
                others.append(file.id)
    if others:
        hint = f"spans: {', '.join(others[:10])}" if any(others) else "it has one recording: leave out --span"
        raise NotFound(f"there is no span {span!r} of the worker {worker or workers[0][0]!r} in {path}", hint)
    names = ", ".join(name for name, _ in workers[:10])
    raise NotFound(f"there is no worker {worker!r} with a span {span!r} in {path}", f"workers: {names}")


def open_worker(file: WorkerFile) -> Trace:
    """Return the trace of a worker."""
    from visualprof.reader.graph_capture.files import recording_fingerprint
    from visualprof.reader.trace.rank_split import select_rank
    from visualprof.reader.trace.step_ranges import with_step_range

    trace = open_file(file.path, recording_fingerprint(file.path))
    if file.recordings:
        opened = ((path.name, open_file(path, recording_fingerprint(path))) for path in file.recordings)
        trace = join_named(trace, opened)
    return with_step_range(select_rank(trace, file.rank) if file.rank else trace, file.step_range)


@lru_cache(maxsize=2)
def open_file(path: Path, fingerprint: str) -> Trace:
    """Return the trace of a file. The last ones stay open, because several ranks may be in one file."""
    from visualprof.reader.allocator import keep_freed_memory
    from visualprof.reader.cache import open_trace

    meter = _Meter() if sys.stderr.isatty() else None

    def report(fraction: float) -> None:
        if meter:
            meter(fraction)
        if fraction >= 1.0:  # not before, because columns that grow while a file is scanned would need more memory
            keep_freed_memory()

    trace = open_trace(path, report, wait=False)
    keep_freed_memory()  # also if the trace was cached
    return trace


class _Meter:
    """Progress display for large files on a terminal."""

    def __init__(self) -> None:
        self._shown = -1

    def __call__(self, fraction: float) -> None:
        percent = int(fraction * 100)
        if percent != self._shown and percent % 5 == 0:
            self._shown = percent
            end = "\r" if percent < 100 else "\r\x1b[K"
            print(f"reading {percent:3} %", end=end, file=sys.stderr, flush=True)
