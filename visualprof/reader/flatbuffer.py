"""Tables of a FlatBuffer, read without a schema: fields by their number. No file makes it read more than it holds."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from visualprof.messages import msg

_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_UINT16 = struct.Struct("<H")
SCALAR_BYTES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8}


class FlatbufferError(Exception):
    """It does not hold what it says."""


class _Buffer:
    """A file, and what may still be read of it: vectors that overlap would cost more than the file is long."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._budget = 4 * len(data) + 4096

    def unpack(self, kind: struct.Struct, offset: int) -> int:
        if not 0 <= offset <= len(self.data) - kind.size:
            raise FlatbufferError(msg("reader.byte_lies_outside", f"byte {offset:,} lies outside"))
        self.spend(kind.size)
        return kind.unpack_from(self.data, offset)[0]

    def spend(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            raise FlatbufferError(msg("reader.parts_overlap", "its parts overlap"))


class Table:
    """A table; a field that is not there has its default."""

    def __init__(self, buffer: _Buffer, offset: int) -> None:
        self._buffer, self._offset = buffer, offset
        self._fields = offset - buffer.unpack(_INT32, offset)
        self._size = buffer.unpack(_UINT16, self._fields)

    def _field(self, number: int) -> int:
        """Where a field lies, 0 where it is not there."""
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        offset = self._buffer.unpack(_UINT16, self._fields + entry)
        return self._offset + offset if offset else 0

    def _vector(self, number: int, size: int) -> tuple[int, int]:
        """Where a vector's elements begin, and how many there are."""
        field = self._field(number)
        if not field:
            return 0, 0
        offset = field + self._buffer.unpack(_UINT32, field)
        count = self._buffer.unpack(_UINT32, offset)
        if offset + 4 + count * size > len(self._buffer.data):
            raise FlatbufferError(
                msg("reader.vector_elements_not_fit", f"a vector of {count:,} elements does not fit in")
            )
        return offset + 4, count

    def has(self, number: int) -> bool:
        """Whether a field is there."""
        return self._field(number) > 0

    def number(self, number: int, kind: str, default: int = 0) -> int:
        """A scalar. kind: of `struct`."""
        field = self._field(number)
        return self._buffer.unpack(struct.Struct("<" + kind), field) if field else default

    def table(self, number: int) -> Table | None:
        """A table that it refers to."""
        field = self._field(number)
        return Table(self._buffer, field + self._buffer.unpack(_UINT32, field)) if field else None

    def tables(self, number: int) -> Iterator[Table]:
        """A vector of tables."""
        start, count = self._vector(number, 4)
        for offset in range(start, start + 4 * count, 4):
            yield Table(self._buffer, offset + self._buffer.unpack(_UINT32, offset))

    def numbers(self, number: int, kind: str = "i") -> tuple[int, ...]:
        """A vector of scalars."""
        start, count = self._vector(number, SCALAR_BYTES[kind])
        self._buffer.spend(count * SCALAR_BYTES[kind])
        return struct.unpack_from(f"<{count}{kind}", self._buffer.data, start)

    def length(self, number: int) -> int:
        """Bytes of a vector of bytes, which are not read."""
        return self._vector(number, 1)[1]

    def text(self, number: int) -> str:
        """A text."""
        start, count = self._vector(number, 1)
        self._buffer.spend(count)
        return self._buffer.data[start : start + count].decode("utf-8", "replace")


def root_table(data: bytes) -> Table:
    """The outermost table.

    Raises: FlatbufferError: here and in all that is read of it.
    """
    buffer = _Buffer(data)
    return Table(buffer, buffer.unpack(_UINT32, 0))
