"""Compute one view of a profile without a server, as a table, JSON or CSV.

Examples:
  visualprof view overview trace.json
  visualprof view operator trace.json --param group=shape --format csv
"""

from __future__ import annotations

import argparse
import atexit
import gc
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visualprof.cli import _step_range, _warnings
from visualprof.errors import BadParameter, MissingData, NotFound, VisualprofError

if TYPE_CHECKING:
    from visualprof.reader.graph import ModelGraph
    from visualprof.reader.logdir.scan import Problem
    from visualprof.reader.results.report import Report
    from visualprof.reader.run_data.run import RunData
    from visualprof.reader.trace import Trace
    from visualprof.views import RunView, Subject, View
    from visualprof.views.answers.table import Answer


MAX_SKIPPED = 20  # files that an error lists


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "view",
        metavar="VIEW",
        help=("overview, operator, kernel, ..., or all: every view that the file has data for, as one JSON object."),
    )
    parser.add_argument("path", metavar="PATH", help="A profile, or the folder of a run.")
    parser.add_argument(
        "--worker", default="", metavar="W", help="Worker to read, for a run with several (default: the first)."
    )
    parser.add_argument(
        "--span",
        default="",
        metavar="S",
        help="Recording (span) to read, for a worker with several (default: the first).",
    )
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        dest="param",
        type="tag={}".format,
        metavar="REGEX",
        help="Tags of `view scalars`; short for --param tag=REGEX.",
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="K=V",
        help="Parameter of the view, such as step=5 or group=shape; repeatable.",
    )
    _step_range.add_arguments(parser)
    add_output_arguments(parser)
    _warnings.add_arguments(parser)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `print_answer`."""
    parser.add_argument("--table", default="", metavar="NAME", help="Print only this table of an answer with several.")
    parser.add_argument(
        "--format", choices=["table", "json", "csv"], default="table", help="Output format (default: %(default)s)."
    )


def run(args: argparse.Namespace) -> int:
    """Print the view."""
    tune_for_short_process()
    from visualprof.views import all_views, view

    if args.view == "all" and (args.format != "json" or args.param or args.table):
        raise BadParameter("`view all` takes no parameters and answers JSON", "add --format json")
    if args.view == "all":
        workers = files_of(args.path, args.step_range)
        views = {v.name: (v, v.parse({})) for v in all_views() if v.subject in ("trace", "run")}
        answers = _answers(views, workers, file_of(workers, args.worker, args.span, args.path))
        warnings = _warnings_of(args.path, workers, None)
        write_json(answers, warnings)
        _warnings.print_warnings(warnings, args.strict)
        return 0
    chosen = view(args.view)
    params = chosen.parse(parameters(args.param))
    if chosen.subject not in ("trace", "run"):
        subject = subject_of(chosen.subject, args.path)
        answer = chosen.answer(subject, params)
        warnings = list(getattr(answer, "warnings", getattr(subject, "warnings", ())))
        print_answer(answer, args, warnings)
        _warnings.print_warnings(warnings, args.strict)
        return 0
    workers = files_of(args.path, args.step_range)
    file = file_of(workers, args.worker, args.span, args.path)
    answer = _answer_of_run(chosen, params, workers, file)
    warnings = _warnings_of(args.path, workers, file if chosen.subject == "trace" else None)
    if answer is None:
        _warnings.print_warnings(warnings, strict=False)
        raise _no_data(file, args.view)
    print_answer(answer, args, warnings)
    _warnings.print_warnings(warnings, args.strict)
    return 0


def compute_view(
    name: str, texts: Mapping[str, str], path: str, worker: str = "", *, step_range: str = ""
) -> Answer | None:
    """Return the answer of a view of a profile, a run or a model; None if there is no data for it.

    Args:
        name: Name of the view.
        texts: Its parameters.
        path: The file or folder.
        worker: Worker to read, "" for the first.
        step_range: Pattern of the names of ranges to use as steps.
    """
    from visualprof.views import view

    chosen = view(name)
    params = chosen.parse(dict(texts))
    if chosen.subject not in ("trace", "run"):
        return chosen.answer(subject_of(chosen.subject, path), params)
    workers = files_of(path, step_range)
    return _answer_of_run(chosen, params, workers, file_of(workers, worker, "", path))


def _answer_of_run(chosen: View, params: Any, workers: list[tuple[str, list[FileOf]]], file: FileOf) -> Answer | None:
    """Return the answer of a view of a trace or a run; None if there is no data for it."""
    if chosen.subject == "trace":
        return joined_answer(chosen, params, file, workers)
    return _answers({chosen.name: (chosen, params)}, workers, file).get(chosen.name)


def _no_data(file: FileOf, view: str) -> MissingData:
    """Return the error for a file without data for a view, with the views that it has data for."""
    from visualprof.views import all_views

    trace = _open(file)
    if len(trace.events) == 0:
        return _without_events(file)
    names = ", ".join(v.name for v in all_views() if v.subject == "trace" and v.needs(trace)) or "no view"
    return MissingData(f"{file.path.name} has no data for the view {view!r}", f"it has data for: {names}")


def without_work(file: FileOf, purpose: str) -> MissingData:
    """Return the error for a file without work, which cannot be compared or reported (`purpose`)."""
    if len(_open(file).events) == 0:
        return _without_events(file)
    return MissingData(f"{file.path.name} has nothing that can be {purpose}", "it records no work")


def _without_events(file: FileOf) -> MissingData:
    return MissingData(f"{file.path.name} has no events", "record it again, and check that the profiler stopped")


def _warnings_of(path: str, workers: list[tuple[str, list[FileOf]]], file: FileOf | None) -> list[str]:
    """Return the warnings about one file, or the first span of every worker, and a folder's skipped files."""
    files = [file] if file else [spans[0] for _, spans in workers if spans]
    return _warnings.warnings_of(list({opened.path: None for opened in files}), skipped_files(path))


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


