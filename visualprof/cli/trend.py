"""Follow runs of one name over time: where a metric changed, and by how much. Needs no server.

Example:
  visualprof trend runs/ --metric step.total --series 'nightly/*'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.cli._subjects import reports_below
from visualprof.cli.view import add_output_arguments, print_answer
from visualprof.errors import MissingData, VisualprofError

if TYPE_CHECKING:
    from visualprof.views.trend.figures import Figures
    from visualprof.views.trend.series import Measured

_FEW = 3  # up to this many files, starting processes costs more than it saves


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("logdir", metavar="LOGDIR", help="A folder with runs, or with reports of measured models.")
    parser.add_argument(
        "--metric",
        default="",
        metavar="NAME",
        help=(
            "Metric to follow: step.total, step.communication, memory.peak, evaluation.p99, ... (default: "
            "the first one available)."
        ),
    )
    parser.add_argument(
        "--series",
        default="*",
        metavar="PATTERN",
        help="Only runs whose names match PATTERN, such as 'nightly/*' (default: all).",
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the series, regressions first, and their measurements."""
    from visualprof.views.trend.series import trend

    measured = [row for row in _measured(args.logdir) if fnmatchcase(row.series, args.series)]
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


def _measured(logdir: str) -> Iterator[Measured]:
    """Yield the recordings and measurements below a folder."""
    from visualprof.reader.logdir.listing import scan_profiles
    from visualprof.views.trend.series import followed_recordings, measure_recording, measure_report

    recordings = followed_recordings(scan_profiles([logdir]).runs)
    metrics = _figures_of([Path(span.log_file.path) for _, span in recordings])
    for (run, span), figures in zip(recordings, metrics, strict=True):
        if isinstance(figures, str):
            print(f"visualprof: left out: {figures}", file=sys.stderr)
        else:
            yield measure_recording(run, span, figures)
    for report in reports_below(logdir):
        yield from measure_report(report)


def _figures_of(paths: list[Path]) -> list[Figures | str]:
    """Return the metrics of each file, or why the file cannot be read."""
    if len(paths) <= _FEW:
        return [_figures(path) for path in paths]
    from visualprof.reader.processors import share_processors, usable_processors

    among = min(usable_processors(), len(paths), 8)
    with ProcessPoolExecutor(among, get_context("spawn"), share_processors, (among,)) as pool:
        return list(pool.map(_figures, paths))


def _figures(path: Path) -> Figures | str:
    from visualprof.reader.cache import Cache, open_trace
    from visualprof.reader.graph_capture.files import recording_fingerprint as fingerprint_of
    from visualprof.views.answers.disk_cache import CachedAnswer
    from visualprof.views.trend.figures import VIEW, Figures

    try:
        params = VIEW.parse({})
        place = CachedAnswer(Cache.default(), VIEW, params, (fingerprint_of(path),))
        answer = place.load_or_compute(lambda: VIEW.compute(open_trace(path), params))
        assert isinstance(answer, Figures)
        return answer
    except VisualprofError as error:
        return str(error)
