"""File format of a cached trace: a header, followed by the columns in their memory layout.

The file has 8 bytes magic, header length, total length and checksum of the rest. The header in JSON follows, then the
raw columns, each at a multiple of 64 bytes, so that they can be memory-mapped.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, get_type_hints, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof import __version__
from visualprof.reader.trace import SCHEMA_VERSION, ArgColumn, Meta, Trace, Track
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.heap import Heap
from visualprof.reader.trace.joined import JoinedTrace

_MAGIC = b"VPTRACE\x03"
_START = struct.Struct("<8sQQQ")
_CHECK_BUFFER_BYTES = 1 << 20
_CHECK_FACTOR = 0x9E3779B97F4A7C15  # odd, so that every block contributes to the checksum
_ALIGN_BYTES = 64
# Folders below reader/ whose code affects a trace.
_TRACE_FOLDERS = (
    *(".", "trace", "chrome", "ascend", "megengine", "formats", "native", "graph_capture", "memory_snapshot"),
)

_GRAPH_COLUMNS = [name for name in Graphs.__struct_fields__ if name != "args"]

_Array = NDArray[Any]


class DamagedFile(Exception):
    """The file is incomplete or damaged, or has another schema, reader version or content."""


class Strings(Sequence[str]):
    """String table of a cached trace: strings are decoded on access, all at once in an iteration."""

    def __init__(self, blob: memoryview, offsets: NDArray[np.int64]) -> None:
        self._blob = blob
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return str(self._blob[self._offsets[place] : self._offsets[place + 1]], "utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        text = str(self._blob, "utf-8", "surrogatepass")
        if len(text) != len(self._blob):  # not ASCII: bytes and characters differ
            return (self[i] for i in range(len(self)))
        ends = self._offsets.tolist()
        return (text[a:b] for a, b in pairwise(ends))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, Strings)) and tuple(self) == tuple(cast("Sequence[str]", other))

    def __hash__(self) -> int:
        return hash(tuple(self))


class _Column(msgspec.Struct):
    """Location of an array, relative to the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class _Argument(msgspec.Struct):
    events: _Column
    values: _Column
    text: bool


class _Header(msgspec.Struct):
    schema: int
    reader: str
    fingerprint: str
    blob: _Column
    offsets: _Column
    groups: dict[str, dict[str, _Column]]
    args: dict[str, _Argument]
    tracks: list[Track]
    meta: Meta
    graphs: dict[str, _Column] = {}
    graph_args: dict[str, _Argument] = {}
    heap: dict[str, dict[str, _Column]] = {}


# Created at import time: msgspec prepares a type on first use, and two threads that do so at the same time crash the
# process (msgspec 0.22 publishes the type before it is complete).
_HEADER_DECODER = msgspec.json.Decoder(_Header)


@cache
def reader_version(folders: tuple[str, ...] = _TRACE_FOLDERS) -> str:
    """Return a version that changes with the code that reads profiles or lays out traces. Takes 1 ms for 45 files.

    Args:
        folders: Folders below the reader's; the ending `/**` includes subfolders.
    """
    digest = zlib.crc32(__version__.encode())
    for folder in folders:
        path = f"{Path(__file__).parents[1]}/{folder.removesuffix('/**')}"
        paths = sorted(subfolder for subfolder, _, _ in os.walk(path)) if folder.endswith("/**") else [path]
        for path in paths:
            for name in sorted(os.listdir(path)):  # `listdir`, because `glob` takes as long as all the rest
                if name.endswith((".py", ".c", ".h")):  # also the C sources of a checkout
                    with open(f"{path}/{name}", "rb") as file:
                        digest = zlib.crc32(file.read(), digest)
    return f"{__version__}-{digest:08x}"


@cache
def _column_groups() -> dict[str, type[Any]]:
    """Return the parts of a trace that consist of arrays only, by name: events, links, counters, ..."""
    hints = get_type_hints(Trace)
    kinds = ((name, hints[name]) for name in Trace.__struct_fields__ if name != "meta")
    return {name: kind for name, kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)}


@cache
def _heap_parts() -> dict[str, type[Any]]:
    """Return the parts of a heap, which consist of arrays only, by name."""
    hints = get_type_hints(Heap)
    return {name: hints[name] for name in Heap.__struct_fields__}


