"""Tables of a FlatBuffer, read without a schema: fields by their number. No file makes it read more than it holds."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from visualprof.messages import msg

_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_UINT16 = struct.Struct("<H")
SIZES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8}


class FlatbufferError(Exception):
    """It does not hold what it says."""


class _Bytes:
    """A file, and what may still be read of it: vectors that overlap would cost more than the file is long."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = 4 * len(data) + 4096

    def unpack(self, kind: struct.Struct, place: int) -> int:
        if not 0 <= place <= len(self.data) - kind.size:
            raise FlatbufferError(msg("reader.byte_lies_outside", f"byte {place:,} lies outside"))
        self.spend(kind.size)
        return kind.unpack_from(self.data, place)[0]

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise FlatbufferError(msg("reader.parts_overlap", "its parts overlap"))


class Table:
    """A table; a field that is not there has its default."""

    def __init__(self, whole: _Bytes, place: int) -> None:
        self._whole, self._place = whole, place
        self._fields = place - whole.unpack(_INT32, place)
        self._size = whole.unpack(_UINT16, self._fields)

    def _field(self, number: int) -> int:
        """Where a field lies, 0 where it is not there."""
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        offset = self._whole.unpack(_UINT16, self._fields + entry)
        return self._place + offset if offset else 0

    def _vector(self, number: int, size: int) -> tuple[int, int]:
        """Where a vector's elements begin, and how many there are."""
        field = self._field(number)
        if not field:
            return 0, 0
        place = field + self._whole.unpack(_UINT32, field)
        count = self._whole.unpack(_UINT32, place)
        if place + 4 + count * size > len(self._whole.data):
            raise FlatbufferError(
                msg("reader.vector_elements_not_fit", f"a vector of {count:,} elements does not fit in")
            )
        return place + 4, count

    def has(self, number: int) -> bool:
        """Whether a field is there."""
        return self._field(number) > 0

    def number(self, number: int, kind: str, default: int = 0) -> int:
        """A scalar. kind: of `struct`."""
        field = self._field(number)
        return self._whole.unpack(struct.Struct("<" + kind), field) if field else default

    def table(self, number: int) -> Table | None:
        """A table that it refers to."""
        field = self._field(number)
        return Table(self._whole, field + self._whole.unpack(_UINT32, field)) if field else None

    def tables(self, number: int) -> Iterator[Table]:
        """A vector of tables."""
        start, count = self._vector(number, 4)
        for place in range(start, start + 4 * count, 4):
            yield Table(self._whole, place + self._whole.unpack(_UINT32, place))

    def numbers(self, number: int, kind: str = "i") -> tuple[int, ...]:
        """A vector of scalars."""
        start, count = self._vector(number, SIZES[kind])
        self._whole.spend(count * SIZES[kind])
        return struct.unpack_from(f"<{count}{kind}", self._whole.data, start)

    def length(self, number: int) -> int:
        """Bytes of a vector of bytes, which are not read."""
        return self._vector(number, 1)[1]

    def text(self, number: int) -> str:
        """A text."""
        start, count = self._vector(number, 1)
        self._whole.spend(count)
        return self._whole.data[start : start + count].decode("utf-8", "replace")


def root(data: bytes) -> Table:
    """The outermost table.

    Raises: FlatbufferError: here and in all that is read of it.
    """
    whole = _Bytes(data)
    return Table(whole, whole.unpack(_UINT32, 0))
