"""Parts of whole-run views on disk, beside the columns: a view of a thousand ranks opens a thousand small files."""

from __future__ import annotations

import contextlib
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
    """A column as its type, the type in which it is kept, what to add to that, and the bytes; integers are narrowed."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a part has no column of {type(value)}")
    array = cast("NDArray[Any]", value)
    kept, low = array, 0
    if array.dtype.kind == "i" and len(array):
        low, high = int(array.min()), int(array.max())
        kind = np.min_scalar_type(high - low)
        kept, low = ((array - low).astype(kind), low) if kind.itemsize < array.itemsize else (array, 0)
    return array.dtype.str, kept.dtype.str, low, kept.tobytes()


def _column(_: type, kept: tuple[str, str, int, bytes]) -> NDArray[Any]:
    dtype, kind, low, data = kept
    array = np.frombuffer(data, kind)
    return array if dtype == kind else array.astype(dtype) + np.dtype(dtype).type(low)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_array)


def part_of(cache: Cache, view: View, fingerprint: str, trace: Callable[[], Trace], asked: str = "") -> msgspec.Struct:
    """What a view of a run takes of one worker: as it was kept, or made of its trace and kept. asked: `View.asks`."""
    part = kept_part(cache, view, fingerprint, asked)
    if part is None:
        part = view.of_worker(trace(), asked)
        with contextlib.suppress(UnicodeEncodeError):  # half a surrogate pair in a name
            cache.store_bytes(_key(view, fingerprint, asked), _ENCODER.encode(part))
    return part


def kept_part(cache: Cache, view: View, fingerprint: str, asked: str = "") -> Any:
    """The same as it was kept; None where it was not."""
    assert view.part
    data = cache.load_bytes(_key(view, fingerprint, asked))
    return None if data is None else _decoder(view.part).decode(data)


def _key(view: View, fingerprint: str, asked: str) -> str:
    """Of a part, which several views may share."""
    assert view.part
    return key_of(view.part.__module__, view.part.__qualname__, fingerprint, asked)


def _decoder(part: Callable[..., msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    with _preparing:
        return _prepared(part)


@cache
def _prepared(part: Callable[..., msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    kind = get_type_hints(part)["return"]
    return msgspec.msgpack.Decoder(kind, dec_hook=_column)
