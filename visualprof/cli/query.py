"""Ask questions about profiles in SQL.

Examples:
  visualprof query trace.json "SELECT name, sum(dur) FROM kernel GROUP BY name"
  visualprof query runs/today -f question.sql --format csv -o answer.csv
  visualprof query trace.json --run top_kernels
  visualprof query --schema kernel
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.cli import _recording, _step_range, _warnings
from visualprof.errors import BadParameter, MissingData, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from visualprof.query.cursor import Cursor
    from visualprof.query.engine import Engine
    from visualprof.query.tables import Source
    from visualprof.reader.run_data.run import RunData
    from visualprof.views.answers.kinds import Kind

DEFAULT_ROWS = 1000  # of a table on a terminal
FORMATS = ("table", "csv", "json", "ndjson", "parquet", "arrow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="Profiles or folders of runs, followed by one SELECT statement."
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="Read the statement from FILE; - reads standard input.")
    parser.add_argument("--run", default="", metavar="NAME", help="Run a stored query. See --list.")
    parser.add_argument(
        "-p", "--param", action="append", default=[], metavar="NAME=VALUE", help="Value of $NAME; repeatable."
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="Output format (default: the suffix of the output file, otherwise table)."
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="Write the result to FILE (default: standard output).")
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"Maximum number of rows (default: {DEFAULT_ROWS} for tables, else all)."
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="Stop after S seconds (default: %(default)g).",
    )
    parser.add_argument("--worker", default="", metavar="W", help="Worker to read (default: all workers of a run).")
    parser.add_argument(
        "--schema", nargs="?", const="", metavar="TABLE", help="Print all tables, or the columns of one, and exit."
    )
    parser.add_argument("--list", action="store_true", help="Print the stored queries and exit.")
    parser.add_argument(
        "--unrestricted",
        action="store_true",
        help="Let the statement read and write files and change settings, for joins with your own files.",
    )
    _step_range.add_arguments(parser)
    _recording.add_arguments(parser)
    _warnings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the result of the query."""
    if args.schema is not None or args.list:
        from visualprof.query.reference import schema_text, stored_text

        print(stored_text() if args.list else schema_text(args.schema or ""))
        return 0
    from visualprof.cli.view import tune_for_short_process

    tune_for_short_process()
    args.format = args.format or _format_of(args.output)
    paths, sql = _statement(args)
    from visualprof.query.stored import parse_value, stored_query

    texts = dict(_pairs(args.param))
    if args.run:
        chosen = stored_query(args.run)
        sql, parameters = chosen.text, chosen.values(texts)
    else:
        parameters = {name: parse_value(text) for name, text in texts.items()}
    from visualprof.query.engine import Engine, import_duckdb

    import_duckdb()
    sources = open_sources(paths, args.worker, args.step_range, args.recording)
    _warnings.print_warnings(_warnings_about(paths, sources), args.strict)
    engine = Engine(
        sources,
        output=args.output if args.format in ("parquet", "arrow") and args.output else "",
        unrestricted=args.unrestricted,
        before_threads=None if args.unrestricted else _limit_resources,
    )
    with closing(engine), engine.time_limit(args.timeout):
        _write(engine, sql, parameters, args)
    return 0


def _format_of(output: str | None) -> str:
    """Return the format that the suffix of a file names, otherwise that of a terminal."""
    suffix = Path(output or "").suffix.removeprefix(".").lower()
    return suffix if suffix in FORMATS else "table"


