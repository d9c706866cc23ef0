"""Parts of whole-run views on disk, beside the columns: a view of a thousand ranks opens a thousand small files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.views.answers.disk_cache import key_of

if TYPE_CHECKING:
    from visualprof.reader.cache import Cache
    from visualprof.reader.trace import Trace
    from visualprof.views import View

_preparing = threading.Lock()  # for the reason given in `reader.trace.codec`


def _array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        return array.dtype.str, array.tobytes()
    raise TypeError(f"a part has no column of {type(value)}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_array)


def part_of(cache: Cache, view: View, fingerprint: str, trace: Callable[[], Trace]) -> msgspec.Struct:
    """What a view of a run takes of one worker: as it was kept, or made of its trace and kept."""
    assert view.part
    key = key_of(view.name, fingerprint)
    if (data := cache.load_bytes(key)) is not None:
        return _decoder(view.part).decode(data)
    part = view.part(trace())
    cache.store_bytes(key, _ENCODER.encode(part))
    return part


def _decoder(part: Callable[[Trace], msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    with _preparing:
        return _prepared(part)


@cache
def _prepared(part: Callable[[Trace], msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    kind = get_type_hints(part)["return"]
    return msgspec.msgpack.Decoder(kind, dec_hook=lambda _, array: np.frombuffer(array[1], array[0]))
