"""A recording with the captures beside it, each reduced to its graphs and kept in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.reader import read_into_builder, read_trace
from visualprof.reader.captured.files import captures_of
from visualprof.reader.captured.graphs import BEGIN_CAPTURE, Capture, graphs_of
from visualprof.reader.captured.join import joined
from visualprof.reader.captured.launches import GRAPH_LAUNCH, graph_launches, launches_without_work
from visualprof.reader.digest import blake2b
from visualprof.reader.source import Progress, Source
from visualprof.reader.trace import Trace
from visualprof.reader.trace.codec import reader_version
from visualprof.reader.trace.joined import build_event_pyramid

_DECODER = msgspec.msgpack.Decoder(Capture)
_ENCODER = msgspec.msgpack.Encoder()


class Kept(Protocol):
    """Where the graphs of a capture are kept."""

    def load_bytes(self, key: str) -> bytes | None:
        """What was kept under a key, None where it is not here."""

    def store_bytes(self, key: str, data: bytes) -> bool:
        """Keeps bytes under a key. False where that cannot be."""
        ...


def read_joined(path: str | Path, progress: Progress | None, cache: Kept) -> Trace:
    """The trace of a file; with what is inside its launches of captured graphs, if it has any.

    Raises: like `visualprof.reader.read_trace`, of the file itself; a capture that cannot be read becomes a warning.
    """
    builder = read_into_builder(path, progress)
    may_launch = builder.mentions(GRAPH_LAUNCH)
    trace = builder.build(levels=not may_launch)
    if not may_launch:
        return trace
    if lost := launches_without_work(trace):
        warning = msg(
            "reader.launches_graphs_no_kernel",
            f"{lost:,} launches of graphs have no kernel in the recording: what they ran is unknown",
        )
        trace = trace.with_columns(meta=replace(trace.meta, warnings=(*trace.meta.warnings, warning)))
    launches = graph_launches(trace)
    if launches is not None:
        own = graphs_of(trace, Path(path).name) if builder.mentions(BEGIN_CAPTURE) else Capture(())
        beside = [_capture(file, cache) for file in captures_of(path)]
        return joined(trace, launches, [own, *beside] if own.graphs else beside)
    return trace.with_columns(pyramid=build_event_pyramid(trace))


def _capture(file: Path, cache: Kept) -> Capture:
    """The graphs of a capture: as an earlier reader of this version launches them, or read anew."""
    try:
        key = blake2b(f"{Source(file).fingerprint()}:{reader_version()}:graphs".encode(), digest_size=16).hexdigest()
        data = cache.load_bytes(key)
        if data is not None:
            return _DECODER.decode(data)
        capture = graphs_of(read_trace(file), file.name)
        cache.store_bytes(key, _ENCODER.encode(capture))
        return capture
    except (VisualprofError, msgspec.MsgspecError) as error:
        return Capture((), (), (msg("reader.capture_cannot_read", f"the capture {file.name} cannot be read: {error}"),))
