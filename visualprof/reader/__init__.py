"""Read profile files into traces: `read_trace` detects the format by content and builds the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from visualprof.reader.source import Progress
    from visualprof.reader.trace import Trace
    from visualprof.reader.trace.builder import TraceBuilder

__all__ = ["Trace", "read_trace"]


def read_trace(path: str | Path, progress: Progress | None = None) -> Trace:
    """Read one profile file into a trace. The format is detected by content, not by file name.

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
