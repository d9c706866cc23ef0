"""Python interface of the scanner of Chrome trace events, which `scan.h` describes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint64, c_void_p
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader import native
from visualprof.reader.native import function

Ids, Ints, Values = NDArray[np.int32], NDArray[np.int64], NDArray[Any]
PADDING = 64  # zero bytes after a text
MAX_FIELDS = 64
INTEGER, FLOAT, TEXT, TIME, ARROW = range(5)
WHOLE, ENDED, OPEN, REFUSED, _MEMORY = range(5)
DTYPES = {INTEGER: np.int64, FLOAT: np.float64, TEXT: np.int32, TIME: np.int64, ARROW: np.int64}
_INT64S = POINTER(c_int64)


class Fields(msgspec.Struct, frozen=True):
    """The arguments to keep.

    Attributes:
        types: Column type of each argument, by our name.
        keys: Their JSON keys.
        masks: Bit mask of the arguments to keep, by event category; other categories keep all.
    """

    types: Mapping[str, int]
    keys: Sequence[str]
    masks: Mapping[str, int]


class Scanned(NamedTuple):
    """Result of a scan.

    Attributes:
        state: One of WHOLE, ENDED, OPEN and REFUSED.
        stop: Offset up to which the text was read.
        first: The reader's first row of the text.
        last: The reader's last row of the text.
    """

    state: int
    stop: int
    first: int
    last: int


class Part(NamedTuple):
    """Rows [first, last) of a reader, in the order of the file."""

    reader: Reader
    first: int
    last: int


class Joined(msgspec.Struct, frozen=True):
    """Columns of several parts.

    `columns` has rows and values of each argument, of flows, of series and of their values.
    """

    kind: Ids
    thread: Ids
    ts: Ints
    dur: Ints
    columns: list[tuple[Ints, Values]]


def compiled() -> bool:
    """Return whether the native scanner is available."""
    return native.library() is not None


def find_border(text: memoryview) -> int:
    """Return the end of the last event that is probably followed by another, 0 if missing.

    PADDING must follow the text.
    """
    return int(_call("vp_border", c_int64, c_void_p, c_int64)(_address(text), len(text)))


class Reader:
    """Scans texts into columns; for one thread at a time."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._names = _strings(fields.keys), _strings([*fields.masks])  # the reader refers to these
        types, masks = fields.types, fields.masks
        self.address = _check_allocated(
            _call("vp_reader_new", c_void_p, c_void_p, c_void_p, c_int32, c_void_p, c_void_p, c_int32)(
                self._names[0],
                (c_int32 * len(types))(*types.values()),
                len(types),
                self._names[1],
                (c_uint64 * len(masks))(*masks.values()),
                len(masks),
            )
        )

    def __del__(self) -> None:
        _call("vp_reader_free", None, c_void_p)(getattr(self, "address", None))

    @property
    def column_types(self) -> list[int]:
        """Types of the columns: arguments, flows, series, and values of samples."""
        return [*self.fields.types.values(), ARROW, TEXT, FLOAT]

    def scan(self, text: memoryview, *, first: bool) -> Scanned:
        """Append the events of a text, which PADDING must follow; `first` means that no event came before."""
        out = (c_int64 * 3)()
        scan = _call("vp_scan", c_int32, c_void_p, c_void_p, c_int64, c_int32, _INT64S)
        state = scan(self.address, _address(text), len(text), first, out)
        if state == _MEMORY:
            raise MemoryError
        return Scanned(state, *out)