def answer_of(chosen: View, params: Any, file: FileOf) -> Answer | None:
    """Return the answer for one file, computed or cached by an earlier process, or None without data for the view."""
    from visualprof.reader.cache import Cache
    from visualprof.reader.graph_capture.files import recording_fingerprint as fingerprint_of
    from visualprof.views.answers.disk_cache import CachedAnswer

    fingerprint = fingerprint_of(file.path)
    version = tuple(filter(None, (fingerprint, file.step_range and f"step {file.step_range}", file.rank)))
    place = CachedAnswer(Cache.default(), chosen, params, version)
    answer = place.load()
    if answer is None and chosen.needs(trace := _open(file)):
        unchanged = fingerprint_of(file.path) == fingerprint
        answer = place.compute_and_store(lambda: chosen.answer(trace, params), store=unchanged)
    return answer


def joined_answer(chosen: View, params: Any, file: FileOf, workers: list[tuple[str, list[FileOf]]]) -> Answer | None:
    """Return the answer for one file, completed by facts about the other ranks, or None without data for the view."""
    answer = answer_of(chosen, params, file)
    if answer is None or chosen.join is None or len(workers) < 2:
        return answer
    from visualprof.cli._parts import parts
    from visualprof.views import run_view

    ranks_view = run_view(chosen.run_view)
    if file.step_range or any(span.rank for _, spans in workers for span in spans):
        ranks = _parts_of(ranks_view, "", workers, file, None)
    else:
        files = [spans[0].path for _, spans in workers]
        ranks = parts(((ranks_view.name, ""),), files, lambda _: _open(file))[ranks_view.name]
    return chosen.join(answer, ranks_view.reduce(ranks), file.name) if ranks_view.reduce else answer


def framework_of(file: FileOf) -> str:
    """Return the framework of a file."""
    return _open(file).meta.framework


