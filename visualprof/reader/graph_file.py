"""Serialize a model graph: the process that reads a model passes the graph to the process that shows it."""

from __future__ import annotations

import gc
import zlib

import msgspec

from visualprof.messages import msg
from visualprof.reader.graph import ModelGraph, ModelTooLarge

MAX_GRAPH_BYTES = 64 << 20  # 0.2 KB per node; in memory the graph takes ten times as much

# Created at import time, for the reason given in `reader.trace.codec`.
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ModelGraph)


def encode(graph: ModelGraph) -> bytes:
    """Return the graph as bytes, prefixed with a checksum.

    Raises:
        ModelTooLarge: The graph is larger than can be shown.
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
    """Return the graph of bytes from `encode`.

    Raises:
        ValueError: The bytes are damaged.
    """
    body = memoryview(data)[4:]
    if zlib.crc32(body) != int.from_bytes(data[:4], "little"):
        raise ValueError("damaged")
    collecting = gc.isenabled()
    gc.disable()  # all objects stay alive; collecting takes seven eighths of the time and blocks other threads
    try:
        return _DECODER.decode(body)
    finally:
        if collecting:
            gc.enable()
