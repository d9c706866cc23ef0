"""The header of an .npy file, read by numpy within limits: plain numbers only, and nothing that needs unpickling."""

from __future__ import annotations

import math
import struct
from tokenize import TokenError
from typing import BinaryIO

import numpy as np
from numpy.lib import format

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.remote.protocol import DTYPES

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000  # numpy's own limit, which numpy checks only after reading the header
MAX_RANK = 32
HINT = msg("queue.save_numpy_save_path", "save it with numpy.save(path, array), one array a file")


def read_header(file: BinaryIO, size: int, name: str) -> tuple[str, tuple[int, ...]]:
    """Return type and shape of an array of plain numbers, in either memory order.

    Args:
        file: The file, at its start.
        size: Size of the file.
        name: Name of the file in error messages.

    Raises:
        FormatError: The file is not such an array, or its data has another size than the shape.
    """
    version = _bounded(file, name)
    try:
        read = format.read_array_header_1_0 if version == 1 else format.read_array_header_2_0
        shape, _, dtype = read(file, MAX_HEADER)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError):
        raise FormatError(
            msg("queue.head_npy_file_damaged", f"{name}: the head of this .npy file is damaged"), HINT
        ) from None
    _refuse_other(dtype, name)
    if len(shape) > MAX_RANK or any(type(s) is not int or not 0 <= s < 1 << 40 for s in shape):
        raise FormatError(msg("queue.shape_none_array_can", f"{name}: invalid array shape"), HINT)
    if 0 in shape:
        raise FormatError(
            msg("queue.array_without_values_shape", f"{name}: an array without values (shape {list(shape)})"), HINT
        )
    have, need = size - file.tell(), math.prod(shape) * dtype.itemsize
    if have < need:
        missing = msg("queue.bytes_values_missing", f"{need - have:,} of {need:,} bytes of the values are missing")
        raise FormatError(f"{name}: {missing}", msg("queue.cut_while_being_copied", "was it cut while being copied?"))
    if have > need:
        raise FormatError(
            msg("queue.bytes_more_than_head", f"{name}: {have - need:,} bytes more than its head says"), HINT
        )
    return str(dtype), shape


def _bounded(file: BinaryIO, name: str) -> int:
    """Check that the header is short and complete; return the version of the format.

    The file is left at the position of the header's length.
    """
    start = file.read(8)
    if not start.startswith(MAGIC):
        if start[:1] == b"\x80":
            raise FormatError(
                msg(
                    "queue.python_pickle_opening_one",
                    f"{name}: a Python pickle; opening one may run any code, so it is refused",
                ),
                HINT,
            )
        raise FormatError(
            msg("queue.not_npy_file", f"{name}: not an .npy file")
            if start
            else msg("queue.file_empty", f"{name}: the file is empty"),
            HINT,
        )
    if len(start) < 8 or start[6] not in (1, 2, 3):
        raise FormatError(msg("queue.npy_file_unknown_version", f"{name}: an .npy file of an unknown version"), HINT)
    length = struct.Struct("<H" if start[6] == 1 else "<I")
    text = file.read(length.size).ljust(length.size, b"\0")
    size = length.unpack(text)[0]
    if size > MAX_HEADER:
        raise FormatError(
            msg("queue.head_bytes_long_most", f"{name}: its head is {size:,} bytes long; {MAX_HEADER:,} are the most"),
            HINT,
        )
    if not size or len(file.read(size)) < size:
        raise FormatError(
            msg("queue.cut_off_head", f"{name}: cut off in its head"),
            msg("queue.cut_while_being_copied", "was it cut while being copied?"),
        )
    file.seek(8)
    return start[6]


def _refuse_other(dtype: np.dtype[np.generic], name: str) -> None:
    if dtype.hasobject:
        raise FormatError(
            msg(
                "queue.holds_python_objects_pickle",
                f"{name}: holds Python objects (a pickle); opening one may run any code, so it is refused",
            ),
            msg("queue.save_plain_numbers_numpy", "save plain numbers: numpy.save(path, array.astype('float32'))"),
        )
    if dtype.names or dtype.subdtype:
        raise FormatError(
            msg("queue.array_records_not_plain", f"{name}: an array of records, not of plain numbers"), HINT
        )
    if dtype.name not in DTYPES:
        raise FormatError(
            msg("queue.values_type", f"{name}: values of type {dtype.str[:20]!r}"),
            msg("queue.what_can_fed", f"what can be fed: {', '.join(DTYPES)}"),
        )
    if not dtype.isnative:
        hint = msg("queue.save_array_astype_array", "save it as array.astype(array.dtype.newbyteorder('<'))")
        raise FormatError(msg("queue.big_endian_values", f"{name}: big-endian values ({dtype.str})"), hint)
