"""Write a run as one HTML file that opens without server or network, or its summary as Markdown or PDF.

Example:
  visualprof report trace.json --compare before.json -o report.html
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from visualprof.cli import _step_range, _warnings
from visualprof.cli._paths import require
from visualprof.errors import BadParameter, NotFound, VisualprofError

if TYPE_CHECKING:
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.listing import Listing

_PAUSE_S = 0.05
_SUFFIXES = {"html": ".html", "markdown": ".md", "pdf": ".pdf"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("path", metavar="PATH", help="A profile, or the folder of a run.")
    _warnings.add_arguments(parser)
    parser.add_argument(
        "--compare",
        default="",
        metavar="BASE",
        help="Baseline profile or run; the report then also shows what changed since.",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="",
        metavar="FILE",
        help="Output file (default: report.html, report.md or report.pdf).",
    )
    parser.add_argument(
        "--format",
        choices=list(_SUFFIXES),
        help=(
            "html, markdown, or pdf: the first page, printed by Chromium or Chrome (default: by the suffix of "
            "the output file; html without one)."
        ),
    )
    parser.add_argument(
        "--worker", default="", metavar="W", help="Worker to read, for a run with several (default: the first)."
    )
    parser.add_argument(
        "--span",
        default="",
        metavar="S",
        help="Recording (span) to read, for a worker with several (default: the first).",
    )
    _step_range.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file and print its size."""
    require([args.path, *filter(None, [args.compare])], create=False)
    warnings = _warnings_of(args)
    form = args.format or _format_of(args.output)
    output = Path(args.output or f"report{_SUFFIXES[form]}")
    if form == "markdown":
        page = _markdown(args, warnings).encode("utf-8", "replace")
    else:
        base = Path(args.compare) if args.compare else None
        page = page_of(Path(args.path), base, worker=args.worker, span=args.span, step_range=args.step_range)
    try:
        if form == "pdf":
            from visualprof.cli._pdf import print_page

            page = print_page(page, output.absolute().parent)
        output.write_bytes(page)
    except OSError as error:
        raise BadParameter(f"cannot write {output}: {error.strerror}", "name another file: -o FILE") from error
    print(f"{output}: {-(-len(page) // 1000):,} kB")
    _warnings.print_warnings(warnings, args.strict)
    return 0


def _format_of(output: str) -> str:
    """Return the format that the suffix of a file names; html for other suffixes."""
    suffix = Path(output).suffix.lower()
    return next((name for name, ending in _SUFFIXES.items() if ending == suffix), "html")


def _warnings_of(args: argparse.Namespace) -> list[str]:
    """Return the warnings about the files of the report."""
    from visualprof.cli._worker_files import file_of, files_of, skipped_files

    warnings: list[str] = []
    for path, worker, span in ((args.path, args.worker, args.span), (args.compare, "", "")):
        if path:
            file = file_of(files_of(path), worker, span, path)
            warnings += _warnings.warnings_of([file.path], skipped_files(path))
    return warnings


def _markdown(args: argparse.Namespace, warnings: list[str]) -> str:
    """Return the run and the change since the baseline as Markdown, with at most ten rows per table."""
    from visualprof.cli import _summary
    from visualprof.cli._sides import side_of
    from visualprof.cli._worker_files import file_of, files_of
    from visualprof.cli.view import joined_answer, tune_for_short_process, without_work
    from visualprof.views import view
    from visualprof.views.diff.compare import compare
    from visualprof.views.diff.side import SideParams

    tune_for_short_process()
    workers = files_of(args.path, args.step_range)
    file = file_of(workers, args.worker, args.span, args.path)
    answers: dict[str, Any] = {}
    for name in ("overview", "findings", "plan", *_summary.TOP):
        chosen = view(name)
        if (answer := joined_answer(chosen, chosen.parse({}), file, workers)) is not None:
            answers[name] = answer
    if "overview" not in answers:
        raise without_work(file, "reported")
    change = None
    if args.compare:
        pairs = ((args.compare, ""), (args.path, args.worker))
        base, new = (side_of(path, worker, SideParams(), args.step_range) for path, worker in pairs)
        change = compare("overview", base, new)
    overview, findings, plan = answers.pop("overview"), answers.pop("findings", None), answers.pop("plan", None)
    return _summary.run_markdown(
        args.path, overview, findings=findings, plan=plan, tops=answers, change=change, warnings=warnings
    )


def page_of(
    path: Path,
    base: Path | None = None,
    *,
    worker: str = "",
    span: str = "",
    base_worker: str = "",
    step_range: str = "",
    newest: bool = False,
) -> bytes:
    """Return the report of a profile or of a run's folder, as the report button of the web UI saves it.

    Args:
        base: Baseline to compare with.
        step_range: Pattern of the ranges that are steps, "" for the file's own steps.
        newest: Take the newest of several runs.

    Raises:
        NotFound: There is no run.
        BadParameter: There are several runs.
        VisualprofError: The run cannot be read.
    """
    paths = [path, base] if base else [path]
    require(map(str, paths), create=False)
    for file in filter(Path.is_file, paths):
        _recognize(file)
    from visualprof.reader.cache import Cache
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.pool import Pool
    from visualprof.server.parse import parse_into_cache

    cache = Cache.default()
    pool = Pool(partial(parse_into_cache, cache=cache))
    logdir = LogDirectory(paths, pool, cache, events=False, settle_s=0, follow_outside=True)
    logdir.start()
    try:
        logdir.rescan()
        listing = logdir.listing()
        query = {"run": _run_at(listing, path, newest), "worker": worker, "span": span, "step_range": step_range}
        compared = {"base": _run_at(listing, base), "base_worker": base_worker} if base else {}
        return _answer(logdir, query | compared)
    finally:
        logdir.close()


def _recognize(file: Path) -> None:
    """Raise an error that names the kind of a file that is not a profile. Log directories do not list all of them."""
    from visualprof.reader.recognition import recognize
    from visualprof.reader.source import Source

    recognize(Source(file))


def _answer(logdir: LogDirectory, query: dict[str, str]) -> bytes:
    """Return an answer of an application that accepts no connections."""
    from visualprof.server.app import create_app
    from visualprof.server.settings import AccessSettings, Settings

    client = create_app(logdir, Settings(access=AccessSettings(read_only=True))).test_client()
    while (answer := client.get(f"/api/v1/report?{urlencode(query)}")).status_code != 200:
        body = answer.get_json()
        if answer.status_code != 503 or body.get("state") == "growing":
            raise VisualprofError(body["error"], body.get("hint", ""))
        time.sleep(_PAUSE_S)
    return answer.data


def _run_at(listing: Listing, path: Path, newest: bool = False) -> str:
    """Return the id of the only run, or of the newest one."""
    from visualprof.cli._worker_files import MAX_SKIPPED, skip_reason

    whole = path.expanduser().absolute()
    files = {run.id: run.workers[0].spans[0].log_file for run in listing.runs if run.workers}
    matching = [id for id, file in files.items() if whole in (log_file := Path(file.path), *log_file.parents)]
    if not matching:
        why = "".join(f"; {problem.file}: {skip_reason(problem)}" for problem in listing.skipped[:MAX_SKIPPED])
        raise NotFound(f"there is no profile in {path}{why}", "name a file, or another folder")
    if newest:
        return max((run for run in listing.runs if run.id in matching), key=lambda run: run.modified_ns).id
    if len(matching) > 1:
        some = ", ".join(files[id].file for id in matching[:5])
        raise BadParameter(f"{path} holds {len(matching)} runs", f"name a file or a folder of it, for example {some}")
    return matching[0]
