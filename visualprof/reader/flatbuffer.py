"""Read tables of a FlatBuffer without a schema: fields by number.

The bytes read are limited to about four times the size of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from visualprof.messages import msg

_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_UINT16 = struct.Struct("<H")
SCALAR_BYTES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8}


class FlatbufferError(Exception):
    """The content of the FlatBuffer is inconsistent."""


class _Buffer:
    """A file with a budget of bytes to read: overlapping vectors would cost more than the size of the file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._budget = 4 * len(data) + 4096

    def unpack(self, kind: struct.Struct, offset: int) -> int:
        """Return the number at an offset.

        Raises:
            FlatbufferError: The offset is outside the file, or the budget is spent.
        """
        if not 0 <= offset <= len(self.data) - kind.size:
            raise FlatbufferError(msg("reader.byte_lies_outside", f"byte {offset:,} is outside of the file"))
        self.spend(kind.size)
        return kind.unpack_from(self.data, offset)[0]

    def spend(self, size: int) -> None:
        """Charge bytes to the budget.

        Raises:
            FlatbufferError: The budget is spent.
        """
        self._budget -= size
        if self._budget < 0:
            raise FlatbufferError(msg("reader.parts_overlap", "its parts overlap"))


class Table:
    """A table. A missing field has its default value."""

    def __init__(self, buffer: _Buffer, offset: int) -> None:
        self._buffer, self._offset = buffer, offset
        self._fields = offset - buffer.unpack(_INT32, offset)
        self._size = buffer.unpack(_UINT16, self._fields)

    def _field(self, number: int) -> int:
        """Return the offset of a field, 0 if the field is missing."""
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        offset = self._buffer.unpack(_UINT16, self._fields + entry)
        return self._offset + offset if offset else 0

    def _vector(self, number: int, size: int) -> tuple[int, int]:
        """Return the offset of a vector's first element, and the number of elements."""
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
        """Return whether a field exists."""
        return self._field(number) > 0

    def number(self, number: int, kind: str, default: int = 0) -> int:
        """Return a scalar; `kind` is a format character of `struct`."""
        field = self._field(number)
        return self._buffer.unpack(struct.Struct("<" + kind), field) if field else default

    def table(self, number: int) -> Table | None:
        """Return a referenced table, or `None` if the field is missing."""
        field = self._field(number)
        return Table(self._buffer, field + self._buffer.unpack(_UINT32, field)) if field else None

    def tables(self, number: int) -> Iterator[Table]:
        """Yield the tables of a vector."""
        start, count = self._vector(number, 4)
        for offset in range(start, start + 4 * count, 4):
            yield Table(self._buffer, offset + self._buffer.unpack(_UINT32, offset))

    def numbers(self, number: int, kind: str = "i") -> tuple[int, ...]:
        """Return a vector of scalars."""
        start, count = self._vector(number, SCALAR_BYTES[kind])
        self._buffer.spend(count * SCALAR_BYTES[kind])
        return struct.unpack_from(f"<{count}{kind}", self._buffer.data, start)

    def length(self, number: int) -> int:
        """Return the size of a byte vector, without reading its bytes."""
        return self._vector(number, 1)[1]

    def text(self, number: int) -> str:
        """Return a string."""
        start, count = self._vector(number, 1)
        self._buffer.spend(count)
        return self._buffer.data[start : start + count].decode("utf-8", "replace")


def root_table(data: bytes) -> Table:
    """Return the root table.

    Raises:
        FlatbufferError: The content is inconsistent. All methods of the table raise it as well.
    """
    buffer = _Buffer(data)
    return Table(buffer, buffer.unpack(_UINT32, 0))