class SharedWords:
    """One dictionary of the words that several readers saw."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers  # the dictionary refers to the readers' texts
        self.address = _check_allocated(_call("vp_shared_new", c_void_p)())
        if not all(_call("vp_share", c_int32, c_void_p, c_void_p)(self.address, reader.address) for reader in readers):
            raise MemoryError

    def __del__(self) -> None:
        _call("vp_shared_free", None, c_void_p)(getattr(self, "address", None))

    def __len__(self) -> int:
        return int(_call("vp_word_count", c_int64, c_void_p)(self.address))

    def parts(self, table: int) -> Ids:
        """Return the words of each kind (`table` 0: n, 3) or thread (1: n, 2); the first row means none."""
        call = _call("vp_parts", c_int64, c_void_p, c_int32, c_void_p)
        out = np.zeros((call(self.address, table, None), 2 if table else 3), np.int32)
        call(self.address, table, out.ctypes.data)
        return out

    def words(self, numbers: Ids) -> tuple[bytes, Ints]:
        """Return words as one JSON list, (n,), and the end of each in it; an empty string for 0."""
        call = _call("vp_json_words", c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_void_p)
        numbers, sizes = np.ascontiguousarray(numbers, np.int32), np.zeros(len(numbers), np.int64)
        arguments = (self.address, numbers.ctypes.data, len(numbers), sizes.ctypes.data)
        out = np.empty(call(*arguments, None), np.uint8)
        call(*arguments, out.ctypes.data)
        return out.tobytes() if len(numbers) else b"[]", np.cumsum(sizes + 1)


def join(parts: Sequence[Part], types: Sequence[int]) -> Joined:
    """Concatenate columns with shared numbers. The readers lose their columns."""
    sizes = [part.last - part.first for part in parts]
    n, bases = sum(sizes), np.cumsum([0, *sizes])[:-1].tolist()
    counts = np.zeros((len(parts), len(types)), np.int64)
    count = _call("vp_counts", None, c_void_p, c_int64, c_int64, c_void_p)
    for part, part_counts in zip(parts, counts, strict=True):
        count(part.reader.address, part.first, part.last, part_counts.ctypes.data)
    rows = np.array([(p.reader.address, p.first, p.last, base) for p, base in zip(parts, bases, strict=True)], np.int64)
    part_rows = rows.ctypes.data, len(rows)
    events: list[Values] = [np.empty(n, dtype) for dtype in (np.int32, np.int32, np.int64, np.int64)]
    copy_events = _call("vp_copy_events", None, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p)
    copy_events(*part_rows, *(column.ctypes.data for column in events))
    copy = _call("vp_copy_column", None, c_void_p, c_int64, c_int32, c_void_p, c_void_p)
    drop = _call("vp_drop_column", None, c_void_p, c_int32)
    leaders, readers = _leaders(parts, counts), {part.reader.address for part in parts}
    columns: list[tuple[Ints, Values]] = []
    for k, (leader, size, type_) in enumerate(zip(leaders, counts.sum(axis=0).tolist(), types, strict=True)):
        value_rows = np.empty(size, np.int64) if leader == k else columns[leader][0]
        values = np.empty(size, DTYPES[type_])
        copy(*part_rows, k, value_rows.ctypes.data if leader == k else None, values.ctypes.data)
        columns.append((value_rows, values))
        for reader in readers:
            drop(reader, k)
    kind, thread, ts, dur = events
    return Joined(kind, thread, ts, dur, columns)


def _leaders(parts: Sequence[Part], counts: Ints) -> list[int]:
    """Return for each column the first column with the same rows; `counts` is (parts, columns) numbers of values."""
    call = _call("vp_same_rows", c_int32, c_void_p, c_int64, c_int64, c_int32, c_int32)

    def same_rows(a: int, b: int) -> bool:
        if not np.array_equal(counts[:, a], counts[:, b]):
            return False
        valued = (part for part, count in zip(parts, counts[:, a].tolist(), strict=True) if count)
        return all(call(part.reader.address, part.first, part.last, a, b) for part in valued)

    leaders: list[int] = []
    for column in range(counts.shape[1]):
        leaders.append(next((leader for leader in dict.fromkeys(leaders) if same_rows(leader, column)), column))
    return leaders


def renumber(ids: Ids, number: Ids, order: Ids, known_count: int) -> int:
    """Renumber one column in place, like `renumber_by_appearance`; return the number of known names."""
    call = _call("vp_renumber", c_int64, c_void_p, c_int64, c_void_p, c_void_p, c_int64)
    return int(call(ids.ctypes.data, len(ids), number.ctypes.data, order.ctypes.data, known_count))


def _call(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    call = function(name, result, *arguments)
    assert call, "asked for only where it is compiled"
    return call


def _check_allocated(address: int | None) -> int:
    if not address:
        raise MemoryError
    return address


def _strings(texts: Sequence[str]) -> ctypes.Array[c_char_p]:
    return (c_char_p * len(texts))(*(text.encode() for text in texts))


def _address(text: memoryview) -> int:
    return int(np.frombuffer(text, np.uint8).ctypes.data)
