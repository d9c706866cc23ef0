"""CRC-32C (Castagnoli), as TensorBoard's event files use it, of many byte ranges at once."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace.types import Bytes, Ints, Mask

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_MAX_COLUMN_BYTES = 4096  # longer ranges are rarely of equal size


@cache
def _table() -> NDArray[np.uint32]:
    """Return the CRC of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C of bytes."""
    table: list[int] = _table().tolist()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes | memoryview) -> int:
    """Return the CRC-32C of bytes in the masked form in which event files store it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crcs(data: Bytes, start: Ints, size: Ints) -> NDArray[np.uint32]:
    """Return the masked CRCs of byte ranges, (n,). Ranges of equal size are computed together."""
    crcs = np.zeros(len(start), np.uint32)
    for length in set(size.tolist()):
        rows = np.flatnonzero(size == length)
        if length > _MAX_COLUMN_BYTES:
            crcs[rows] = [masked_crc(data[first : first + length].tobytes()) for first in start[rows].tolist()]
        else:
            crcs[rows] = _masked(_column_crcs(data, start[rows], length))
    return crcs


def _column_crcs(data: Bytes, start: Ints, size: int) -> NDArray[np.uint32]:
    table = _table()
    crc: NDArray[np.uint32] = np.full(len(start), 0xFFFFFFFF, np.uint32)
    for offset in range(size):
        crc = table[(crc ^ data[start + offset]) & 255] ^ crc >> np.uint32(8)
    return crc ^ np.uint32(0xFFFFFFFF)


def _masked(crc: NDArray[np.uint32]) -> NDArray[np.uint32]:
    rotated: NDArray[np.uint32] = crc >> np.uint32(15) | crc << np.uint32(17)
    return rotated + np.uint32(_MASK_DELTA)


def valid_headers(data: Bytes, start: Ints) -> Mask:
    """Return which positions, (n,), start a record of an event file: a size and its checksum, 12 bytes."""
    stored = number_at(data, start + 8, 4)
    return stored == _masked(_column_crcs(data, start, 8)).astype(np.int64)


def number_at(data: Bytes, start: Ints, width: int) -> Ints:
    """Return the little-endian numbers of `width` bytes at positions, (n,); 8 bytes are signed."""
    numbers = np.zeros(len(start), np.uint64)
    for i in range(width):
        numbers |= data[start + i].astype(np.uint64) << np.uint64(8 * i)
    return numbers.astype(np.int64)
