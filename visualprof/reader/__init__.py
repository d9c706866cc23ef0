"""Read profile files into traces: `read_trace` detects the format by content and builds the columns.

A file may hold several ranks. `read_trace` returns all events of the file; `read_ranks` returns one trace per rank, as
the views use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from visualprof.reader.source import Progress
    from visualprof.reader.trace import Trace
    from visualprof.reader.trace.builder import TraceBuilder
    from visualprof.reader.trace.rank_split import RankTrace

__all__ = ["Trace", "read_ranks", "read_trace"]


def read_trace(path: str | Path, progress: Progress | None = None) -> Trace:
    """Read one profile file into a trace. The format is detected by content, not by file name.

    If the file holds several ranks, the trace has the events of all of them, see `read_ranks`.

    Args:
        path: The file, plain or gzipped.
        progress: Called with a fraction from 0 to 1 while the file is read.

    Raises:
        EmptyFile: The file has no content yet.
        UnknownFormat: No format recognizes the content.
        FormatError: The content violates its format.
        SourceError: The file cannot be opened or unpacked.
    """
    return read_into_builder(path, progress).build()


def read_ranks(path: str | Path, progress: Progress | None = None) -> list[RankTrace]:
    """Read one profile file into one trace per rank, in the order of the ranks.

    Each trace has only the events, steps and devices of its rank. A file with one rank gives one trace, with the label
    "". Arguments and errors: as for `read_trace`.

    Source: docs/formats.md#ranks
    """
    from visualprof.reader.trace.rank_split import split_ranks

    return split_ranks(read_trace(path, progress))


def read_into_builder(path: str | Path, progress: Progress | None = None) -> TraceBuilder:
    """Read a file and return its `TraceBuilder`. Arguments and errors are those of `read_trace`."""
    from visualprof.reader.recognition import recognize
    from visualprof.reader.source import Source
    from visualprof.reader.trace.builder import TraceBuilder

    source = Source(path, progress)
    chosen = recognize(source)
    builder = TraceBuilder(format=chosen.name)
    chosen.read(source, builder)
    return builder


def __getattr__(name: str) -> object:
    if name == "Trace":  # numpy is only imported when a trace is read
        from visualprof.reader.trace import Trace

        return Trace
    raise AttributeError(f"module 'visualprof.reader' has no attribute {name!r}")
