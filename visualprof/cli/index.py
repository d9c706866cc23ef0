"""Index log directories ahead of time, so that dashboards and commands open every file at once.

Already indexed files are skipped. Files are parsed by all processors of this machine, or by a cluster whose machines
see the log directory and the cache (VISUALPROF_CACHE_DIR) under the same paths.

Example:
  visualprof index /data/runs --engine ray
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from visualprof.cli._paths import require
from visualprof.errors import VisualprofError
from visualprof.server.settings import ReadingSettings
from visualprof.setting_options import add_options

if TYPE_CHECKING:
    from visualprof.reader.cache import Cache
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.listing import Span
    from visualprof.reader.logdir.summary import Summary

_PAUSE_S, _LOOK_S = 0.1, 5.0
_WORST = 10  # printed failures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="LOGDIR",
        help="Log directories as the dashboard is given them: folders, or s3://bucket/runs.",
    )
    add_options(parser, ReadingSettings, ("engine",))
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="Number of processes on this machine (default: the number of processors).",
    )
    parser.add_argument(
        "--format", choices=["table", "json"], default="table", help="Output format (default: %(default)s)."
    )


def run(args: argparse.Namespace) -> int:
    """Index the files; return 1 if a file cannot be read."""
    require(args.paths, create=False)
    from visualprof.reader.cache import Cache
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.parsers import open_parser
    from visualprof.reader.processors import usable_processors
    from visualprof.server.parse import parse_into_cache

    cache = Cache.default()
    if not cache.is_writable():
        raise VisualprofError(f"{cache.folder} cannot be written", "name another folder in VISUALPROF_CACHE_DIR")
    began = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints the state of its workers
        parser = open_parser(
            partial(parse_into_cache, cache=cache, parts=True), args.engine, args.workers or usable_processors()
        )
        logdir = LogDirectory(args.paths, parser, cache, events=False, settle_s=0, follow_outside=True)
        try:
            logdir.rescan()
            before = _counts(logdir)["ready"]
            _wait(logdir)
            answer = _answer(logdir, cache, before)
        finally:
            logdir.close()
    answer |= {"seconds": round(time.monotonic() - began, 3), "lost_batches": getattr(parser, "lost_batches", 0)}
    print(json.dumps(answer) if args.format == "json" else _text(answer))
    return 1 if answer["failed"] or answer["not_kept"] else 0


def _spans(logdir: LogDirectory) -> list[Span]:
    """Return a span per file; of a file with several ranks, that of the first."""
    spans = (span for run in logdir.listing().runs for worker in run.workers for span in worker.spans)
    by_file: dict[str, Span] = {}
    for span in spans:
        by_file.setdefault(span.log_file.file, span)
    return list(by_file.values())


def _counts(logdir: LogDirectory) -> Counter[str]:
    return Counter(span.state for span in _spans(logdir))


def _wait(logdir: LogDirectory) -> None:
    """Wait until every file is indexed. On a terminal, show the progress."""
    shown = ""
    while waiting := [span for span in _spans(logdir) if span.state in ("waiting", "parsing")]:
        logdir.prioritize(*waiting)  # remote files are only downloaded on request
        look = time.monotonic() + _LOOK_S
        while time.monotonic() < look:
            time.sleep(_PAUSE_S)
            if not logdir.busy_paths():
                break
            if sys.stderr.isatty():
                counts = _counts(logdir)
                shown = f"{counts['ready']:,} of {counts.total():,} files read, {counts['failed']:,} failed"
                print(f"\r{shown}", end="", file=sys.stderr, flush=True)
        logdir.rescan()
    if shown:
        print("\r" + " " * len(shown) + "\r", end="", file=sys.stderr)


def _answer(logdir: LogDirectory, cache: Cache, before: int) -> dict[str, Any]:
    """Return the outcome of the files.

    `not_kept` counts files that were read, but whose columns are in no cache that this machine sees.
    """
    spans = _spans(logdir)
    read = [span for span in spans if span.summary]
    failed = {span.log_file.file: span.failure.error for span in spans if span.failure}
    return {
        "files": len(spans),
        "known": before,
        "read": len(read) - before,
        "events": sum(span.summary.events for span in read if span.summary),
        "bytes": sum(span.version.size for span in read),
        "failed": failed,
        "not_kept": sum(not _is_cached(cache, span.summary) for span in read if span.summary),
    }


def _is_cached(cache: Cache, summary: Summary) -> bool:
    """Return whether the cache has the columns of a file."""
    from visualprof.reader.logdir.summary import file_fingerprint

    return cache.path(file_fingerprint(summary.fingerprint)[0]).exists()


def _text(answer: dict[str, Any]) -> str:
    content = f"{answer['files']:,} files, {answer['events']:,} events, {answer['bytes'] / 1e6:,.1f} MB"
    lines = [f"{content}: {answer['known']:,} known before, {answer['read']:,} read in {answer['seconds']:.1f} s"]
    if answer["lost_batches"]:
        lines.append(f"workers were lost {answer['lost_batches']} times; what they had was read again")
    if answer["not_kept"]:
        lines.append(
            f"{answer['not_kept']:,} files are read, but not kept here: the cache (VISUALPROF_CACHE_DIR) must be one "
            "folder for all machines, and large enough (VISUALPROF_CACHE_MAX_BYTES)"
        )
    failed = list(answer["failed"].items())
    lines += [f"{file}: {error}" for file, error in failed[:_WORST]]
    if len(failed) > _WORST:
        lines.append(f"and {len(failed) - _WORST:,} more that cannot be read")
    return "\n".join(lines)
