"""JSON of the answers."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.native import FLOAT64, INT64, UINT8, function
from visualprof.views.answers.table import Addresses, Coded

LONG = 100  # rows of a column from which on it pays


def builtin(value: Any) -> Any:
    """Of what msgspec does not know: an array or another column as a list, a number of an array as Python's.

    Raises: NotImplementedError: it is neither an array nor a sequence.
    """
    if isinstance(value, np.ndarray | np.generic):
        return cast("NDArray[Any]", value).tolist()
    if hasattr(value, "__getitem__"):
        return list(value)
    raise NotImplementedError(type(value).__name__)


def _written(value: Any) -> Any:
    """The same, a long column as JSON already: a million values are no million objects."""
    text: memoryview | None = None
    if isinstance(value, Coded) and len(value) >= LONG:
        text = _addresses(value) if isinstance(value, Addresses) else _coded(value)
    elif isinstance(value, np.ndarray):
        column = np.ascontiguousarray(cast("NDArray[Any]", value))
        if column.ndim == 1 and len(column) >= LONG:
            text = _numbers(column, _writer(column.dtype))
    return builtin(value) if text is None else msgspec.Raw(text)


def _numbers(column: NDArray[Any], write: Callable[..., int] | None) -> memoryview | None:
    """A contiguous column by what writes its type; None where nothing does, or not these numbers."""
    if write is None:
        return None
    text = np.empty(22 * len(column) + 2, np.uint8)
    length = write(column, len(column), text)
    return text[:length].data if length >= 0 else None


def _addresses(column: Addresses) -> memoryview | None:
    write = function("vp_json_addresses", c_int64, INT64, c_int64, UINT8)
    return _numbers(np.ascontiguousarray(column.values, np.uint64).view(np.int64), write)


def _coded(column: Coded) -> memoryview | None:
    """Each distinct text is made JSON once."""
    write = function("vp_json_values", c_int64, INT64, c_int64, UINT8, INT64, UINT8)
    if write is None:
        return None
    texts, of = column.distinct()
    values = [msgspec.json.encode(text) for text in texts]
    sizes = np.array([len(value) for value in values])
    text = np.empty(int(sizes[of].sum()) + len(of) + 2, np.uint8)
    length = write(of, len(of), np.frombuffer(b"".join(values), np.uint8), np.cumsum(sizes), text)
    return text[:length].data


def _writer(dtype: np.dtype[Any]) -> Callable[..., int] | None:
    """What writes columns of a type, if something was compiled that does."""
    if dtype == np.int64:
        return function("vp_json_integers", c_int64, INT64, c_int64, UINT8)
    return function("vp_json_doubles", c_int64, FLOAT64, c_int64, UINT8) if dtype == np.float64 else None


_ENCODER = msgspec.json.Encoder(enc_hook=_written)


def encode(body: object) -> bytes:
    """JSON of any structure of arrays and what msgspec knows; NaN and infinity are null.

    Half surrogate pairs, as in the names of files that are not UTF-8, become "?".
    """
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        return _ENCODER.encode(_readable(msgspec.to_builtins(body, enc_hook=builtin)))


def _readable(value: Any) -> Any:
    """The same with texts that UTF-8 can say."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return {_readable(key): _readable(member) for key, member in entries}
    return [_readable(member) for member in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value
