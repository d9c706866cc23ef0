"""The head of an .npy file, read without numpy: an array of plain numbers, and nothing that must be unpickled."""

from __future__ import annotations

import ast
import math
import re
import struct
from typing import Any, BinaryIO, NoReturn

from visualprof.errors import FormatError

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000  # numpy itself refuses longer ones
MAX_RANK = 32
TYPES = {
    "f2": "float16", "f4": "float32", "f8": "float64", "b1": "bool", "i1": "int8", "u1": "uint8", "i2": "int16",
    "u2": "uint16", "i4": "int32", "u4": "uint32", "i8": "int64", "u8": "uint64",
}  # fmt: skip
HINT = "save it with numpy.save(path, array), one array a file"


def header(file: BinaryIO, size: int, name: str) -> tuple[str, tuple[int, ...]]:
    """Type and shape of an array of plain numbers in either order of its dimensions.

    Args: file: at its start. size: bytes of all of it. name: for messages.
    Raises: FormatError: it is no such array, or its data is shorter or longer than the shape needs.
    """
    described = _described(file, name)
    dtype, width = _dtype(described.get("descr"), name)
    shape = described.get("shape")
    if not isinstance(shape, tuple) or not isinstance(described.get("fortran_order"), bool):
        _broken(name)
    sizes: list[Any] = list(shape)  # pyright: ignore[reportUnknownArgumentType]
    if len(sizes) > MAX_RANK or any(type(s) is not int or not 0 <= s < 1 << 40 for s in sizes):
        raise FormatError(f"{name}: its shape is none an array can have", HINT)
    if 0 in sizes:
        raise FormatError(f"{name}: an array without values (shape {sizes})", HINT)
    _fits(name, size - file.tell(), math.prod(sizes) * width)
    return dtype, tuple(sizes)


def _described(file: BinaryIO, name: str) -> dict[str, Any]:
    """The dictionary that a head is: Python's literals, nothing else."""
    start = file.read(8)
    if not start.startswith(MAGIC):
        if start[:1] == b"\x80":
            raise FormatError(f"{name}: a Python pickle; opening one may run any code, so it is refused", HINT)
        raise FormatError(f"{name}: not an .npy file" if start else f"{name}: the file is empty", HINT)
    if len(start) < 8 or start[6] not in (1, 2, 3):
        raise FormatError(f"{name}: an .npy file of an unknown version", HINT)
    form = "<H" if start[6] == 1 else "<I"
    packed = file.read(struct.calcsize(form))
    length = struct.unpack(form, packed)[0] if len(packed) == struct.calcsize(form) else 0
    if length > MAX_HEADER:
        raise FormatError(f"{name}: its head is {length:,} bytes long; {MAX_HEADER:,} are the most", HINT)
    text = file.read(length)
    if not length or len(text) < length:
        raise FormatError(f"{name}: cut off in its head", "was it cut while being copied?")
    try:
        found = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin-1").strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        _broken(name)
    return found if isinstance(found, dict) else _broken(name)  # pyright: ignore[reportUnknownVariableType]


def _dtype(described: object, name: str) -> tuple[str, int]:
    if not isinstance(described, str):
        raise FormatError(f"{name}: an array of records, not of plain numbers", HINT)
    if described.lstrip("<>|=") == "O":
        raise FormatError(
            f"{name}: holds Python objects (a pickle); opening one may run any code, so it is refused",
            "save plain numbers: numpy.save(path, array.astype('float32'))",
        )
    parts = re.fullmatch(r"([<>|=]?)([a-z]\d{1,2})", described)
    if parts is None or parts[2] not in TYPES:
        raise FormatError(f"{name}: values of type {described[:20]!r}", f"what can be fed: {', '.join(TYPES.values())}")
    if parts[1] == ">" and parts[2][1:] != "1":
        raise FormatError(
            f"{name}: big-endian values ({described})",
            "save it as array.astype(array.dtype.newbyteorder('<'))",
        )
    return TYPES[parts[2]], int(parts[2][1:])


def _fits(name: str, have: int, need: int) -> None:
    if have < need:
        raise FormatError(
            f"{name}: {need - have:,} of {need:,} bytes of the values are missing", "was it cut while being copied?"
        )
    if have > need:
        raise FormatError(f"{name}: {have - need:,} bytes more than its head says", HINT)


def _broken(name: str) -> NoReturn:
    raise FormatError(f"{name}: the head of this .npy file is damaged", HINT)