def encode(trace: Trace, fingerprint: str, file: FileIO) -> int:
    """Write a trace into a new file, which is also open for reading, and return its size."""
    graphs = trace.graphs if isinstance(trace, JoinedTrace) else None
    trace = trace.file_trace if isinstance(trace, JoinedTrace) else trace
    arrays: list[_Array] = []
    column_of_array: dict[int, _Column] = {}  # arguments of the same events share their event column
    end = 0

    def column(array: _Array) -> _Column:
        if id(array) not in column_of_array:
            column_of_array[id(array)] = append(array)
        return column_of_array[id(array)]

    def append(array: _Array) -> _Column:
        nonlocal end
        contiguous = np.ascontiguousarray(array)
        offset, end = end, _align(end + contiguous.nbytes)
        arrays.append(contiguous)
        return _Column(
            f"{contiguous.dtype.byteorder}{contiguous.dtype.kind}{contiguous.dtype.itemsize}", contiguous.shape, offset
        )

    def columns(struct: msgspec.Struct, names: Sequence[str]) -> dict[str, _Column]:
        return {name: column(getattr(struct, name)) for name in names}

    def arguments(args: Mapping[str, ArgColumn]) -> dict[str, _Argument]:
        return {k: _Argument(column(a.events), column(a.values), a.text) for k, a in args.items()}

    blob, offsets = _pack_strings(trace.strings)
    header = _Header(
        schema=SCHEMA_VERSION,
        reader=reader_version(),
        fingerprint=fingerprint,
        blob=column(blob),
        offsets=column(offsets),
        groups={name: columns(getattr(trace, name), kind.__struct_fields__) for name, kind in _column_groups().items()},
        args=arguments(trace.args),
        tracks=list(trace.tracks),
        meta=trace.meta,
        graphs=columns(graphs, _GRAPH_COLUMNS) if graphs else {},
        graph_args=arguments(graphs.args) if graphs else {},
        heap={name: columns(getattr(trace.heap, name), kind.__struct_fields__) for name, kind in _heap_parts().items()}
        if trace.heap
        else {},
    )
    encoded = _header_json(header)
    body_start = _align(_START.size + len(encoded))
    parts: list[Any] = [encoded.ljust(body_start - _START.size, b"\0")]
    for array in arrays:
        parts += [_as_bytes(array), bytes(_align(array.nbytes) - array.nbytes)]
    for part in (bytes(_START.size), *parts):
        _write(file, part)
    file.seek(_START.size)
    checksum = _checksum(file)
    file.seek(0)
    _write(file, _START.pack(_MAGIC, len(encoded), body_start + end, checksum))
    return body_start + end


def _header_json(header: _Header) -> bytes:
    try:
        return msgspec.json.encode(header)
    except UnicodeEncodeError:  # half a surrogate pair in a name
        import json

        return json.dumps(msgspec.to_builtins(header), ensure_ascii=False).encode("utf-8", "replace")


def _as_bytes(array: Any) -> memoryview | bytes:
    return memoryview(array).cast("B") if array.nbytes else b""


def _write(file: FileIO, data: Any) -> None:
    """Write all data; an unbuffered file may write only a part per call."""
    view = memoryview(data)
    while view.nbytes:
        view = view[file.write(view) :]


def decode(file: FileIO, fingerprint: str) -> Trace:
    """Return the trace of a file; its columns are memory-mapped. The checksum requires one read: 12 ms for 90 MB.

    Raises:
        DamagedFile: The file is incomplete or damaged, or has another schema, reader version or content.
    """
    try:
        expected = _START.unpack(file.read(_START.size))[-1]
        if _checksum(file) != expected:
            raise ValueError("damaged")
        return _decode(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), fingerprint)
    except (ValueError, TypeError, KeyError, struct.error, msgspec.MsgspecError) as error:
        raise DamagedFile(str(error)) from error


def _checksum(file: FileIO) -> int:
    """Return a checksum of the rest of a file: sums of 8-byte words, which take a third of the time of crc32.

    The file is read rather than mapped: mapped pages that no view needs would count as memory of the process.
    """
    buffer = bytearray(_CHECK_BUFFER_BYTES)
    words = np.frombuffer(buffer, np.uint64)
    check = 0
    while size := file.readinto(buffer):
        check = (check * _CHECK_FACTOR + int(words[: size // 8].sum())) % 2**64
    return check


def _decode(mapped: memoryview, fingerprint: str) -> Trace:
    magic, length, total, _ = _START.unpack_from(mapped)
    if magic != _MAGIC or total != len(mapped):
        raise ValueError("not a whole cache file")
    header = _HEADER_DECODER.decode(mapped[_START.size : _START.size + length])
    if (header.schema, header.reader, header.fingerprint) != (SCHEMA_VERSION, reader_version(), fingerprint):
        raise ValueError("of another reader")
    body = mapped[_align(_START.size + length) :]

    def array(column: _Column) -> Any:
        dtype = np.dtype(column.dtype)
        count = int(np.prod(column.shape, dtype=np.int64))
        if count == 0:
            return np.zeros(column.shape, dtype)
        flat: Any = np.frombuffer(body, dtype, count, column.offset)  # read-only, like the map
        return flat.reshape(column.shape)

    def arrays(columns: Mapping[str, _Column]) -> dict[str, Any]:
        return {name: array(column) for name, column in columns.items()}

    def arguments(args: Mapping[str, _Argument]) -> dict[str, ArgColumn]:
        return {k: ArgColumn(array(a.events), array(a.values), a.text) for k, a in args.items()}

    fields: dict[str, Any] = {name: kind(**arrays(header.groups[name])) for name, kind in _column_groups().items()}
    fields["strings"] = Strings(memoryview(array(header.blob)), array(header.offsets))
    fields |= {"tracks": tuple(header.tracks), "args": arguments(header.args), "meta": header.meta}
    if header.heap:
        fields["heap"] = Heap(**{name: kind(**arrays(header.heap[name])) for name, kind in _heap_parts().items()})
    if not header.graphs:
        return Trace(**fields)
    return JoinedTrace(**fields, graphs=Graphs(**arrays(header.graphs), args=arguments(header.graph_args)))


def _pack_strings(strings: Sequence[str]) -> tuple[_Array, NDArray[np.int64]]:
    """Return all strings as contiguous UTF-8, and the offset of each start and of the end."""
    text = "".join(strings)
    if text.isascii():
        data = text.encode()
        sizes = list(map(len, strings))
    else:
        encoded = [s.encode("utf-8", "surrogatepass") for s in strings]
        data = b"".join(encoded)
        sizes = list(map(len, encoded))
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return np.frombuffer(data, np.uint8), offsets


def _align(size: int) -> int:
    return -(-size // _ALIGN_BYTES) * _ALIGN_BYTES
