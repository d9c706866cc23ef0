"""Messages between the server and the process that runs queries: JSON, and answers as bytes, over two pipes."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, Literal

import msgspec

from visualprof.views.answers.kinds import Kind

_LENGTH = struct.Struct("<Q")
MAX_MESSAGE_BYTES = 80 << 20

Format = Literal["json", "csv", "parquet"]


class RunDataFile(msgspec.Struct, frozen=True):
    """A file of run data.

    Attributes:
        line: Folder relative to the run's folder; "" for the run's folder.
        path: Path of the file.
        size: Size in bytes. A process that read a smaller file is not used again.
    """

    line: str
    path: str
    size: int


class TraceFile(msgspec.Struct, frozen=True):
    """A cached trace.

    Attributes:
        path: File of the cache.
        fingerprint: Fingerprint of the content.
        name: Name for the table `trace`.
        rank_label: Label of the rank in a file with several, "" for a file with one.
        step_range: Pattern of the ranges that are steps, "" for the file's own steps.
        rank: Rank for the column `rank`, `None` for that of the trace.
        run_data: Files for the tables `scalar` and `trial`.
    """

    path: str
    fingerprint: str
    name: str
    rank_label: str = ""
    step_range: str = ""
    rank: int | None = None
    run_data: tuple[RunDataFile, ...] = ()


class OpenMessage(msgspec.Struct, frozen=True, tag="open"):
    """Open traces. The first message to a process."""

    traces: tuple[TraceFile, ...]


class QueryMessage(msgspec.Struct, frozen=True, kw_only=True, tag="query"):
    """Run a statement.

    Attributes:
        sql: The statement.
        parameters: Values of its parameters.
        format: Form of the answer.
        max_rows: Rows of the answer.
        max_bytes: Bytes of the answer.
        interrupt_s: Time after which the statement is stopped.
    """

    sql: str
    parameters: dict[str, Any] = {}
    format: Format = "json"
    max_rows: int
    max_bytes: int
    interrupt_s: float


class CountMessage(msgspec.Struct, frozen=True, tag="count"):
    """Count the rows of all tables."""


class Head(msgspec.Struct, kw_only=True):
    """Description of an answer, sent before its bytes.

    Attributes:
        error: Error, "" for none.
        hint: Hint of the error.
        status: HTTP status of the error.
        locked: Whether the kernel forbids files and the network to the process.
        truncated: Whether rows are missing.
        rows: Number of rows in the answer.
        elapsed_ns: Time that the statement took.
        columns: Names of the columns.
        types: SQL types of the columns.
        kinds: Kinds of the columns, if known.
        events: Number of events of each open trace.
    """

    error: str = ""
    hint: str = ""
    status: int = 0
    locked: bool = False
    truncated: bool = False
    rows: int = 0
    elapsed_ns: int = 0
    columns: list[str] = []
    types: list[str] = []
    kinds: dict[str, Kind] = {}
    events: list[int] = []


MESSAGES = msgspec.json.Decoder(OpenMessage | QueryMessage | CountMessage)
HEADS = msgspec.json.Decoder(Head)


def write_message(file: BinaryIO, *parts: bytes) -> None:
    """Write the parts of a message."""
    for part in parts:
        file.write(_LENGTH.pack(len(part)))
        file.write(part)
    file.flush()


def read_part(file: BinaryIO) -> bytes:
    """Return the next part of a message.

    Raises:
        EOFError: The other end has closed the pipe.
    """
    (length,) = _LENGTH.unpack(_read(file, _LENGTH.size))
    if length > MAX_MESSAGE_BYTES:
        raise EOFError
    return _read(file, length)


def _read(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
