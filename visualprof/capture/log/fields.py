"""Encode the fields of protobuf messages, and records of event files."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from visualprof.capture.log.crc32c import masked_crc

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_INT64_MASK = (1 << 64) - 1
_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")


def varint(number: int) -> bytes:
    """Return an integer of 64 bits; negative numbers take 10 bytes."""
    number &= _INT64_MASK
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def integer(field: int, number: int) -> bytes:
    """Return a field with an integer."""
    return varint(field << 3 | _VARINT) + varint(number)


def double(field: int, number: float) -> bytes:
    """Return a field with a 64-bit float."""
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", number)


def single(field: int, number: float) -> bytes:
    """Return a field with a 32-bit float."""
    return varint(field << 3 | _FLOAT) + struct.pack("<f", number)


def content(field: int, data: bytes | str) -> bytes:
    """Return a field with bytes, a text or a message."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return varint(field << 3 | _BYTES) + varint(len(raw)) + raw


def doubles(field: int, numbers: Iterable[float]) -> bytes:
    """Return a packed field with 64-bit floats."""
    values = list(numbers)
    return content(field, struct.pack(f"<{len(values)}d", *values))


def header(size: int) -> bytes:
    """Return the bytes before the data of a record: its size and the checksum of the size."""
    length = _LENGTH.pack(size)
    return length + _CRC.pack(masked_crc(length))


def record(data: bytes) -> bytes:
    """Return a record of an event file."""
    return header(len(data)) + data + _CRC.pack(masked_crc(data))
