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
    parser.add_argument("--compare", default="", metavar="BASE", help="another profile or run: with what changed since")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="default: %(default)s")
    parser.add_argument("--worker", default="", metavar="W", help="of a folder with several (default: the first)")
    parser.add_argument("--span", default="", metavar="S", help="of a worker with several (default: the first)")


def run(args: argparse.Namespace) -> int:
    """Writes the file and says how large it is."""
    base = Path(args.compare) if args.compare else None
    page = page_of(Path(args.path), base, worker=args.worker, span=args.span)
    try:
        Path(args.output).write_bytes(page)
    except OSError as error:
        raise BadParameter(f"cannot write {args.output}: {error.strerror}", "name another file: -o FILE") from error
    print(f"{args.output}: {len(page) / 1e6:.2f} MB")
    return 0


def page_of(path: Path, base: Path | None = None, *, worker: str = "", span: str = "", newest: bool = False) -> bytes:
    """The report of a profile, or of a run's folder: what the page's button saves.

    base: what it is compared with. newest: of several runs take that one.

    Raises: NotFound, BadParameter: there is not one run. VisualprofError: it cannot be read.
    """
    paths = [path, base] if base else [path]
    require(map(str, paths), create=False)
    from visualprof.reader.cache import Cache
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.pool import Pool
    from visualprof.server.parse import parse

    cache = Cache.default()
    logdir = LogDirectory(paths, Pool(partial(parse, cache=cache)), cache, events=False, settle_s=0)
    logdir.start()
    try:
        logdir.rescan()
        listing = logdir.listing()
        query = {"run": _run_at(listing, path, newest), "worker": worker, "span": span}
        return _asked(logdir, query | ({"base": _run_at(listing, base)} if base else {}))
    finally:
        logdir.close()


def _asked(logdir: LogDirectory, query: dict[str, str]) -> bytes:
    """From an application that nobody else can reach."""
    from visualprof.server.app import create_app
    from visualprof.server.settings import Settings

    client = create_app(logdir, Settings(read_only=True)).test_client()
    while (answer := client.get(f"/api/v1/report?{urlencode(query)}")).status_code != 200:
        body = answer.get_json()
        if answer.status_code != 503 or body.get("state") == "growing":
            raise VisualprofError(body["error"], body.get("hint", ""))
        time.sleep(_PAUSE_S)
    return answer.data


def _run_at(listing: Listing, path: Path, newest: bool = False) -> str:
    """The only run there, or the newest."""
    whole = path.expanduser().absolute()
    files = {run.id: run.workers[0].spans[0].log_file for run in listing.runs if run.workers}
    there = [id for id, file in files.items() if whole in (found := Path(file.path), *found.parents)]
    if not there:
        why = "".join(f"; {problem.file}: {problem.error}" for problem in listing.skipped[:3])
        raise NotFound(f"there is no profile in {path}{why}", "name a file, or another folder")
    if newest:
        return max((run for run in listing.runs if run.id in there), key=lambda run: run.modified_ns).id
    if len(there) > 1:
        some = ", ".join(files[id].file for id in there[:5])
        raise BadParameter(f"{path} holds {len(there)} runs", f"name a file or a folder of it, for example {some}")
    return there[0]
