"""JSON of the answers."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray


def plain(value: Any) -> Any:
    """Of what msgspec does not know: an array as a list, its numbers as Python's; NaN and infinity become null there.

    Raises: NotImplementedError: it is neither an array nor a sequence.
    """
    if isinstance(value, np.ndarray | np.generic):
        return cast("NDArray[Any]", value).tolist()
    if hasattr(value, "__getitem__"):
        return list(value)
    raise NotImplementedError(type(value).__name__)


_ENCODER = msgspec.json.Encoder(enc_hook=plain)


def encode(body: object) -> bytes:
    """JSON of any structure of arrays and what msgspec knows.

    Half surrogate pairs, as in the names of files that are not UTF-8, become "?".
    """
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(body, enc_hook=plain), ensure_ascii=False).encode("utf-8", "replace")