def _warnings_about(paths: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """Return the warnings about the traces and the files that were not read, without repetition."""
    from visualprof.cli._worker_files import skipped_files

    skipped = [text for path in paths for text in skipped_files(path)]
    prefixes = (f"{source.name}: " if len(sources) > 1 else "" for source in sources)
    recorded = [
        prefix + text for prefix, source in zip(prefixes, sources, strict=True) for text in source.trace.meta.warnings
    ]
    return list(dict.fromkeys(skipped + recorded))


def _limit_resources() -> None:
    from visualprof.query.sandbox import limit_address_space

    limit_address_space()


def _statement(args: argparse.Namespace) -> tuple[list[str], str]:
    """Return the paths and the statement of the command line.

    Raises:
        BadParameter: There is no path or no statement.
    """
    words: list[str] = args.paths
    if args.run or args.file:
        if not words:
            raise BadParameter("a query needs a profile", "for example: visualprof query trace.json --run top_kernels")
        return words, "" if args.run else _read_file(args.file)
    if len(words) > 1 and (any(c.isspace() for c in words[-1]) or not Path(words[-1]).exists()):
        return words[:-1], words[-1]
    is_statement = len(words) == 1 and any(c.isspace() for c in words[0]) and not Path(words[0]).exists()
    if words and not is_statement and not sys.stdin.isatty():
        return words, sys.stdin.read()
    raise BadParameter(
        "a query needs a profile and a statement",
        'for example: visualprof query trace.json "SELECT name, dur FROM kernel"; --schema lists the tables',
    )


def _read_file(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read the statement from {path}: {error}") from error


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadParameter(f"-p {text!r} is not of the form name=value", "for example: -p module=Block_12")
        pairs.append((name, value))
    return pairs


def open_sources(paths: Sequence[str], worker: str = "", step_range: str = "", recording: str = "") -> list[Source]:
    """Return the traces of some profiles or runs, one per worker.

    Args:
        paths: The profiles or runs.
        worker: The only worker to read, "" for all.
        step_range: Pattern of the ranges that are steps, "" for the steps of the files.
        recording: Recording with which a memory snapshot is joined; the first worker is the only one then.
    """
    from visualprof.cli._worker_files import file_of, files_of, open_worker
    from visualprof.query.tables import Source
    from visualprof.reader.run_data.folders import is_data_name
    from visualprof.reader.trace.builder import TraceBuilder

    sources: list[Source] = []
    for path in paths:
        read_data = partial(_run_data, path)
        try:
            workers = [] if is_data_name(Path(path).name) else files_of(path, step_range)
        except NotFound:
            if not _has_run_data(path):
                raise
            workers = []
        if not workers:
            sources.append(Source(TraceBuilder("").build(), Path(path).name, read_run_data=read_data))
            continue
        chosen = [file_of(workers, worker, "", path, recording)] if worker or recording else []
        files = chosen or [spans[0] for _, spans in workers]
        for number, file in enumerate(files):
            trace = open_worker(file)
            rank = None if trace.meta.rank >= 0 or len(files) == 1 else number
            sources.append(Source(trace, file.name, rank, (lambda: None) if number else read_data))
    return sources


def _run_data(path: str) -> RunData | None:
    """Return the run data in a folder or an event file, `None` for other files and folders without run data."""
    from visualprof.cli._subjects import run_data_below

    return run_data_below(path) if _has_run_data(path) else None


def _has_run_data(path: str) -> bool:
    from visualprof.reader.run_data.folders import is_data_name

    return is_data_name(Path(path).name) or any(is_data_name(name) for _, _, names in os.walk(path) for name in names)


def _write(engine: Engine, sql: str, parameters: Mapping[str, Any], args: argparse.Namespace) -> None:
    if args.format in ("parquet", "arrow"):
        _write_binary(engine, sql, parameters, args)
        return
    from visualprof.query.results import read_rows, to_csv

    limit = args.limit if args.limit is not None else DEFAULT_ROWS if args.format == "table" else None
    started = time.monotonic()
    with engine.run(sql, parameters) as cursor:
        rows, truncated = read_rows(cursor, limit, None)
        elapsed_s = time.monotonic() - started
        if args.format == "csv":
            text = to_csv(cursor.columns, rows)
        elif args.format == "table":
            text = _table(cursor, rows)
        else:
            text = _json(cursor, rows, truncated, lines=args.format == "ndjson")
    if args.output:
        _write_file(args.output, text)
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()
    if args.format == "table":
        more = "; more rows exist, see --limit" if truncated else ""
        print(f"{len(rows):,} rows in {elapsed_s:.3f} s{more}", file=sys.stderr)


def _write_file(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadParameter(f"cannot write {path}: {error.strerror}", "choose another file with -o") from error


def _write_binary(engine: Engine, sql: str, parameters: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Write Parquet, or an Arrow file."""
    if not args.output:
        raise BadParameter(f"--format {args.format} needs a file", "name it with -o")
    if args.format == "parquet":
        engine.write_parquet(sql, args.output, args.limit, parameters)
        return
    try:
        pa: Any = importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingData("--format arrow needs pyarrow, which is not installed", "pip install pyarrow") from error
    table = engine.relation(sql, parameters).to_arrow_table()
    with pa.OSFile(args.output, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table if args.limit is None else table.slice(0, args.limit))


def _json(cursor: Cursor, rows: list[tuple[Any, ...]], truncated: bool, *, lines: bool) -> str:
    """Return rows as one JSON object per line, or a table of columns with its units."""
    import msgspec

    from visualprof.query.results import to_columns
    from visualprof.query.schema import kind_of_result

    if lines:
        return "".join(f"{msgspec.json.encode(dict(zip(cursor.columns, row, strict=True))).decode()}\n" for row in rows)
    answer = {
        "columns": to_columns(cursor.columns, rows),
        "types": dict(zip(cursor.columns, cursor.types, strict=True)),
        "kinds": {name: kind for name in cursor.columns if (kind := kind_of_result(name))},
        "total_rows": len(rows),
        "truncated": truncated,
    }
    return f"{msgspec.json.encode(answer).decode()}\n"


def _table(cursor: Cursor, rows: list[tuple[Any, ...]]) -> str:
    """Return rows as aligned text with units."""
    from visualprof.cli.view import width
    from visualprof.query.schema import kind_of_result

    kinds: list[Kind | None] = [kind_of_result(name) for name in cursor.columns]
    texts = [[_text(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in rows]
    is_number = [any(isinstance(row[i], int | float) for row in rows) for i in range(len(kinds))]
    most = max(20, width() // max(len(kinds), 1))
    shown = [[_shorten(text, most) for text in row] for row in [list(cursor.columns), *texts]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(kinds))]
    lines = [
        "  ".join(
            text.rjust(size) if right else text.ljust(size)
            for text, size, right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in shown
    ]
    return "\n".join([lines[0], "  ".join("-" * size for size in widths), *lines[1:]]) + "\n"


def _text(value: Any, kind: Kind | None) -> str:
    """Return a value with its unit, "" for NULL."""
    from visualprof.cli._terminal import cell

    if value is None:
        return ""
    return cell(kind, value) if kind and kind != "id" and isinstance(value, int | float) else str(value)


def _shorten(text: str, most: int) -> str:
    line = text.replace("\n", " | ")
    return line if len(line) <= most else f"{line[: most - 1]}…"
