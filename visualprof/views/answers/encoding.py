"""JSON of the answers."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray


def builtin(value: Any) -> Any:
    """Of what msgspec does not know: an array or another column as a list, a number of an array as Python's.

    Raises: NotImplementedError: it is neither an array nor a sequence.
    """
    if isinstance(value, np.ndarray | np.generic):
        return cast("NDArray[Any]", value).tolist()
    if hasattr(value, "__getitem__"):
        return list(value)
    raise NotImplementedError(type(value).__name__)


_ENCODER = msgspec.json.Encoder(enc_hook=builtin)


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
