"""CRC-32C (Castagnoli) in plain Python, two bytes at a time."""

from __future__ import annotations

import struct
from functools import cache

START = 0xFFFFFFFF
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


def _after_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ _POLYNOMIAL if crc & 1 else crc >> 1
    return crc


@cache
def table() -> tuple[int, ...]:
    """Return the CRC of each pair of bytes, 65,536 numbers (15 ms)."""
    single = [_after_byte(byte) for byte in range(256)]
    return tuple(single[(single[pair & 255] ^ pair >> 8) & 255] ^ single[pair & 255] >> 8 for pair in range(1 << 16))


def extend(crc: int, data: bytes) -> int:
    """Return the state after more bytes. The first state is `START`."""
    pairs = table()
    words: tuple[int, ...] = struct.unpack_from(f"<{len(data) >> 1}H", data)
    for pair in words:
        crc = pairs[(crc ^ pair) & 0xFFFF] ^ crc >> 16
    return _after_byte((crc ^ data[-1]) & 255) ^ crc >> 8 if len(data) & 1 else crc


def mask(crc: int) -> int:
    """Return the masked form, as event files store it, of a state."""
    crc ^= START
    return (crc >> 15 | crc << 17) + _MASK_DELTA & 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of bytes."""
    return mask(extend(START, data))
