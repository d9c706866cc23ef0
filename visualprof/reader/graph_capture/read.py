"""Read a recording with its capture traces, each reduced to its graphs and cached."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.reader import read_into_builder, read_trace
from visualprof.reader.digest import blake2b
from visualprof.reader.graph_capture.files import find_captures
from visualprof.reader.graph_capture.graphs import BEGIN_CAPTURE, Capture, extract_graphs
from visualprof.reader.graph_capture.join import join_captures
from visualprof.reader.graph_capture.launches import GRAPH_LAUNCH, graph_launches, launches_without_work
from visualprof.reader.source import Progress, Source
from visualprof.reader.trace import Trace
from visualprof.reader.trace.codec import reader_version
from visualprof.reader.trace.joined import build_event_pyramid

_DECODER = msgspec.msgpack.Decoder(Capture)
_ENCODER = msgspec.msgpack.Encoder()


class ByteStore(Protocol):
    """A cache of bytes."""

    def load_bytes(self, key: str) -> bytes | None:
        """Return the bytes stored under a key, or `None`."""

    def store_bytes(self, key: str, data: bytes) -> bool:
        """Store bytes under a key. Return `False` if that is impossible."""
        ...


def read_joined(path: str | Path, progress: Progress | None, cache: ByteStore) -> Trace:
    """Return the trace of a file, including the contents of its captured graphs, if any.

    A capture trace that cannot be read becomes a warning.

    Raises:
        VisualprofError: As for `visualprof.reader.read_trace`, for the file itself.
    """
    builder = read_into_builder(path, progress)
    may_launch = builder.mentions(GRAPH_LAUNCH)
    trace = builder.build(levels=not may_launch)
    if not may_launch:
        return trace
    if without_work := launches_without_work(trace):
        warning = msg(
            "reader.launches_graphs_no_kernel",
            f"{without_work:,} graph launches have no kernels in the recording, so their work is unknown",
        )
        trace = trace.with_columns(meta=replace(trace.meta, warnings=(*trace.meta.warnings, warning)))
    launches = graph_launches(trace)
    if launches is not None:
        recorded = extract_graphs(trace, Path(path).name) if builder.mentions(BEGIN_CAPTURE) else Capture(())
        captures = [_load_capture(file, cache) for file in find_captures(path)]
        return join_captures(trace, launches, [recorded, *captures] if recorded.graphs else captures)
    return trace.with_columns(pyramid=build_event_pyramid(trace))


def _load_capture(file: Path, cache: ByteStore) -> Capture:
    """Return the graphs of a capture trace, from the cache or by reading it."""
    try:
        key = blake2b(f"{Source(file).fingerprint()}:{reader_version()}:graphs".encode(), digest_size=16).hexdigest()
        data = cache.load_bytes(key)
        if data is not None:
            return _DECODER.decode(data)
        capture = extract_graphs(read_trace(file), file.name)
        cache.store_bytes(key, _ENCODER.encode(capture))
        return capture
    except (VisualprofError, msgspec.MsgspecError) as error:
        return Capture((), (), (msg("reader.capture_cannot_read", f"the capture {file.name} cannot be read: {error}"),))
