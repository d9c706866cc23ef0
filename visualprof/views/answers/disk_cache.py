"""Answers on disk, beside the columns: what took long to work out is there at once for the next process."""

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
from visualprof.views.answers.table import Coded

if TYPE_CHECKING:
    from visualprof.reader.cache import Cache
    from visualprof.views import View
    from visualprof.views.answers.table import Answer

# Whose code says, with the reader's, what an answer is.
_ANSWERS = ("../views/**",)
_LONG_S = 0.03
_MOST_BYTES = 8 << 20
_preparing = threading.Lock()  # for the reason given in `reader.trace.codec`


class _Unkept(Exception):
    """Of what only the process that made it can show."""


def _plain(value: Any) -> Any:
    if isinstance(value, Coded):  # up to millions of rows, sorted by what they are made of
        raise _Unkept
    return builtin(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)


def key_of(*what: object) -> str:
    """The place of what views make of some files: it changes with the code of the reader and of the views."""
    text = repr((reader_version(), reader_version(_ANSWERS), *what))
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


class KeptAnswer:
    """The place of one answer.

    Args:
        cache: where it is.
        view: that answers.
        params: what it was asked.
        of: fingerprints of the files, and the names of workers where the answer tells them.
    """

    def __init__(self, cache: Cache, view: View, params: Any, of: tuple[object, ...]) -> None:
        self._cache, self._view = cache, view
        self._key = key_of(view.name, params, of)

    def load(self) -> Answer | None:
        """The answer; None when it is not here or not whole."""
        data = self._cache.load_bytes(self._key)
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
            return _decoder(self._view).decode(data) if data else None

    def answer(self, compute: Callable[[], Answer]) -> Answer:
        """The answer that is here, or else what `compute` gives, kept as `worked_out` does."""
        kept = self.load()
        return self.worked_out(compute) if kept is None else kept

    def worked_out(self, compute: Callable[[], Answer], keep: bool = True) -> Answer:
        """What `compute` gives; kept when that took long, unless it is very large or has columns that are `Coded`."""
        began = time.monotonic()
        answer = compute()
        if keep and time.monotonic() - began > _LONG_S:
            with contextlib.suppress(_Unkept, UnicodeEncodeError):  # half a surrogate pair in a name
                data = _ENCODER.encode(answer)
                if len(data) <= _MOST_BYTES:
                    self._cache.store_bytes(self._key, data)
        return answer


def _decoder(view: View) -> msgspec.msgpack.Decoder[Answer]:
    with _preparing:
        return _prepared(view.answer)


@cache
def _prepared(kind: type[Answer]) -> msgspec.msgpack.Decoder[Answer]:
    return msgspec.msgpack.Decoder(kind, dec_hook=lambda _, column: column)
