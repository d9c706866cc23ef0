"""Files in, traces out: `read_trace` finds the format by content and builds the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from visualprof.reader.source import Progress
    from visualprof.reader.trace import Trace
    from visualprof.reader.trace.builder import TraceBuilder

__all__ = ["Trace", "read_trace"]


def read_trace(path: str | Path, progress: Progress | None = None) -> Trace:
    """One profile file as a trace, whatever its name.

    Args:
        path: the file, plain or gzipped.
        progress: called with 0..1 while the file is read.

    Raises:
        EmptyFile: there is nothing in it yet.
        UnknownFormat: no format recognises the content.
        FormatError: the content breaks the promises of its format.
        SourceError: it cannot be opened or unpacked.
    """
    return read_into_builder(path, progress).build()


def read_into_builder(path: str | Path, progress: Progress | None = None) -> TraceBuilder:
    """The builder of the trace of a file, as `read_trace`."""
    from visualprof.reader.registry import recognize
    from visualprof.reader.source import Source
    from visualprof.reader.trace.builder import TraceBuilder

    source = Source(path, progress)
    chosen = recognize(source)
    builder = TraceBuilder(format=chosen.name)
    chosen.read(source, builder)
    return builder


def __getattr__(name: str) -> object:
    if name == "Trace":  # numpy is imported only by those who read a trace
        from visualprof.reader.trace import Trace

        return Trace
    raise AttributeError(f"module 'visualprof.reader' has no attribute {name!r}")
