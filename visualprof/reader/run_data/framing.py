"""Split files of run data into records.

An event file of TensorBoard stores, per record, an 8-byte size, its checksum, the data, and their checksum. A VisualDL
log stores an 8-byte size and the data, without checksums.

A size is trusted only if the record ends within the file. After damage, reading continues at the next valid record.
"""

from __future__ import annotations

import struct
from ctypes import c_char_p, c_int64
from typing import Literal, NamedTuple

import numpy as np

from visualprof.reader.native import INT64, UINT8, function
from visualprof.reader.run_data.crc32c import masked_crcs, number_at, valid_headers
from visualprof.reader.trace.types import Bytes, Ints, Mask

Kind = Literal["tensorboard", "visualdl"]

MAX_RECORD_BYTES = 256 << 20
MAX_SEARCH_BYTES = 16 << 20  # a valid record must follow within this distance after damage
_SEARCH_BLOCK = 1 << 16
_HEADER_BYTES = {"tensorboard": 12, "visualdl": 8}
_TRAILER_BYTES = {"tensorboard": 4, "visualdl": 0}
_LENGTH = struct.Struct("<Q")
_RECORD_START = 0x0A  # the first field of a VisualDL record, its values


class Frames(NamedTuple):
    """The records of a piece of a file.

    Attributes:
        start: Offsets of the data of whole records, (n,).
        size: Sizes of the data, (n,).
        is_valid: Whether the checksum of the data is right, (n,).
        next: Offset of the first byte after these records.
        is_damaged: Whether the bytes at `next` cannot start a record; otherwise that record is incomplete.
        needed: Bytes of the incomplete record, 0 if unknown.
    """

    start: Ints
    size: Ints
    is_valid: Mask
    next: int
    is_damaged: bool
    needed: int


def split_frames(data: bytes, kind: Kind) -> Frames:
    """Return the records at the start of `data`, up to the first damaged or incomplete one."""
    scan = function("vp_run_frames", c_int64, c_char_p, c_int64, c_int64, c_int64, INT64, INT64, UINT8, INT64)
    if scan is None:
        return _split_frames(data, kind)
    capacity = len(data) // _HEADER_BYTES[kind] + 1
    start, size, valid = np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity, np.uint8)
    end = np.zeros(3, np.int64)
    arguments = data, len(data), int(kind == "visualdl"), MAX_RECORD_BYTES
    count = scan(*arguments, start, size, valid, end)
    following, is_damaged, needed = end.tolist()
    return Frames(start[:count], size[:count], valid[:count].astype(bool), following, bool(is_damaged), needed)


def _split_frames(data: bytes, kind: Kind) -> Frames:
    """Pure-Python fallback of `split_frames`."""
    header, trailer = _HEADER_BYTES[kind], _TRAILER_BYTES[kind]
    starts: list[int] = []
    sizes: list[int] = []
    offset, end, needed, is_damaged = 0, len(data), 0, False
    while end - offset >= header:
        (size,) = _LENGTH.unpack_from(data, offset)
        if size > MAX_RECORD_BYTES or (kind == "visualdl" and not _starts_record(data, offset, size)):
            is_damaged = True
            break
        if size + header + trailer > end - offset:
            needed = size + header + trailer
            break
        starts.append(offset + header)
        sizes.append(size)
        offset += header + size + trailer
    start, size = np.array(starts, np.int64), np.array(sizes, np.int64)
    if kind == "visualdl":
        return Frames(start, size, np.ones(len(start), bool), offset, is_damaged, needed)
    return _checked(np.frombuffer(data, np.uint8), Frames(start, size, np.ones(0, bool), offset, is_damaged, needed))


def _checked(data: Bytes, frames: Frames) -> Frames:
    """Return frames up to the first header with a wrong checksum, with the checks of their data."""
    headers = frames.start - 12
    if len(data) - frames.next >= 12:
        headers = np.append(headers, frames.next)
    broken = np.flatnonzero(~valid_headers(data, headers))
    start, size, offset, is_damaged, needed = frames.start, frames.size, frames.next, frames.is_damaged, frames.needed
    if len(broken):
        offset, is_damaged, needed = int(headers[broken[0]]), True, 0
        start, size = start[: broken[0]], size[: broken[0]]
    stored = number_at(data, start + size, 4)
    is_valid = stored == masked_crcs(data, start, size).astype(np.int64)
    return Frames(start, size, is_valid, offset, is_damaged, needed)


def _starts_record(data: bytes, offset: int, size: int) -> bool:
    """Whether a VisualDL record may start here: its only field must fit the size."""
    first = data[offset + 8 : offset + 20]
    if not size or (first and first[0] != _RECORD_START):
        return False
    inner = shift = 0
    for i, byte in enumerate(first[1:11]):
        inner |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return inner + i + 2 <= size
    return len(first) < 11  # the rest of the number is not in `data` yet


def find_record(data: bytes, offset: int, kind: Kind) -> int:
    """Return the offset of the next valid record at or after an offset, or -1.

    A record is valid if its header is valid and it ends within `data`. For VisualDL, its only field must also fill it.
    """
    view = np.frombuffer(data, np.uint8)
    last = min(len(data) - _HEADER_BYTES[kind], offset + MAX_SEARCH_BYTES)
    for first in range(offset, last + 1, _SEARCH_BLOCK):
        positions = np.arange(first, min(first + _SEARCH_BLOCK, last + 1), dtype=np.int64)
        for position in positions[_may_start(view, positions, kind)].tolist():
            (size,) = _LENGTH.unpack_from(data, position)
            fits = position + _HEADER_BYTES[kind] + size + _TRAILER_BYTES[kind] <= len(data)
            if fits and (kind == "tensorboard" or _fills_record(data, position, size)):
                return position
    return -1


def _may_start(view: Bytes, positions: Ints, kind: Kind) -> Mask:
    if kind == "tensorboard":
        return valid_headers(view, positions)
    starts = np.zeros(len(positions), bool)
    inside = positions + 9 < len(view)
    # Sizes above 2**32 are not searched, so four zero bytes precede the first field.
    starts[inside] = (view[positions[inside] + 8] == _RECORD_START) & (number_at(view, positions[inside] + 4, 4) == 0)
    return starts


def _fills_record(data: bytes, offset: int, size: int) -> bool:
    """Whether the only field of a VisualDL record ends where the record does."""
    inner = shift = 0
    for i, byte in enumerate(data[offset + 9 : offset + 14]):
        inner |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return inner > 0 and inner + i + 2 == size
    return False
