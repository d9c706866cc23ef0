"""Parse the fields of many protobuf messages at once into columns, for files with a million small messages.

Wire format: https://protobuf.dev/programming-guides/encoding. Single messages: visualprof/reader/protobuf.py.
"""

from __future__ import annotations

import contextlib
from ctypes import c_char_p, c_int64
from typing import NamedTuple

import numpy as np

from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace.types import Ids, Ints, Mask

_MAX_VARINT_BYTES = 10
_FIXED_WIDTHS = {1: 8, 5: 4}


class Fields(NamedTuple):
    """Fields of several messages, in order; all columns are (k,).

    Attributes:
        message: Index of the message among the parsed messages.
        number: Field number.
        value: The value of a numeric field, else the offset of the first byte.
        size: Number of bytes, -1 for a numeric field. Fixed-width numbers hold their 32 or 64 raw bits.
    """

    message: Ids
    number: Ids
    value: Ints
    size: Ints

    def with_number(self, number: int, texts: bool = False) -> Fields:
        """Return the fields with that number: the byte fields if `texts`, else the numeric fields."""
        return self.select((self.number == number) & ((self.size >= 0) == texts))

    def select(self, mask: Mask) -> Fields:
        """Return the fields at which the mask holds."""
        return Fields(self.message[mask], self.number[mask], self.value[mask], self.size[mask])

    @property
    def end(self) -> Ints:
        """Offsets of the ends of byte fields."""
        return self.value + self.size

    def last_values(self, number: int, messages: int, missing: int = 0) -> Ints:
        """Return the last value of a field per message, (messages,), or `missing`."""
        matching = self.with_number(number)
        column = np.full(messages, missing, np.int64)
        column[matching.message] = matching.value
        return column


def parse_fields(data: bytes, start: Ints, end: Ints) -> tuple[Fields, int]:
    """Parse the fields of the messages at `data[start:end]`.

    Args:
        data: The file.
        start: (n,) offsets of the first bytes.
        end: (n,) offsets of the ends.

    Returns:
        The fields of all undamaged messages, and the number of damaged messages.
    """
    counts = np.zeros(len(start), np.int64)
    count_fields = function("vp_field_counts", None, c_char_p, INT64, INT64, c_int64, INT64)
    fill_fields = function("vp_fields", None, c_char_p, INT64, INT64, c_int64, INT64, INT32, INT32, INT64, INT64)
    if count_fields is None or fill_fields is None:
        return _parse_fields(memoryview(data), start, end)
    messages = data, np.ascontiguousarray(start), np.ascontiguousarray(end), len(start), counts
    count_fields(*messages)
    total = int(np.maximum(counts, 0).sum())
    message, number = np.empty(total, np.int32), np.empty(total, np.int32)
    value, size = np.empty(total, np.int64), np.empty(total, np.int64)
    fill_fields(*messages, message, number, value, size)
    return Fields(message, number, value, size), int((counts < 0).sum())


def _parse_fields(data: memoryview, start: Ints, end: Ints) -> tuple[Fields, int]:
    """Pure-Python fallback of `parse_fields`."""
    rows: list[tuple[int, int, int, int]] = []
    damaged = 0
    for message, (offset, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        row_count = len(rows)
        try:
            while offset < stop:
                number, value, size, offset = _parse_field(data, offset, stop)
                rows.append((message, number, value, size))
        except ValueError:
            del rows[row_count:]
            damaged += 1
    return _columns(rows), damaged


def _parse_field(data: memoryview, offset: int, stop: int) -> tuple[int, int, int, int]:
    """Return number, value and size of a field, and the offset after it.

    Raises:
        ValueError: The field is damaged.
    """
    tag, offset = _parse_varint(data, offset, stop)
    number, kind = tag >> 3 & 0x1FFFFFFF, tag & 7
    if kind == 0:
        value, offset = _parse_varint(data, offset, stop)
        return number, _signed(value), -1, offset
    if kind == 2:
        size, offset = _parse_varint(data, offset, stop)
        if size > stop - offset:
            raise ValueError
        return number, offset, size, offset + size
    width = _FIXED_WIDTHS.get(kind, stop)
    if width > stop - offset:
        raise ValueError
    return number, _signed(int.from_bytes(data[offset : offset + width], "little")), -1, offset + width


def _parse_varint(data: memoryview, offset: int, stop: int) -> tuple[int, int]:
    """Return a number of at most ten bytes, and the offset after it.

    Raises:
        ValueError: The number does not end.
    """
    value = 0
    for i, byte in enumerate(data[offset : min(offset + _MAX_VARINT_BYTES, stop)]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + i + 1
    raise ValueError


def _signed(value: int) -> int:
    """Return a 64-bit number as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def parse_leading_fields(data: bytes) -> tuple[Fields, bool]:
    """Return the fields of a file that is one message, up to the first damage, and whether the message is complete."""
    rows: list[tuple[int, int, int, int]] = []
    view, offset = memoryview(data), 0
    with contextlib.suppress(ValueError):
        while offset < len(data):
            number, value, size, offset = _parse_field(view, offset, len(data))
            rows.append((0, number, value, size))
    return _columns(rows), offset == len(data)


def _columns(rows: list[tuple[int, int, int, int]]) -> Fields:
    """Return rows of (message, number, value, size) as columns."""
    table: Ints = np.array(rows, np.int64).reshape(-1, 4)
    return Fields(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2], table[:, 3])
