"""A model's graph as bytes: what the process that read it leaves for the one that shows it."""

from __future__ import annotations

import gc
import zlib

import msgspec

from visualprof.messages import msg
from visualprof.reader.graph import ModelGraph, ModelTooLarge

MAX_GRAPH_BYTES = 64 << 20  # 0.2 KB a node; in memory it takes ten times as much

# Made while the module is imported, for the reason given in `reader.trace.codec`.
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ModelGraph)


def encode(graph: ModelGraph) -> bytes:
    """The graph with its checksum in front.

    Raises: ModelTooLarge: it is larger than can be shown.
    """
    body = _ENCODER.encode(graph)
    if len(body) > MAX_GRAPH_BYTES:
        raise ModelTooLarge(
            msg(
                "reader.models_names_attributes_take",
                f"the model's names and attributes take over {MAX_GRAPH_BYTES >> 20} MiB, more than can be shown",
            )
        )
    return zlib.crc32(body).to_bytes(4, "little") + body


def decode(data: bytes) -> ModelGraph:
    """The inverse of `encode`.

    Raises: ValueError: it is not what was written.
    """
    body = memoryview(data)[4:]
    if zlib.crc32(body) != int.from_bytes(data[:4], "little"):
        raise ValueError("damaged")
    collecting = gc.isenabled()
    gc.disable()  # of objects that all stay; looking for others takes seven eighths of the time, in which nobody runs
    try:
        return _DECODER.decode(body)
    finally:
        if collecting:
            gc.enable()
