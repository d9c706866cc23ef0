"""Fields of many messages of protobuf at once, as columns: for files with a million small messages.

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
    """Fields of some messages, in their order; (k,) each.

    message: place of the message among those that were asked for. number: of the field. value: of a number; else where
    the bytes begin. size: bytes; -1 of a number, whose 64 or 32 bits are as they lie there.
    """

    message: Ids
    number: Ids
    value: Ints
    size: Ints

    def with_number(self, number: int, texts: bool = False) -> Fields:
        """The fields of that number. texts: those that are bytes, else those that are numbers."""
        return self.select((self.number == number) & ((self.size >= 0) == texts))

    def select(self, mask: Mask) -> Fields:
        """Some of them."""
        return Fields(self.message[mask], self.number[mask], self.value[mask], self.size[mask])

    @property
    def end(self) -> Ints:
        """Where bytes end."""
        return self.value + self.size

    def last_values(self, number: int, messages: int, missing: int = 0) -> Ints:
        """The value of a single field of each message, (messages,)."""
        matching = self.with_number(number)
        column = np.full(messages, missing, np.int64)
        column[matching.message] = matching.value
        return column


def parse_fields(data: bytes, start: Ints, end: Ints) -> tuple[Fields, int]:
    """The fields of the messages that lie at `data[start:end]`.

    Args:
        data: the file.
        start, end: (n,) bounds within it.

    Returns: the fields, without those of damaged messages, and how many messages are damaged.
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
    """Without the compiled functions."""
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
    """Number, value and size of a field, and the place behind it. Raises: ValueError."""
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
    """A number of at most ten bytes, and the place behind it. Raises: ValueError."""
    value = 0
    for i, byte in enumerate(data[offset : min(offset + _MAX_VARINT_BYTES, stop)]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + i + 1
    raise ValueError


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def parse_leading_fields(data: bytes) -> tuple[Fields, bool]:
    """The fields of a file that is one message, up to where it is cut or damaged; and whether it is whole."""
    rows: list[tuple[int, int, int, int]] = []
    view, offset = memoryview(data), 0
    with contextlib.suppress(ValueError):
        while offset < len(data):
            number, value, size, offset = _parse_field(view, offset, len(data))
            rows.append((0, number, value, size))
    return _columns(rows), offset == len(data)


def _columns(rows: list[tuple[int, int, int, int]]) -> Fields:
    table: Ints = np.array(rows, np.int64).reshape(-1, 4)
    return Fields(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2], table[:, 3])
