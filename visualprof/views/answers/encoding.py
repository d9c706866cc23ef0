"""JSON encoding of answers."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.native import FLOAT64, INT64, UINT8, function
from visualprof.views.answers.table import AddressColumn, LazyTextColumn

MIN_ROWS = 100  # rows from which the fast encoders pay off


def builtin(value: Any) -> Any:
    """Convert a value that msgspec cannot encode: a column to a list, a numpy number to a Python number.

    Raises:
        NotImplementedError: The value is neither an array nor a sequence.
    """
    if isinstance(value, np.ndarray | np.generic):
        return cast("NDArray[Any]", value).tolist()
    if hasattr(value, "__getitem__"):
        return list(value)
    raise NotImplementedError(type(value).__name__)


def _raw_or_builtin(value: Any) -> Any:
    """Convert like `builtin`, but encode long columns as raw JSON without one Python object per value."""
    text: memoryview | None = None
    if isinstance(value, LazyTextColumn) and len(value) >= MIN_ROWS:
        text = _addresses(value) if isinstance(value, AddressColumn) else _lazy_texts(value)
    elif isinstance(value, np.ndarray):
        column = np.ascontiguousarray(cast("NDArray[Any]", value))
        if column.ndim == 1 and len(column) >= MIN_ROWS:
            text = _numbers(column, _writer(column.dtype))
    return builtin(value) if text is None else msgspec.Raw(text)


def _numbers(column: NDArray[Any], write: Callable[..., int] | None) -> memoryview | None:
    """Return the JSON of a contiguous column; None if there is no native writer or it rejects the numbers."""
    if write is None:
        return None
    text = np.empty(22 * len(column) + 2, np.uint8)
    length = write(column, len(column), text)
    return text[:length].data if length >= 0 else None


def _addresses(column: AddressColumn) -> memoryview | None:
    write = function("vp_json_addresses", c_int64, INT64, c_int64, UINT8)
    return _numbers(np.ascontiguousarray(column.values, np.uint64).view(np.int64), write)


def _lazy_texts(column: LazyTextColumn) -> memoryview | None:
    """Return the JSON of a column of texts. Each distinct text is encoded once."""
    write = function("vp_json_values", c_int64, INT64, c_int64, UINT8, INT64, UINT8)
    if write is None:
        return None
    texts, index = column.distinct()
    values = [msgspec.json.encode(text) for text in texts]
    sizes = np.array([len(value) for value in values])
    text = np.empty(int(sizes[index].sum()) + len(index) + 2, np.uint8)
    length = write(index, len(index), np.frombuffer(b"".join(values), np.uint8), np.cumsum(sizes), text)
    return text[:length].data


def _writer(dtype: np.dtype[Any]) -> Callable[..., int] | None:
    """Return the native writer for a column type; None if it was not compiled."""
    if dtype == np.int64:
        return function("vp_json_integers", c_int64, INT64, c_int64, UINT8)
    return function("vp_json_doubles", c_int64, FLOAT64, c_int64, UINT8) if dtype == np.float64 else None


_ENCODER = msgspec.json.Encoder(enc_hook=_raw_or_builtin)


def encode(body: object) -> bytes:
    """Encode a structure of arrays and msgspec types as JSON. NaN and infinity become null.

    Lone surrogates, as in file names that are not UTF-8, become "?".
    """
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        return _ENCODER.encode(_encodable(msgspec.to_builtins(body, enc_hook=builtin)))


def _encodable(value: Any) -> Any:
    """Replace the characters that UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return {_encodable(key): _encodable(member) for key, member in entries}
    return [_encodable(member) for member in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value