def _answers(
    views: dict[str, tuple[View, Any]], workers: list[tuple[str, list[FileOf]]], file: FileOf
) -> dict[str, Answer]:
    """Return the answers of the views that have data, for all ranks or for one."""
    from visualprof.cli._parts import parts
    from visualprof.views import RunView

    trace = _open(file) if any(entry.subject == "trace" for entry, _ in views.values()) else None
    alone = trace if len(workers) == 1 else None
    run_views = {name: chosen for name, (chosen, _) in views.items() if isinstance(chosen, RunView)}
    asked = tuple(
        (name, chosen.part_key_for(views[name][1]))
        for name, chosen in run_views.items()
        if not alone or chosen.needs(alone)
    )
    files = [spans[0].path for _, spans in workers] if len(workers) > 1 else [file.path]
    if file.step_range or any(span.rank for _, spans in workers for span in spans):
        values = {name: _parts_of(run_views[name], key, workers, file, trace) for name, key in asked}
    else:
        values = parts(asked, files, lambda _: trace or _open(file)) if asked else {}
    answers: dict[str, Answer] = {}
    for name, (chosen, params) in views.items():
        if isinstance(chosen, RunView):
            ranks = values.get(name, [])
            if chosen.is_in_run((worker for worker, _ in ranks), any(chosen.has_data(part) for _, part in ranks)):
                answers[name] = chosen.compute_from_parts(ranks, params)
        elif trace and chosen.subject == "trace" and chosen.needs(trace):
            answers[name] = chosen.answer(trace, params)
    for name, (chosen, _) in views.items():
        source, ranks = run_views.get(chosen.run_view), values.get(chosen.run_view, [])
        if chosen.join and name in answers and source and source.reduce and len(ranks) > 1:
            answers[name] = chosen.join(answers[name], source.reduce(ranks), file.name)
    return answers


def _parts_of(
    chosen: RunView, key: str, workers: list[tuple[str, list[FileOf]]], file: FileOf, trace: Trace | None
) -> list[tuple[str, Any]]:
    """Return the parts of all workers, uncached: with the chosen ranges as steps, or of several ranks of one file."""
    files = [spans[0] for _, spans in workers] if len(workers) > 1 else [file]
    return [
        (
            file_of_worker.name,
            chosen.map_worker(trace if trace and file_of_worker == file else _open(file_of_worker), key),
        )
        for file_of_worker in files
    ]


def tune_for_short_process() -> None:
    """Tune a process that ends soon, where garbage collection frees almost nothing.

    Saves 0.1 of 0.3 s for a small file.
    """
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)  # the process exits faster
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no view multiplies matrices, and idle threads spin


def model_at(path: str) -> ModelGraph:
    """Return the model in a file."""
    from visualprof.reader.child import run_in_child
    from visualprof.reader.models import read_model

    return run_in_child(read_model, path)


def subject_of(kind: Subject, path: str) -> object:
    """Return the subject of a view without a trace: a model, the run data or the reports below a folder."""
    if kind == "model":
        return model_at(path)
    if kind == "data":
        return run_data_below(path)
    reports = reports_below(path)
    if not reports:
        raise NotFound(f"there is no report of a measured model in {path}", "jobs write them: `visualprof submit`")
    return reports


def run_data_below(path: str) -> RunData:
    """Return the run data in a file, or in a folder and its subfolders, which are lines.

    Raises:
        NotFound: The folder has no run data.
    """
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.run_data.folders import DataFile, is_data_name
    from visualprof.reader.run_data.run import RunData

    items = walk(roots([path])[0], follow_outside=True)
    files = sorted(
        DataFile(item.folder, item.path) for item in items if isinstance(item, LogFile) and is_data_name(item.name)
    )
    if not files:
        raise NotFound(f"there is no event file or VisualDL log in {path}", "log scalars into this folder")
    data = RunData()
    data.update(files)
    return data


def reports_below(path: str) -> list[Report]:
    """Return the reports of measured models in a folder and its subfolders."""
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.results.report import RESULT_FILES, find_result_folders, read_report

    items = walk(roots([path])[0], follow_outside=True)
    files = [file for file in items if isinstance(file, LogFile) and file.name in RESULT_FILES]
    return [report for folder, parts in find_result_folders(files).items() if (report := read_report(folder, parts))]


def write_json(body: object, warnings: Sequence[str] | None = None) -> None:
    """Print an answer as JSON, with a field `warnings` unless it has one or `warnings` is None."""
    from visualprof.views.answers.encoding import encode

    encoded = memoryview(encode(body))
    if warnings is not None and not hasattr(body, "warnings"):
        rest = encoded[1:]
        sys.stdout.buffer.write(b'{"warnings":' + encode(list(warnings)) + (b"" if bytes(rest[:1]) == b"}" else b","))
        encoded = rest
    sys.stdout.buffer.write(encoded)
    sys.stdout.buffer.write(b"\n")  # without copying 60 MB
    sys.stdout.buffer.flush()


