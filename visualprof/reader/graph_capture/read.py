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
from visualprof.reader.graph_capture.files import find_captures, recording_fingerprint
from visualprof.reader.graph_capture.graphs import BEGIN_CAPTURE, Capture, extract_graphs
from visualprof.reader.graph_capture.join import join_captures
from visualprof.reader.graph_capture.launches import GRAPH_LAUNCH, graph_launches, launches_without_work
from visualprof.reader.memory_snapshot.origins import Mismatch, join_recordings
from visualprof.reader.source import Progress, Source
from visualprof.reader.trace import Trace
from visualprof.reader.trace.codec import reader_version
from visualprof.reader.trace.joined import build_event_pyramid

MAX_RECORDING_BYTES = 256 << 20  # that is read along with a memory snapshot; a larger one is used from the cache
_DECODER = msgspec.msgpack.Decoder(Capture)
_ENCODER = msgspec.msgpack.Encoder()


class ByteStore(Protocol):
    """A cache of bytes and of traces."""

    def load(self, fingerprint: str) -> Trace | None:
        """Return the trace of a recording, or `None` if it is not stored."""

    def load_bytes(self, key: str) -> bytes | None:
        """Return the bytes stored under a key, or `None`."""

    def store_bytes(self, key: str, data: bytes) -> bool:
        """Store bytes under a key. Return `False` if that is impossible."""
        ...


def read_joined(path: str | Path, progress: Progress | None, cache: ByteStore) -> Trace:
    """Return the trace of a file, including the contents of its captured graphs, if any.

    A memory snapshot gets the operators and modules of its allocations from the recordings of the same process. A
    capture or recording that cannot be read becomes a warning.

    Raises:
        VisualprofError: As for `visualprof.reader.read_trace`, for the file itself.
    """
    builder = read_into_builder(path, progress)
    may_launch = builder.mentions(GRAPH_LAUNCH)
    trace = builder.build(levels=not may_launch)
    if trace.heap is not None:
        files = find_captures(path)
        return join_recordings(trace, ((file.name, _load_recording(file, cache)) for file in files)) if files else trace
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


def _load_recording(file: Path, cache: ByteStore) -> Trace | Mismatch:
    """Return the trace of a recording, from the cache or by reading it, or the reason why it cannot be used."""
    try:
        trace = cache.load(recording_fingerprint(file))
        if trace is None and file.stat().st_size > MAX_RECORDING_BYTES:
            return Mismatch(msg("reader.recording_too_large", "it is too large to be read along with the snapshot"))
        return trace or read_trace(file)
    except (VisualprofError, OSError, MemoryError) as error:
        return Mismatch(msg("reader.recording_cannot_read", f"it cannot be read: {error}"))


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
