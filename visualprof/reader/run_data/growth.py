"""New values of a file, read by a child process: passed through a pipe, or mapped from the cache."""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.run_data.framing import Kind
from visualprof.reader.run_data.rows import RestartMark
from visualprof.reader.run_data.series import Points, Samples, Series

_MAGIC = b"VPDATA\x00\x01"
_START = struct.Struct("<8sQQQ")  # magic, size of the state, size of the file, checksum of the state
_ALIGN_BYTES = 8


class Damage(NamedTuple):
    """A range of a file that was skipped.

    Attributes:
        offset: Offset of the first byte.
        size: Number of bytes.
        reason: The problem.
    """

    offset: int
    size: int
    reason: str


class SeriesHead(msgspec.Struct):
    """The properties of a series, and the number of its new values.

    Attributes:
        tag: The tag.
        plugin: Like `Series`.
        content: Like `Series`.
        display_name: Like `Series`.
        description: Like `Series`.
        points: Number of new scalars.
        is_double: Whether the scalars have 64 bits.
        samples: Number of other new values.
    """

    tag: str
    plugin: str
    content: bytes
    display_name: str
    description: str
    points: int = 0
    is_double: bool = False
    samples: int = 0


class FileState(msgspec.Struct, kw_only=True):
    """How far a file was read.

    Attributes:
        generation: Changes when the file is read again from its start.
        kind: Format of the file.
        inode: Number of the file in its file system.
        head: First bytes of the file.
        offset: Offset after the last whole record.
        size: Size of the file when it was read.
        mtime_ns: Modification time of the file when it was read.
        restarts: Like `EventFile`.
        damages: Like `EventFile`.
        tail: Damage at the end of the file.
        is_complete: Like `EventFile`.
        problem: Like `EventFile`.
        series: The series.
    """

    generation: int
    kind: Kind | None
    inode: int
    head: bytes
    offset: int
    size: int
    mtime_ns: int
    restarts: list[RestartMark]
    damages: list[Damage]
    tail: Damage | None
    is_complete: bool
    problem: str
    series: list[SeriesHead]


# Created at import time, because msgspec must not prepare a type in two threads at once.
_DECODER = msgspec.msgpack.Decoder(FileState)


class Growth(NamedTuple):
    """New values of a file.

    Attributes:
        state: How far the file was read.
        values: Scalars and other values of each series of the state.
        mapping: The file in the cache that holds the values, `None` for values in memory.
    """

    state: FileState
    values: list[tuple[Points, Samples]]
    mapping: mmap.mmap | None = None


def series_head(tag: str, series: Series) -> SeriesHead:
    """Return the properties of a series with the number of its values."""
    points, samples = series.points, series.samples
    return SeriesHead(
        tag=tag,
        plugin=series.plugin,
        content=series.content,
        display_name=series.display_name,
        description=series.description,
        points=len(points.step),
        is_double=points.value.dtype == np.float64,
        samples=len(samples.step),
    )


def encode_growth(growth: Growth) -> Iterable[bytes]:
    """Yield the bytes of a file in the cache."""
    state = msgspec.msgpack.encode(growth.state)
    columns = [column for values in growth.values for part in values for column in part]
    total = _START.size + _padded(len(state)) + sum(_padded(column.nbytes) for column in columns)
    yield _START.pack(_MAGIC, len(state), total, zlib.crc32(state))
    yield state + bytes(-len(state) % _ALIGN_BYTES)
    for column in columns:
        yield column.tobytes()
        yield bytes(-column.nbytes % _ALIGN_BYTES)


def load_growth(path: Path) -> Growth | None:
    """Return the growth in a file of the cache, with memory-mapped columns; `None` if it is missing or damaged."""
    try:
        with path.open("rb", buffering=0) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, size, total, checksum = _START.unpack_from(data)
    except (OSError, ValueError, struct.error):
        return None
    raw = data[_START.size : _START.size + size]
    if magic != _MAGIC or total != len(data) or zlib.crc32(raw) != checksum:
        return None
    state = _DECODER.decode(raw)
    return Growth(state, _map_values(state, data, _START.size + _padded(size)), data)


def _map_values(state: FileState, data: mmap.mmap, offset: int) -> list[tuple[Points, Samples]]:
    def column(dtype: type[Any], count: int) -> NDArray[Any]:
        nonlocal offset
        values = np.frombuffer(data, dtype, count, offset)
        offset += _padded(values.nbytes)
        return values

    values: list[tuple[Points, Samples]] = []
    for head in state.series:
        number = np.float64 if head.is_double else np.float32
        points = Points(*(column(dtype, head.points) for dtype in (np.int64, np.int64, number)))
        samples = Samples(*(column(np.int64, head.samples) for _ in Samples._fields))
        values.append((points, samples))
    return values


def _padded(size: int) -> int:
    return size + -size % _ALIGN_BYTES
