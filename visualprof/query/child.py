"""The process that runs queries: it opens traces, gives up its rights, and then answers statements until it is killed.

It holds no token and no socket, and inherits no environment. Everything that it needs is imported before Landlock
forbids it to open files.
"""

from __future__ import annotations

import datetime
import decimal
import os
import signal
import sys
import tempfile
import time
import uuid
import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from visualprof.errors import VisualprofError
from visualprof.query import sandbox
from visualprof.query.engine import Engine, import_duckdb
from visualprof.query.errors import QueryStopped
from visualprof.query.pipe import (
    MESSAGES,
    CountMessage,
    Head,
    OpenMessage,
    QueryMessage,
    RunDataFile,
    TraceFile,
    read_part,
    write_message,
)
from visualprof.query.results import read_rows, to_columns, to_csv
from visualprof.query.schema import kind_of_result
from visualprof.query.tables import Source
from visualprof.reader.run_data.folders import DataFile
from visualprof.reader.run_data.run import RunData
from visualprof.reader.trace.codec import DamagedFile, decode
from visualprof.reader.trace.rank_split import select_rank
from visualprof.reader.trace.step_ranges import with_step_range

IMPORTED = (datetime, decimal, uuid, zoneinfo)  # modules with which DuckDB converts values
_MISSING_TRACE = "a trace is no longer in the cache"


def main() -> None:
    """Answer messages from standard input on standard output until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(silent, descriptor)
    state: _State | None = None
    try:
        while True:
            message = MESSAGES.decode(read_part(requests))
            if isinstance(message, OpenMessage):
                state, head = _open(message)
                write_message(answers, msgspec.json.encode(head), b"")
            elif state is not None:
                head, body = state.answer(message)
                write_message(answers, msgspec.json.encode(head), body)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the server has ended


class _State:
    """The open traces.

    Attributes:
        engine: The connection.
        locked: Whether the kernel forbids files and the network.
        output: Descriptor of the file in memory for Parquet, -1 for none.
    """

    def __init__(self, engine: Engine, locked: bool, output: int) -> None:
        self.engine, self.locked, self._output = engine, locked, output

    def answer(self, message: QueryMessage | CountMessage) -> tuple[Head, bytes]:
        """Return the answer to a message: its description and its bytes."""
        try:
            if isinstance(message, CountMessage):
                return Head(locked=self.locked), msgspec.json.encode(self.engine.row_counts())
            sandbox.limit_processor_time(sandbox.CPU_MARGIN_S)
            with self.engine.time_limit(message.interrupt_s):
                return self._parquet(message) if message.format == "parquet" else self._rows(message)
        except VisualprofError as error:
            return Head(error=error.error, hint=error.hint, status=error.status, locked=self.locked), b""
        except MemoryError:
            return Head(error="the query needs too much memory", status=QueryStopped.status, locked=self.locked), b""

    def _rows(self, message: QueryMessage) -> tuple[Head, bytes]:
        started = time.monotonic_ns()
        with self.engine.run(message.sql, message.parameters) as cursor:
            rows, truncated = read_rows(cursor, message.max_rows, message.max_bytes)
            head = Head(
                locked=self.locked,
                truncated=truncated,
                rows=len(rows),
                elapsed_ns=time.monotonic_ns() - started,
                columns=cursor.columns,
                types=cursor.types,
                kinds={name: kind for name in cursor.columns if (kind := kind_of_result(name))},
                events=[len(source.trace.events) for source in self.engine.sources],
            )
        if message.format == "csv":
            return head, to_csv(head.columns, rows).encode("utf-8", "replace")
        return head, msgspec.json.encode(to_columns(head.columns, rows))

    def _parquet(self, message: QueryMessage) -> tuple[Head, bytes]:
        os.ftruncate(self._output, 0)
        started = time.monotonic_ns()
        sandbox.limit_file_size(sandbox.MAX_FILE_BYTES)
        try:
            self.engine.write_parquet(message.sql, output_path(self._output), message.max_rows, message.parameters)
        finally:
            sandbox.limit_file_size(0)
        size = os.fstat(self._output).st_size
        return Head(locked=self.locked, elapsed_ns=time.monotonic_ns() - started), os.pread(self._output, size, 0)


def _open(message: OpenMessage) -> tuple[_State | None, Head]:
    """Open the traces and give up all other rights."""
    try:
        import_duckdb()
        sources = [_source(trace) for trace in message.traces]
        output = _open_output()
        preload(sources)
        locked = False

        def lock() -> None:
            nonlocal locked
            sandbox.limit_resources()
            locked = sandbox.forbid_files_and_network()

        engine = Engine(sources, output=output_path(output), before_threads=lock)
        return _State(engine, locked, output), Head(locked=locked)
    except DamagedFile:
        return None, Head(error=_MISSING_TRACE, status=503)
    except OSError as error:
        return None, Head(error=f"{_MISSING_TRACE} ({error.strerror})", status=503)
    except VisualprofError as error:
        return None, Head(error=error.error, hint=error.hint, status=error.status)


def preload(sources: list[Source]) -> None:
    """Import what views of traces import when they first run, and load the native reader."""
    from visualprof.reader import native

    native.describe_state()
    for name in ("numpy.ma", "encodings.idna", "encodings.utf_8", "visualprof.peaks"):
        __import__(name)
    for source in sources[:1]:
        for table in ("kernel", "op", "gap", "collective", "allocation"):
            source.column(table, "id")


def _source(trace: TraceFile) -> Source:
    with Path(trace.path).open("rb", buffering=0) as file:
        columns = decode(file, trace.fingerprint)
    if trace.rank_label:
        columns = select_rank(columns, trace.rank_label)
    if trace.step_range:
        columns = with_step_range(columns, trace.step_range)
    source = Source(columns, trace.name, trace.rank, lambda: _run_data(trace.run_data))
    if trace.run_data:
        source.column("trial", "run")  # while the process may open files
    return source


def _run_data(files: Sequence[RunDataFile]) -> RunData | None:
    """Return the run data in files, `None` without any."""
    if not files:
        return None
    data = RunData()
    data.update([DataFile(file.line, file.path) for file in files])
    return data


def _open_output() -> int:
    """Return the descriptor of a file for Parquet: in memory where the system can, otherwise without a name."""
    create: Any = getattr(os, "memfd_create", None)
    if create is not None:
        return create("parquet")
    return os.dup(tempfile.TemporaryFile("w+b").fileno())


def output_path(descriptor: int) -> str:
    """Return the path by which DuckDB opens the file for Parquet."""
    return f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else f"/dev/fd/{descriptor}"
