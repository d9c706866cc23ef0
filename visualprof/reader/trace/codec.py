"""The file of a cached trace: a header, then its columns as they lie in memory.

8 bytes magic, header length, total length, check of what follows; the header in JSON; the raw columns, each at a
multiple of 64 bytes, so that they can be memory-mapped.
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
from visualprof.reader.trace.joined import JoinedTrace

_MAGIC = b"VPTRACE\x03"
_START = struct.Struct("<8sQQQ")
_CHECK_BUFFER_BYTES = 1 << 20
_CHECK_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no block's part of the check is lost
_ALIGN_BYTES = 64
# Folders below reader/; others do not touch a trace.
_TRACE_FOLDERS = (".", "trace", "chrome", "megengine", "formats", "native", "graph_capture")

_GRAPH_COLUMNS = [name for name in Graphs.__struct_fields__ if name != "args"]

_Array = NDArray[Any]


class DamagedFile(Exception):
    """Not a whole and undamaged file of this schema, reader and content."""


class Strings(Sequence[str]):
    """The string dictionary of a cached trace: decoded one by one when asked, all at once when iterated."""

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
        if len(text) != len(self._blob):  # not ASCII: bytes are not characters
            return (self[i] for i in range(len(self)))
        ends = self._offsets.tolist()
        return (text[a:b] for a, b in pairwise(ends))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, Strings)) and tuple(self) == tuple(cast("Sequence[str]", other))

    def __hash__(self) -> int:
        return hash(tuple(self))


class _Column(msgspec.Struct):
    """Where an array lies, counted from the end of the header."""

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


# Made once, while the module is imported: msgspec prepares a type on its first use, and two threads that do so at the
# same moment end the process (msgspec 0.22 publishes what it prepares before it is whole).
_HEADER_DECODER = msgspec.json.Decoder(_Header)


@cache
def reader_version(folders: tuple[str, ...] = _TRACE_FOLDERS) -> str:
    """Changes with every change of what reads a profile or lays out a trace; 45 files, about a millisecond.

    folders: below that of the reader; `/**` at the end is with all folders in it.
    """
    digest = zlib.crc32(__version__.encode())
    for folder in folders:
        path = f"{Path(__file__).parents[1]}/{folder.removesuffix('/**')}"
        paths = sorted(subfolder for subfolder, _, _ in os.walk(path)) if folder.endswith("/**") else [path]
        for path in paths:
            for name in sorted(os.listdir(path)):  # a list, because `glob` takes as long as all else
                if name.endswith((".py", ".c", ".h")):  # the C of a checkout, too
                    with open(f"{path}/{name}", "rb") as file:
                        digest = zlib.crc32(file.read(), digest)
    return f"{__version__}-{digest:08x}"


@cache
def _column_groups() -> dict[str, type[Any]]:
    """The parts of a trace that are arrays and nothing else, by name: events, links, counters, ..."""
    hints = get_type_hints(Trace)
    kinds = ((name, hints[name]) for name in Trace.__struct_fields__ if name != "meta")
    return {name: kind for name, kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)}


def encode(trace: Trace, fingerprint: str, file: FileIO) -> int:
    """Write a trace into a new file, open for reading too, and returns its size."""
    graphs = trace.graphs if isinstance(trace, JoinedTrace) else None
    trace = trace.file_trace if isinstance(trace, JoinedTrace) else trace
    arrays: list[_Array] = []
    column_of_array: dict[int, _Column] = {}  # arguments of the same events share their rows
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
    """All of some bytes; an unbuffered file may take them in pieces."""
    view = memoryview(data)
    while view.nbytes:
        view = view[file.write(view) :]


def decode(file: FileIO, fingerprint: str) -> Trace:
    """The trace in a file; its columns are memory-mapped. The file is read once to be checked: 12 ms for 90 MB.

    Raises: Damaged: it is not whole, was damaged, or is of another schema, reader or content.
    """
    try:
        expected = _START.unpack(file.read(_START.size))[-1]
        if _checksum(file) != expected:
            raise ValueError("damaged")
        return _decode(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), fingerprint)
    except (ValueError, TypeError, KeyError, struct.error, msgspec.MsgspecError) as error:
        raise DamagedFile(str(error)) from error


def _checksum(file: FileIO) -> int:
    """A number that changes with every bit of the rest of a file: of sums of 8 byte words, a third of crc32's time.

    Read, not mapped: what a view does not need would count as memory of the process.
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
        flat: Any = np.frombuffer(body, dtype, count, column.offset)  # read-only, as the map is
        return flat.reshape(column.shape)

    def arrays(columns: Mapping[str, _Column]) -> dict[str, Any]:
        return {name: array(column) for name, column in columns.items()}

    def arguments(args: Mapping[str, _Argument]) -> dict[str, ArgColumn]:
        return {k: ArgColumn(array(a.events), array(a.values), a.text) for k, a in args.items()}

    fields: dict[str, Any] = {name: kind(**arrays(header.groups[name])) for name, kind in _column_groups().items()}
    fields["strings"] = Strings(memoryview(array(header.blob)), array(header.offsets))
    fields |= {"tracks": tuple(header.tracks), "args": arguments(header.args), "meta": header.meta}
    if not header.graphs:
        return Trace(**fields)
    return JoinedTrace(**fields, graphs=Graphs(**arrays(header.graphs), args=arguments(header.graph_args)))


def _pack_strings(strings: Sequence[str]) -> tuple[_Array, NDArray[np.int64]]:
    """All strings as UTF-8 in one piece, and where each starts and the last ends."""
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
