"""Disk cache of the parts of run views (`RunView.map`), so that a view of a thousand ranks opens only small files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.views.answers.disk_cache import cache_key

if TYPE_CHECKING:
    from visualprof.reader.cache import Cache
    from visualprof.reader.trace import Trace
    from visualprof.views import RunView

_preparing = threading.Lock()  # for the reason given in `reader.trace.codec`


def _array(value: Any) -> Any:
    """Return a column as (type, stored type, offset to add, bytes). Integers are narrowed."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a part must not have a column of type {type(value)}")
    array = cast("NDArray[Any]", value)
    stored, low = array, 0
    if array.dtype.kind == "i" and len(array):
        low, high = int(array.min()), int(array.max())
        kind = np.min_scalar_type(high - low)
        stored, low = ((array - low).astype(kind), low) if kind.itemsize < array.itemsize else (array, 0)
    return array.dtype.str, stored.dtype.str, low, stored.tobytes()


def _column(_: type, stored: tuple[str, str, int, bytes]) -> NDArray[Any]:
    dtype, kind, low, data = stored
    array = np.frombuffer(data, kind)
    return array if dtype == kind else array.astype(dtype) + np.dtype(dtype).type(low)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_array)


def load_or_compute_part(
    cache: Cache, view: RunView, fingerprint: str, trace: Callable[[], Trace], key: str = ""
) -> msgspec.Struct:
    """Return the part of one worker from the cache, or compute it from its trace and store it.

    Args:
        cache: The cache.
        view: A view of a run.
        fingerprint: Fingerprint of the worker's file.
        trace: Open the trace.
        key: Result of `RunView.part_key_for`.
    """
    part = load_part(cache, view, fingerprint, key)
    if part is None:
        part = view.map_worker(trace(), key)
        with contextlib.suppress(UnicodeEncodeError):  # half a surrogate pair in a name
            cache.store_bytes(_key(view, fingerprint, key), _ENCODER.encode(part))
    return part


def load_part(cache: Cache, view: RunView, fingerprint: str, key: str = "") -> Any:
    """Return the stored part; None if it is missing."""
    data = cache.load_bytes(_key(view, fingerprint, key))
    return None if data is None else _decoder(view.map).decode(data)


def _key(view: RunView, fingerprint: str, key: str) -> str:
    """Return the cache key of a part, which several views may share."""
    return cache_key(view.map.__module__, view.map.__qualname__, fingerprint, key)


def _decoder(mapper: Callable[..., msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    with _preparing:
        return _prepared(mapper)


@cache
def _prepared(mapper: Callable[..., msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    kind = get_type_hints(mapper)["return"]
    return msgspec.msgpack.Decoder(kind, dec_hook=_column)
