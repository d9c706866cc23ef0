"""Follows runs of one name over time: where a figure of theirs changed, and by how much; without a server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visualprof.cli.view import add_output_arguments, print_answer
from visualprof.errors import MissingData, VisualprofError

if TYPE_CHECKING:
    from visualprof.views.trend.figures import Figures
    from visualprof.views.trend.series import Measured

_FEW = 3  # files for which no process is worth its start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("logdir", metavar="LOGDIR", help="a folder with runs, or with reports of measured models")
    parser.add_argument(
        "--metric",
        default="",
        metavar="NAME",
        help="step.total, step.communication, memory.peak, evaluation.p99, ... (default: the first that there is)",
    )
    parser.add_argument("--series", default="*", metavar="PATTERN", help="only runs of such names, e.g. 'nightly/*'")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the series, those that became worse first, and their measurements."""
    from visualprof.views.trend.series import trend

    measured = [one for one in _measured(args.logdir) if fnmatchcase(one.series, args.series)]
    answer = trend(measured, args.metric)
    if not len(answer.series):
        raise MissingData(
            f"nothing in {args.logdir} was measured twice", "runs belong together by their names: nightly/2026-11-22"
        )
    if args.format != "json":
        args.table = args.table or "series"
    if args.format == "table":
        print(f"{answer.metric} (there are: {', '.join(answer.metrics)})\n")
    print_answer(answer, args)
    return 0


class _File(NamedTuple):
    run: str
    name: str
    worker: str
    span: str
    path: str
    mtime_ns: int


def _measured(logdir: str) -> Iterator[Measured]:
    """What was recorded and measured below a folder; of several ranks the first."""
    from visualprof.reader.logdir.listing import profiles
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.results.report import PARTS, folders, read_report
    from visualprof.views.trend.series import measured_in, measured_of

    files = [
        _File(run.id, run.name, run.workers[0].id, span.id, str(span.log_file.path), span.version.mtime_ns)
        for run in profiles([logdir]).runs
        for span in run.workers[0].spans
    ]
    for file, figures in zip(files, _figures_of([Path(file.path) for file in files]), strict=True):
        if isinstance(figures, str):
            print(f"visualprof: left out: {figures}", file=sys.stderr)
        else:
            yield measured_in(file.run, file.name, file.mtime_ns, figures, file.worker, file.span)
    parts = [file for file in walk(roots([logdir])[0]) if isinstance(file, LogFile) and file.name in PARTS]
    for folder, found in folders(parts).items():
        report = read_report(folder, found)
        yield from measured_of(report) if report else ()


def _figures_of(paths: list[Path]) -> list[Figures | str]:
    """Of each file, or why it cannot be read."""
    if len(paths) <= _FEW:
        return [_figures(path) for path in paths]
    from visualprof.reader.processors import share, usable

    among = min(usable(), len(paths), 8)
    with ProcessPoolExecutor(among, get_context("spawn"), share, (among,)) as pool:
        return list(pool.map(_figures, paths))


def _figures(path: Path) -> Figures | str:
    from visualprof.reader.cache import Cache, open_trace
    from visualprof.reader.source import Source
    from visualprof.views.answers.kept import KeptAnswer
    from visualprof.views.trend.figures import VIEW, Figures

    try:
        params = VIEW.parse({})
        place = KeptAnswer(Cache.default(), VIEW, params, (Source(path).fingerprint(),))
        answer = place.load()
        if answer is None:
            trace = open_trace(path)
            answer = place.worked_out(lambda: VIEW.compute(trace, params))
        assert isinstance(answer, Figures)
        return answer
    except VisualprofError as error:
        return str(error)
