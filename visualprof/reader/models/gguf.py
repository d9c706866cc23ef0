"""GGUF of llama.cpp: metadata and a table of tensors in front of the data, which are not read.

Layout, little-endian: magic, version, number of tensors, number of metadata entries; entries (key, type, value);
tensors (name, number of dimensions, dimensions with the innermost first, type, offset).
"""

from __future__ import annotations

import struct

from visualprof.messages import msg
from visualprof.reader.graph import ModelBuilder, ModelGraph, Value
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.weights import add_tensors
from visualprof.reader.source import Source

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEAD_SIZES = (1 << 22, 1 << 26, 1 << 30)  # tokenizers of large models take 10 MB
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 8
MAX_DEPTH = 4  # of arrays in arrays
MAX_TEXT_CHARS = 200
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Name, elements per block and bytes per block of each type.
TYPES = {
    int(number): (name, int(elements), int(size))
    for number, name, elements, size in (
        entry.split(":")
        for entry in """
        0:float32:1:4 1:float16:1:2 2:q4_0:32:18 3:q4_1:32:20 6:q5_0:32:22 7:q5_1:32:24 8:q8_0:32:34 9:q8_1:32:40
        10:q2_k:256:84 11:q3_k:256:110 12:q4_k:256:144 13:q5_k:256:176 14:q6_k:256:210 15:q8_k:256:292
        16:iq2_xxs:256:66 17:iq2_xs:256:74 18:iq3_xxs:256:98 19:iq1_s:256:50 20:iq4_nl:32:18 21:iq3_s:256:110
        22:iq2_s:256:82 23:iq4_xs:256:136 24:int8:1:1 25:int16:1:2 26:int32:1:4 27:int64:1:8 28:float64:1:8
        29:iq1_m:256:56 30:bfloat16:1:2 34:tq1_0:256:54 35:tq2_0:256:66 39:mxfp4:32:17
    """.split()
    )
}


class _Truncated(Exception):
    """The data end before the table of tensors ends."""


class _Cursor:
    """Reads consecutive values.

    Args:
        data: The start of the file.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def number(self, code: str) -> int | float | bool:
        """Return the next number of a type of `struct`."""
        try:
            (value,) = struct.unpack_from(f"<{code}", self._data, self._offset)
        except struct.error as error:
            raise _Truncated from error
        self._offset += struct.calcsize(f"<{code}")
        return value

    def count(self, code: str = "Q") -> int:
        """Return the next integer."""
        return int(self.number(code))

    def text(self) -> str:
        """Return the next string."""
        return self._take(self.count()).decode("utf-8", "replace")

    def skip(self, size: int) -> None:
        """Skip some bytes."""
        self._take(size)

    def _take(self, size: int) -> bytes:
        end = self._offset + size
        if end > len(self._data):
            raise _Truncated
        piece, self._offset = self._data[self._offset : end], end
        return piece


def sniff(head: bytes) -> bool:
    """Return whether the magic is that of GGUF."""
    return head.startswith(MAGIC)


def read(source: Source) -> ModelGraph:
    """Read the metadata and the table of tensors; as little of the file as they need."""
    version = int.from_bytes(source.head(8)[4:], "little")
    if version not in VERSIONS:
        raise source.error(
            msg("models.gguf_version", f"GGUF of version {version}, which is not read"),
            msg("models.convert_gguf_again", "convert the model again with a newer llama.cpp"),
        )
    model = next((parsed for size in _head_sizes(source.size) if (parsed := _try_parse(source, size))), None)
    if model is None:
        raise _damaged(source, msg("models.gguf_ends_early", "the table of tensors is incomplete"))
    return model


def _head_sizes(file_size: int) -> list[int]:
    """Return the sizes to try, until the whole file is covered."""
    return [size for i, size in enumerate(HEAD_SIZES) if i == 0 or HEAD_SIZES[i - 1] < file_size]


def _try_parse(source: Source, size: int) -> ModelGraph | None:
    """Return the model, or `None` if its tables are longer than the first `size` bytes."""
    try:
        return _parse(source, _Cursor(source.head(size)))
    except _Truncated:
        return None
    except ValueError as error:
        raise _damaged(source, str(error)) from error


def _damaged(source: Source, problem: str) -> Exception:
    return source.error(problem, msg("models.cut_while_being_copied", "was it cut while being copied?"))


def _parse(source: Source, cursor: _Cursor) -> ModelGraph:
    cursor.skip(8)
    tensors, entries = cursor.count(), cursor.count()
    if tensors > MAX_TENSORS:
        raise ValueError(msg("models.gguf_tensors", f"it states {tensors:,} tensors"))
    builder = ModelBuilder(source.name, "gguf")
    builder.producer = "GGUF"
    for _ in range(entries):
        key, value = cursor.text(), _value(cursor, cursor.count("I"))
        if value:
            builder.properties[key] = value
    builder.name = builder.properties.get("general.name") or source.name
    add_tensors(builder, [_tensor(cursor) for _ in range(tensors)])
    return builder.build()


def _value(cursor: _Cursor, kind: int, depth: int = 0) -> str:
    """Return a metadata value as text, "" for an array."""
    if kind == STRING:
        return cursor.text()[:MAX_TEXT_CHARS]
    if kind == ARRAY and depth < MAX_DEPTH:
        item, length = cursor.count("I"), cursor.count()
        if item in SCALARS:
            cursor.skip(length * struct.calcsize(f"<{SCALARS[item]}"))
        else:
            for _ in range(length):  # 128,000 tokens take 0.1 s
                _value(cursor, item, depth + 1)
        return ""
    if kind not in SCALARS:
        raise ValueError(msg("models.gguf_value_type", f"a metadata value has the unknown type {kind}"))
    return str(cursor.number(SCALARS[kind]))


def _tensor(cursor: _Cursor) -> Value:
    """Return a tensor. Its shape is given in the order of PyTorch, outermost dimension first."""
    name, dimensions = cursor.text(), cursor.count("I")
    if dimensions > MAX_DIMENSIONS:
        raise ValueError(msg("models.gguf_dimensions", f"the tensor {name!r} has {dimensions:,} dimensions"))
    shape = tuple(reversed([cursor.count() for _ in range(dimensions)]))
    number = cursor.count("I")
    cursor.skip(8)
    dtype, block, size = TYPES.get(number, (f"type {number}", 0, 0))
    elements = Value(name, "", shape).elements
    return Value(name, dtype, shape, elements // block * size if block and elements >= 0 else -1)


MODEL = ModelFormat("gguf", "GGUF", 27, sniff, read, suffixes=(".gguf",))