def parameters(texts: list[str]) -> dict[str, str]:
    """Parse the parameters of `--param K=V`.

    Raises:
        BadParameter: A parameter is not of this form, or appears twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadParameter(f"--param {text!r} is not of the form name=value", "for example: --param group=shape")
        if name in pairs:
            raise BadParameter(
                f"--param {name} appears twice", f"separate values by commas: {name}={pairs[name]},{value}"
            )
        pairs[name] = value
    return pairs


class FileOf(NamedTuple):
    """File of a worker.

    Attributes:
        id: Id of its span.
        path: Path of the file.
        step_range: Pattern of the ranges that are steps, "" for the file's own steps.
        rank: Label of the rank in a file with several, "" for a file with one.
    """

    id: str
    path: Path
    step_range: str = ""
    rank: str = ""

    @property
    def name(self) -> str:
        """Name of the worker: that of the file, with the label of the rank."""
        return f"{self.path.name} [{self.rank}]" if self.rank else self.path.name


def files_of(path: str, step_range: str = "") -> list[tuple[str, list[FileOf]]]:
    """Return the workers of a run with their files. A remote run is downloaded first."""
    from visualprof.reader.source import is_address

    whole = Path(path)
    if not whole.is_dir() and not is_address(path):
        return _ranks_of(whole.name, FileOf("", whole, step_range))
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
    workers = [(w.id, [FileOf(s.id, Path(s.log_file.path), step_range) for s in w.spans]) for w in run.workers]
    if len(workers) == len(workers[0][1]) == 1:
        return _ranks_of(workers[0][0], workers[0][1][0])
    return workers


def _ranks_of(worker: str, file: FileOf) -> list[tuple[str, list[FileOf]]]:
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
        labels = list(rank_labels(_open_file(path, fingerprint)))
    except VisualprofError:  # reported by the command that needs the file
        return []
    cache.store_bytes(key, json.dumps(labels).encode())
    return labels


def file_of(workers: list[tuple[str, list[FileOf]]], worker: str, span: str, path: str) -> FileOf:
    """Return the file of a worker (default: the first).

    Raises:
        NotFound: There is no such worker or span.
    """
    for name, spans in workers:
        for file in spans:
            # Also the label of a rank, and the name of the file for the first rank in it
            names = ("", name, file.rank or name, name.removesuffix(f" [{file.rank}]"))
            if worker in names and span in ("", file.id):
                return file
    names = ", ".join(name for name, _ in workers[:10])
    raise NotFound(f"there is no worker {worker!r} with a span {span!r} in {path}", f"workers: {names}")


def open_worker(file: FileOf) -> Trace:
    """Return the trace of a worker."""
    return _open(file)


def _open(file: FileOf) -> Trace:
    from visualprof.reader.graph_capture.files import recording_fingerprint
    from visualprof.reader.trace.rank_split import select_rank
    from visualprof.reader.trace.step_ranges import with_step_range

    trace = _open_file(file.path, recording_fingerprint(file.path))
    return with_step_range(select_rank(trace, file.rank) if file.rank else trace, file.step_range)


@lru_cache(maxsize=2)
def _open_file(path: Path, fingerprint: str) -> Trace:
    """Return the trace of a file. The last ones stay open, because several ranks may be in one file."""
    from visualprof.reader.cache import open_trace

    return open_trace(path, _Meter() if sys.stderr.isatty() else None, wait=False)


def print_answer(answer: Answer, args: argparse.Namespace, warnings: Sequence[str] | None = None) -> None:
    """Print an answer, or one of its tables, as the options say; JSON gets the warnings as a field."""
    from visualprof.views.answers.table import named_table

    if args.format == "json":
        write_json(named_table(answer, args.table) if args.table else answer, warnings)
    elif args.format == "csv":
        sys.stdout.buffer.write(named_table(answer, args.table).to_csv().encode("utf-8", "replace"))
    else:
        from visualprof.cli._terminal import render

        text = render(answer, args.table, width())
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
    sys.stdout.buffer.flush()


def width() -> int:
    """Return the number of columns of the terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return 160


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
