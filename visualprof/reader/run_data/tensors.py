"""Values of `TensorProto` messages: tensorflow/tensorboard, compat/proto/tensor.proto."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

import numpy as np

from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.trace.types import Floats

FLOAT, DOUBLE, INT32, UINT8, STRING, INT64, BOOL, BFLOAT16, HALF = 1, 2, 3, 4, 7, 9, 10, 14, 19
MAX_ELEMENTS = 1 << 24
_DTYPES = {FLOAT: "<f4", DOUBLE: "<f8", INT32: "<i4", UINT8: "u1", INT64: "<i8", BOOL: "?", HALF: "<f2"}
_NUMBER_FIELDS = {INT32: 7, UINT8: 7, INT64: 10, BOOL: 11}
_HALF_FIELD = 13


def tensor_shape(tensor: Message) -> tuple[int, ...]:
    """Return the shape of a tensor."""
    return tuple(dimension.number(1) for dimension in tensor.message(2).messages(2))


def tensor_values(tensor: Message) -> Floats:
    """Return the elements of a numeric tensor, flat.

    Raises:
        ProtobufError: The tensor has no numbers, or their count does not match its shape.
    """
    dtype, shape = tensor.number(1), tensor_shape(tensor)
    count = math.prod(shape)
    if not 0 <= count <= MAX_ELEMENTS or min(shape, default=0) < 0:
        raise ProtobufError("a tensor of impossible size")
    values = _content(tensor, dtype) if tensor.size(4) else np.array(list(_elements(tensor, dtype)), np.float64)
    if len(values) == 1 and count > 1:  # a constant is stored once
        values = np.repeat(values, count)
    if len(values) != count:
        raise ProtobufError(f"a tensor of {count} elements with {len(values)} values")
    return values


def scalar_of(tensor: Message) -> tuple[float, bool] | None:
    """Return the number of a tensor with one element and whether it has 64 bits, `None` for other tensors."""
    try:
        if math.prod(tensor_shape(tensor)) != 1:
            return None
        return float(tensor_values(tensor)[0]), tensor.number(1) in (DOUBLE, INT64)
    except ProtobufError:
        return None


def _content(tensor: Message, dtype: int) -> Floats:
    raw = tensor.content(4)
    if dtype == BFLOAT16:
        return (np.frombuffer(raw[: len(raw) // 2 * 2], "<u2").astype(np.uint32) << 16).view(np.float32).astype(float)
    if dtype not in _DTYPES:
        raise ProtobufError(f"a tensor of type {dtype}")
    kind = np.dtype(_DTYPES[dtype])
    return np.frombuffer(raw[: len(raw) // kind.itemsize * kind.itemsize], kind).astype(np.float64)


def _elements(tensor: Message, dtype: int) -> Iterable[float]:
    if dtype == FLOAT:
        return tensor.reals(5)
    if dtype == DOUBLE:
        return tensor.reals(6, 8)
    if dtype in (HALF, BFLOAT16):
        return (_half(bits, dtype) for bits in tensor.numbers(_HALF_FIELD))
    if dtype not in _NUMBER_FIELDS:
        raise ProtobufError(f"a tensor of type {dtype}")
    return tensor.numbers(_NUMBER_FIELDS[dtype])


def _half(bits: int, dtype: int) -> float:
    """Return a number of 16 bits. torch stores the bits of a 32-bit float instead."""
    if bits < 0 or bits > 0xFFFF:
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    if dtype == BFLOAT16:
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return struct.unpack("<e", struct.pack("<H", bits))[0]
