"""Computes one view of a profile, without a server: a table to read, or JSON or CSV for other tools."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter, MissingData, NotFound

if TYPE_CHECKING:
    from visualprof.views.table import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("view", metavar="VIEW", help="overview, operator, kernel, runtime, ... or all: every one that the file has data for, as one JSON object")
    parser.add_argument("path", metavar="PATH", help="a profile, or the folder of a run")
    parser.add_argument("--worker", default="", metavar="W", help="of a folder with several (default: the first)")
    parser.add_argument("--span", default="", metavar="S", help="of a worker with several (default: the first)")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="K=V",
        help="a parameter of the view, e.g. step=5 or group=shape",
    )
    parser.add_argument("--table", default="", metavar="NAME", help="only this table of a view that has several")
    parser.add_argument("--format", choices=["table", "json", "csv"], default="table", help="of the output (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Prints the view."""
    from visualprof.views import all_views, view

    if args.view == "all" and (args.format != "json" or args.param or args.table):
        raise BadParameter("`view all` takes no parameters and answers JSON", "add --format json")
    chosen = all_views() if args.view == "all" else (view(args.view),)
    params = [each.parse(_params(args.param)) for each in chosen]
    path = _file(args.path, args.worker, args.span)

    from visualprof.reader.cache import open_trace

    trace = open_trace(path, _Meter() if sys.stderr.isatty() else None, wait=False)
    if args.view == "all":
        _write_json({v.name: v.compute(trace, p).to_json() for v, p in zip(chosen, params, strict=True) if v.needs(trace)})
        return 0
    if not chosen[0].needs(trace):
        raise MissingData(f"{path.name} has no data for the view {args.view!r}", "see `visualprof view overview`")
    _print(chosen[0].compute(trace, params[0]), args.format, args.table)
    return 0


def _write_json(body: object) -> None:
    from visualprof.server.encoding import encode

    sys.stdout.buffer.write(encode(body) + b"\n")
    sys.stdout.buffer.flush()


def _params(given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadParameter(f"--param {text!r} is not of the form name=value", "for example: --param group=shape")
        pairs[name] = value
    return pairs


def _file(path: str, worker: str, span: str) -> Path:
    """The file that is meant; a folder may hold one run only."""
    whole = Path(path)
    if not whole.is_dir():
        return whole
    from visualprof.reader.listing import profiles

    listing = profiles([whole])
    runs = listing.runs
    if not runs:
        why = "".join(f"; {each.file}: {each.error}" for each in listing.skipped[:3])
        raise NotFound(f"there is no profile in {path}{why}", "name a file, or another folder")
    if len(runs) > 1:
        some = ", ".join(run.workers[0].spans[0].found.file for run in runs[:5])
        raise BadParameter(f"{path} holds {len(runs)} runs", f"name a file or a folder of it, for example {some}")
    return Path(listing.find(next(iter(runs)).id, worker, span).found.path)


def _print(result: Result, form: str, table: str) -> None:
    if form == "json":
        from visualprof.server.tables import named_table

        _write_json(named_table(result, table).to_json() if table else result.to_json())
    elif form == "csv":
        from visualprof.server.tables import named_table

        sys.stdout.buffer.write(named_table(result, table).to_csv().encode("utf-8", "replace"))
    else:
        from visualprof.cli._terminal import render

        text = render(result, table, _width())
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
    sys.stdout.buffer.flush()


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return 160


class _Meter:
    """Shows on a terminal how far a large file is read."""

    def __init__(self) -> None:
        self._shown = -1

    def __call__(self, fraction: float) -> None:
        percent = int(fraction * 100)
        if percent != self._shown and percent % 5 == 0:
            self._shown = percent
            end = "\r" if percent < 100 else "\r\x1b[K"
            print(f"reading {percent:3} %", end=end, file=sys.stderr, flush=True)
