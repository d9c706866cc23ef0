"""Parse protobuf messages field by field. Only requested fields are inspected, and weights are never copied.

Wire format: https://protobuf.dev/programming-guides/encoding. Why not generated classes: docs/adr/0027.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from visualprof.messages import msg

MAX_REPEATED = 200_000  # the largest current models have 50,000
MAX_FIELD_NUMBER = 128  # no requested field has a larger number
_FIXED_WIDTHS = {5: 4, 1: 8}  # sizes in bytes by wire type


class ProtobufError(ValueError):
    """The bytes are not a protobuf message, or not of the expected type."""


class Message:
    """One message. A missing field is 0, "" or an empty message, as in protobuf.

    All methods raise `ProtobufError` if the message is damaged or a field has another type.
    """

    __slots__ = ("_data", "_last_cache")

    def __init__(self, data: bytes | memoryview = b"") -> None:
        self._data = memoryview(data)
        self._last_cache: dict[int, int | memoryview] | None = None

    def messages(self, field: int) -> Iterator[Message]:
        """Yield the messages of a repeated field."""
        messages = (Message(_bytes(value, field)) for number, value in self._fields() if number == field)
        for count, message in enumerate(messages):
            if count == MAX_REPEATED:
                raise ProtobufError(msg("reader.over_parts_one_message", f"over {MAX_REPEATED:,} parts of one message"))
            yield message

    def message(self, field: int) -> Message:
        """Return a submessage, empty if the field is missing."""
        return Message(_bytes(self._last_values.get(field, b""), field))

    def texts(self, field: int) -> Iterator[str]:
        """Return the strings of a repeated field."""
        return (_text(_bytes(value, field)) for number, value in self._fields() if number == field)

    def text(self, field: int) -> str:
        """Return a string; invalid UTF-8 becomes replacement characters."""
        return _text(_bytes(self._last_values.get(field, b""), field))

    def content(self, field: int) -> memoryview:
        """Return the bytes of a string or message, empty if the field is missing."""
        return memoryview(_bytes(self._last_values.get(field, b""), field))

    def contents(self, field: int) -> Iterator[memoryview]:
        """Yield the bytes of each string of a repeated field."""
        return (memoryview(_bytes(value, field)) for number, value in self._fields() if number == field)

    def size(self, field: int) -> int:
        """Return the size of a string or message in bytes."""
        return len(_bytes(self._last_values.get(field, b""), field))

    def number(self, field: int) -> int:
        """Return an integer; 64-bit values are signed."""
        return _signed(self._last_values.get(field, 0), field)

    def numbers(self, field: int) -> Iterator[int]:
        """Yield the integers of a repeated field, packed or not."""
        for number, value in self._fields():
            if number != field:
                continue
            if isinstance(value, int):
                yield _signed(value, field)
            else:
                offset = 0
                while offset < len(value):
                    packed, offset = _varint(value, offset)
                    yield _signed(packed, field)

    def real(self, field: int) -> float:
        """Return a float or double."""
        return next(_reals(self._last_values[field], field)) if field in self._last_values else 0.0

    def reals(self, field: int, width: int = 4) -> Iterator[float]:
        """Yield the floats (width 4) or doubles (8) of a repeated field, packed or not."""
        for number, value in self._fields():
            if number == field:
                yield from _reals(value, field, width)

    def __contains__(self, field: int) -> bool:
        return field in self._last_values

    @property
    def _last_values(self) -> dict[int, int | memoryview]:
        """The last occurrence of each field, which is the value of a non-repeated field."""
        if self._last_cache is None:
            self._last_cache = {number: value for number, value in self._fields() if number < MAX_FIELD_NUMBER}
        return self._last_cache

    def _fields(self) -> Iterator[tuple[int, int | memoryview]]:
        """Yield number and value of each field, in order."""
        data, offset, end = self._data, 0, len(self._data)
        while offset < end:
            tag = data[offset]
            offset += 1
            if tag > 127:
                tag, offset = _varint(data, offset - 1)
            kind = tag & 7
            if kind == 0:
                value, offset = _varint(data, offset)
                yield tag >> 3, value
                continue
            if kind == 2:
                size, offset = _varint(data, offset)
            elif kind in _FIXED_WIDTHS:
                size = _FIXED_WIDTHS[kind]
            else:
                raise ProtobufError(msg("reader.field_unknown_type", f"a field of unknown type {kind}"))
            if size > end - offset:
                raise ProtobufError(
                    msg("reader.field_bytes_where_left", f"a field of {size:,} bytes where {end - offset:,} are left")
                )
            yield tag >> 3, data[offset : offset + size]
            offset += size


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """Return a number and the offset after it."""
    if offset < len(data) and data[offset] < 128:
        return data[offset], offset + 1
    value = shift = 0
    for byte in data[offset : offset + 10]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + shift // 7
    raise ProtobufError(msg("reader.number_without_end", "a number without an end"))


def _signed(value: int | bytes | memoryview, field: int) -> int:
    if not isinstance(value, int):
        raise ProtobufError(msg("reader.field_no_number", f"field {field} is not a number"))
    return value - (1 << 64) if value >> 63 else value


def _bytes(value: int | bytes | memoryview, field: int) -> bytes | memoryview:
    if isinstance(value, int):
        raise ProtobufError(msg("reader.field_number", f"field {field} is a number"))
    return value


def _text(value: bytes | memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")


def _reals(value: int | memoryview, field: int, width: int = 0) -> Iterator[float]:
    data = _bytes(value, field)
    width = width or len(data)
    if width not in (4, 8) or len(data) % width:
        raise ProtobufError(msg("reader.field_no_float", f"field {field} is not a float"))
    return (number for (number,) in struct.iter_unpack("<f" if width == 4 else "<d", data))
