"""Compute one view of a profile without a server, as a table, JSON or CSV.

Examples:
  visualprof view overview trace.json
  visualprof view operator trace.json --param group=shape --format csv
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from visualprof.cli import _recording, _step_range, _warnings
from visualprof.cli._subjects import subject_of
from visualprof.cli._worker_files import WorkerFile, file_of, files_of, open_worker, skipped_files
from visualprof.errors import BadParameter, MissingData, VisualprofError

if TYPE_CHECKING:
    from visualprof.reader.trace import Trace
    from visualprof.views import RunView, View
    from visualprof.views.answers.table import Answer

MAX_OTHER_WORKERS = 8  # that an error looks at


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
    _recording.add_arguments(parser)
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
        answers = _answers(views, workers, file_of(workers, args.worker, args.span, args.path, args.recording))
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
    file = file_of(workers, args.worker, args.span, args.path, args.recording)
    answer = _answer_of_run(chosen, params, workers, file)
    warnings = _warnings_of(args.path, workers, file if chosen.subject == "trace" else None)
    if answer is None:
        _warnings.print_warnings(warnings, strict=False)
        raise _no_data(file, args.view, workers)
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


def _answer_of_run(
    chosen: View, params: Any, workers: list[tuple[str, list[WorkerFile]]], file: WorkerFile
) -> Answer | None:
    """Return the answer of a view of a trace or a run; None if there is no data for it."""
    if chosen.subject == "trace":
        return joined_answer(chosen, params, file, workers)
    return _answers({chosen.name: (chosen, params)}, workers, file).get(chosen.name)


def _no_data(file: WorkerFile, view: str, workers: list[tuple[str, list[WorkerFile]]]) -> MissingData:
    """Return the error for a file without data for a view: with another worker that has data, or with other views."""
    from visualprof.views import all_views

    trace = open_worker(file)
    if len(trace.events) == 0:
        return _without_events(file)
    views = {v.name: v for v in all_views() if v.subject == "trace"}
    others = [(name, spans[0]) for name, spans in workers if spans and file not in spans][:MAX_OTHER_WORKERS]
    better = next((name for name, other in others if view in views and _has_data(other, views[view])), "")
    names = ", ".join(name for name, v in views.items() if v.needs(trace)) or "no view"
    hint = f"the worker {better} has it: add --worker {shlex.quote(better)}" if better else f"it has data for: {names}"
    return MissingData(f"{file.path.name} has no data for the view {view!r}", hint)


def _has_data(file: WorkerFile, view: View) -> bool:
    """Return whether a file can be read and has data for a view."""
    try:
        return view.needs(open_worker(file))
    except VisualprofError:
        return False


def without_work(file: WorkerFile, purpose: str) -> MissingData:
    """Return the error for a file without work, which cannot be compared or reported (`purpose`)."""
    if len(open_worker(file).events) == 0:
        return _without_events(file)
    return MissingData(f"{file.path.name} has nothing that can be {purpose}", "it records no work")


def _without_events(file: WorkerFile) -> MissingData:
    return MissingData(f"{file.path.name} has no events", "record it again, and check that the profiler stopped")


def _warnings_of(path: str, workers: list[tuple[str, list[WorkerFile]]], file: WorkerFile | None) -> list[str]:
    """Return the warnings about one file, or the first span of every worker, and a folder's skipped files."""
    if file and file.recordings:
        return [*skipped_files(path), *open_worker(file).meta.warnings]
    files = [file] if file else [spans[0] for _, spans in workers if spans]
    return _warnings.warnings_of(list({opened.path: None for opened in files}), skipped_files(path))


def answer_of(chosen: View, params: Any, file: WorkerFile) -> Answer | None:
    """Return the answer for one file, computed or cached by an earlier process, or None without data for the view."""
    from visualprof.reader.cache import Cache
    from visualprof.reader.graph_capture.files import recording_fingerprint as fingerprint_of
    from visualprof.views.answers.disk_cache import CachedAnswer

    fingerprint = fingerprint_of(file.path)
    joined = [f"recording {fingerprint_of(recording)}" for recording in file.recordings]
    version = tuple(filter(None, (fingerprint, file.step_range and f"step {file.step_range}", file.rank, *joined)))
    place = CachedAnswer(Cache.default(), chosen, params, version)
    answer = place.load()
    if answer is None and chosen.needs(trace := open_worker(file)):
        unchanged = fingerprint_of(file.path) == fingerprint
        answer = place.compute_and_store(lambda: chosen.answer(trace, params), store=unchanged)
    return answer


