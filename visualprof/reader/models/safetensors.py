"""safetensors: a JSON header with name, type, shape and position of each tensor. Tensors themselves are not read.

A model in several files has an index, `model.safetensors.index.json`, that names the file of each tensor. Reading the
index reads the whole model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, integer, json_list, json_object, text
from visualprof.reader.graph import ModelBuilder, ModelGraph, Value
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.weights import add_tensors
from visualprof.reader.registry import opens_with
from visualprof.reader.source import Source

MAX_HEADER_BYTES = 100_000_000  # the limit of the format
MAX_INDEX_BYTES = 1 << 30
LENGTH_BYTES = 8
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
_HEADER = re.compile(rb".{6}\x00\x00\{\s*\"", re.DOTALL)
_DIGITS = re.compile(r"(\d+)")


def sniff(head: bytes) -> bool:
    """Return whether this is a header with its length in front, or the index of a model in several files."""
    return _HEADER.match(head) is not None or _is_index(head)


def read(source: Source) -> ModelGraph:
    """Read the headers of one file, or of all files that an index names."""
    builder = ModelBuilder(source.name, "safetensors")
    builder.producer = "safetensors"
    if _is_index(source.head()):
        tensors = [tensor for shard in _shards(source) for tensor in _tensors(shard, builder)]
    else:
        tensors = _tensors(source, builder)
    add_tensors(builder, sorted(tensors, key=lambda tensor: _natural_key(tensor.name)))
    return builder.build()


def _is_index(head: bytes) -> bool:
    return opens_with(head, b"{") and b'"weight_map"' in head and b".safetensors" in head


def _shards(source: Source) -> Iterator[Source]:
    """Yield the files of an index, which must be next to the index."""
    hint = msg("models.download_all_shards", "download all files of the model")
    data = source.read_all(MAX_INDEX_BYTES, msg("models.safetensors_index", "an index of safetensors"), hint)
    with source.decoding(msg("models.index_of_safetensors", "index of safetensors"), hint):
        document = json_object(msgspec.json.decode(data))
    for name in sorted({text(file) for file in json_object(document.get("weight_map")).values()}):
        path = source.path.parent / name
        if not name or Path(name).name != name or not path.is_file():
            raise source.error(msg("models.missing_shard", f"the file {name!r} is not next to this index"), hint)
        yield Source(path)


def _tensors(source: Source, builder: ModelBuilder) -> list[Value]:
    """Return the tensors of one file, and add its metadata to the model."""
    hint = msg("models.cut_while_being_copied", "was it cut while being copied?")
    size = int.from_bytes(source.head(LENGTH_BYTES), "little")
    header = source.head(LENGTH_BYTES + min(size, MAX_HEADER_BYTES))[LENGTH_BYTES:]
    with source.decoding(msg("models.header_of_safetensors", "header of safetensors"), hint):
        document = json_object(msgspec.json.decode(header))
    builder.properties |= {key: text(value) for key, value in json_object(document.pop("__metadata__", None)).items()}
    return [_tensor(name, json_object(entry)) for name, entry in document.items()]


def _tensor(name: str, entry: Json) -> Value:
    """Return a tensor; a missing or invalid shape or position is unknown."""
    sizes = [integer(size) for size in json_list(entry.get("shape"))]
    shape = tuple(size for size in sizes if size is not None and size >= 0)
    start, end = ([integer(offset) for offset in json_list(entry.get("data_offsets"))] + [None, None])[:2]
    dtype = text(entry.get("dtype"))
    return Value(
        name,
        DTYPES.get(dtype, dtype.lower()),
        shape if "shape" in entry and len(shape) == len(sizes) else None,
        end - start if start is not None and end is not None else -1,
    )


def _natural_key(name: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of a name in which `layers.10` follows `layers.9`."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in _DIGITS.split(name)]


MODEL = ModelFormat(
    "safetensors", "safetensors", 26, sniff, read, suffixes=(".safetensors",), shared_suffixes=(".index.json",)
)
