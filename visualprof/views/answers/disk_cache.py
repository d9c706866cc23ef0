"""Disk cache of answers, stored next to the columns, so that the next process does not recompute slow answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from visualprof.reader.digest import blake2b
from visualprof.reader.trace.codec import reader_version
from visualprof.views.answers.encoding import builtin
from visualprof.views.answers.table import LazyTextColumn

if TYPE_CHECKING:
    from visualprof.reader.cache import Cache
    from visualprof.views import View
    from visualprof.views.answers.table import Answer

# Together with the code of the reader, the code of these files determines an answer.
_VIEW_SOURCES = ("../views/**",)
_MIN_COMPUTE_S = 0.03
_MAX_BYTES = 8 << 20
_preparing = threading.Lock()  # for the reason given in `reader.trace.codec`


class _NotStorable(Exception):
    """The answer has a column that cannot be stored, because its texts come from a function."""


def _plain(value: Any) -> Any:
    if isinstance(value, LazyTextColumn):  # up to millions of rows, sorted by their numbers
        raise _NotStorable
    return builtin(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)


def cache_key(*inputs: object) -> str:
    """Return the cache key of a result of views. It changes with the code of the reader and of the views."""
    text = repr((reader_version(), reader_version(_VIEW_SOURCES), *inputs))
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


class CachedAnswer:
    """Cache entry of one answer.

    Args:
        cache: The cache.
        view: The view that computes the answer.
        params: The parameters of the view.
        fingerprints: Fingerprints of the files, and the names of workers if the answer contains them.
    """

    def __init__(self, cache: Cache, view: View, params: Any, fingerprints: tuple[object, ...]) -> None:
        self._cache, self._view = cache, view
        self._key = cache_key(view.name, params, fingerprints)

    def load(self) -> Answer | None:
        """Return the stored answer; None if it is missing or damaged."""
        data = self._cache.load_bytes(self._key)
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
            return _decoder(self._view).decode(data) if data else None

    def load_or_compute(self, compute: Callable[[], Answer]) -> Answer:
        """Return the stored answer, or compute it with `compute_and_store`."""
        stored = self.load()
        return self.compute_and_store(compute) if stored is None else stored

    def compute_and_store(self, compute: Callable[[], Answer], store: bool = True) -> Answer:
        """Compute an answer. Store it if that was slow, unless it is very large or has a `LazyTextColumn`.

        Args:
            compute: Return the answer.
            store: Whether the answer may be stored.
        """
        started = time.monotonic()
        answer = compute()
        if store and time.monotonic() - started > _MIN_COMPUTE_S:
            with contextlib.suppress(_NotStorable, UnicodeEncodeError):  # half a surrogate pair in a name
                data = _ENCODER.encode(answer)
                if len(data) <= _MAX_BYTES:
                    self._cache.store_bytes(self._key, data)
        return answer


def _decoder(view: View) -> msgspec.msgpack.Decoder[Answer]:
    with _preparing:
        return _prepared(view.answer_type)


@cache
def _prepared(kind: type[Answer]) -> msgspec.msgpack.Decoder[Answer]:
    return msgspec.msgpack.Decoder(kind, dec_hook=lambda _, column: column)