def joined_answer(
    chosen: View, params: Any, file: WorkerFile, workers: list[tuple[str, list[WorkerFile]]]
) -> Answer | None:
    """Return the answer for one file, completed by facts about the other ranks, or None without data for the view."""
    answer = answer_of(chosen, params, file)
    if answer is None or chosen.join is None or len(workers) < 2:
        return answer
    from visualprof.views import run_view

    ranks_view = run_view(chosen.run_view)
    if ranks_view.reduce is None:
        return answer
    ranks = _load_parts(ranks_view, workers, file)
    replay_view = run_view(chosen.replay_view)
    return chosen.join(answer, ranks_view.reduce(ranks), file.name, lambda: _load_parts(replay_view, workers, file))


def _load_parts(
    chosen: RunView, workers: list[tuple[str, list[WorkerFile]]], file: WorkerFile
) -> list[tuple[str, Any]]:
    """Return the parts of all workers, from the cache if possible."""
    from visualprof.cli._parts import parts

    if file.step_range or any(span.rank for _, spans in workers for span in spans):
        return _parts_of(chosen, "", workers, file, None)
    files = [spans[0].path for _, spans in workers]
    return parts(((chosen.name, ""),), files, lambda _: open_worker(file))[chosen.name]


def framework_of(file: WorkerFile) -> str:
    """Return the framework of a file."""
    return open_worker(file).meta.framework


def _answers(
    views: dict[str, tuple[View, Any]], workers: list[tuple[str, list[WorkerFile]]], file: WorkerFile
) -> dict[str, Answer]:
    """Return the answers of the views that have data, for all ranks or for one."""
    from visualprof.cli._parts import parts
    from visualprof.views import RunView, run_view

    is_alone = len(workers) == 1
    trace = open_worker(file) if is_alone or any(entry.subject == "trace" for entry, _ in views.values()) else None
    alone = trace if is_alone else None
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
        values = parts(asked, files, lambda _: trace or open_worker(file)) if asked else {}
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
            replay_view = run_view(chosen.replay_view)
            answers[name] = chosen.join(
                answers[name], source.reduce(ranks), file.name, partial(_load_parts, replay_view, workers, file)
            )
    return answers


def _parts_of(
    chosen: RunView, key: str, workers: list[tuple[str, list[WorkerFile]]], file: WorkerFile, trace: Trace | None
) -> list[tuple[str, Any]]:
    """Return the parts of all workers, uncached: with the chosen ranges as steps, or of several ranks of one file."""
    files = [spans[0] for _, spans in workers] if len(workers) > 1 else [file]
    return [
        (
            file_of_worker.name,
            chosen.map_worker(trace if trace and file_of_worker == file else open_worker(file_of_worker), key),
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


def print_answer(answer: Answer, args: argparse.Namespace, warnings: Sequence[str] | None = None) -> None:
    """Print an answer, or a single table, as the options say; JSON gets the warnings as a field."""
    from visualprof.views.answers.table import named_table

    if args.format == "json":
        write_json(named_table(answer, args.table) if args.table else answer, warnings)
    elif args.format == "csv":
        sys.stdout.buffer.write(named_table(answer, args.table).to_csv().encode("utf-8", "replace"))
    else:
        from visualprof.cli._terminal import render

        text = render(answer, args.table, width())
        text += _plan_remark(answer) if getattr(args, "view", "") == "plan" and not args.table else ""
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
    sys.stdout.buffer.flush()


def _plan_remark(answer: Answer) -> str:
    """Return the web UI's sentence about a plan without changes; "" for other plans."""
    from visualprof.mcp.definitions import texts
    from visualprof.views.plan import PlanAnswer

    if not isinstance(answer, PlanAnswer) or len(answer.rungs):
        return ""
    return f"\n{texts()['plan']['no_replay' if answer.obstacle else 'none']}\n"


def width() -> int:
    """Return the number of columns of the terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return 160
