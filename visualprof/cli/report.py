"""Writes a run as one HTML file that opens anywhere: no server, no network."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from visualprof.cli._paths import require
from visualprof.errors import BadParameter, NotFound, VisualprofError

if TYPE_CHECKING:
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.listing import Listing

_PAUSE_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("path", metavar="PATH", help="a profile, or the folder of a run")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="default: %(default)s")
    parser.add_argument("--worker", default="", metavar="W", help="of a folder with several (default: the first)")
    parser.add_argument("--span", default="", metavar="S", help="of a worker with several (default: the first)")


def run(args: argparse.Namespace) -> int:
    """Writes the file and says how large it is."""
    page = page_of(Path(args.path), args.worker, args.span)
    try:
        Path(args.output).write_bytes(page)
    except OSError as error:
        raise BadParameter(f"cannot write {args.output}: {error.strerror}", "name another file: -o FILE") from error
    print(f"{args.output}: {len(page) / 1e6:.2f} MB")
    return 0


def page_of(path: Path, worker: str = "", span: str = "", *, newest: bool = False) -> bytes:
    """The report of a profile, or of a run's folder: what the page's button saves.

    newest: of several runs take that one.

    Raises: NotFound, BadParameter: there is not one run. VisualprofError: it cannot be read.
    """
    require([str(path)], create=False)
    from visualprof.reader.cache import Cache
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.pool import Pool
    from visualprof.server.parse import parse

    cache = Cache.default()
    logdir = LogDirectory([path], Pool(partial(parse, cache=cache)), cache, events=False, settle_s=0)
    logdir.start()
    try:
        logdir.rescan()
        runs = logdir.listing().runs
        chosen = max(runs, key=lambda run: run.modified_ns).id if newest and runs else _only(logdir.listing(), path)
        return _asked(logdir, chosen, worker, span)
    finally:
        logdir.close()


def _asked(logdir: LogDirectory, run: str, worker: str, span: str) -> bytes:
    """From an application that nobody else can reach."""
    from visualprof.server.app import create_app
    from visualprof.server.settings import Settings

    client = create_app(logdir, Settings(read_only=True)).test_client()
    query = urlencode({"run": run, "worker": worker, "span": span})
    while (answer := client.get(f"/api/v1/report?{query}")).status_code != 200:
        body = answer.get_json()
        if answer.status_code != 503 or body.get("state") == "growing":
            raise VisualprofError(body["error"], body.get("hint", ""))
        time.sleep(_PAUSE_S)
    return answer.data


def _only(listing: Listing, path: Path) -> str:
    """The only run there."""
    if not listing.runs:
        why = "".join(f"; {problem.file}: {problem.error}" for problem in listing.skipped[:3])
        raise NotFound(f"there is no profile in {path}{why}", "name a file, or another folder")
    run, *others = listing.runs
    if others:
        some = ", ".join(run.workers[0].spans[0].log_file.file for run in listing.runs[:5])
        raise BadParameter(
            f"{path} holds {len(listing.runs)} runs", f"name a file or a folder of it, for example {some}"
        )
    return run.id
