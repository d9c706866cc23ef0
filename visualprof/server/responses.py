"""How the API answers: JSON or CSV with an ETag, 304 when nothing changed, gzip when it pays."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from flask import Response, request

from visualprof.views.answers.encoding import encode

_MIN_GZIP_BYTES = 1000
_GZIP_LEVEL = 5
_COMPRESSIBLE = ("text/", "application/json", "image/svg+xml", "application/manifest+json")


T = TypeVar("T", bound=msgspec.Struct)


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """What went wrong and what to do; `state` and `progress` while a file is being parsed."""

    error: str
    hint: str | None = None
    state: Literal["waiting", "parsing", "ready", "growing", "failed"] | None = None
    progress: float | None = None


def build_row(kind: type[T], source: object, **others: Any) -> T:
    """A structure of an object's attributes of the same names, and of others."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__ if name not in others}, **others)


def json_response(body: object, status: int = 200) -> Response:
    """Any structure of msgspec's as JSON."""
    return bytes_response(encode(body), "application/json", status)


def bytes_response(body: bytes, mimetype: str, status: int = 200, etag: str = "") -> Response:
    """Bytes with an ETag, that of their content."""
    response = Response(body, status, mimetype=mimetype)
    if status == 200:
        # Weak: the packed and the plain form share it.
        response.set_etag(etag or content_hash(body), weak=True)
        response.headers["Cache-Control"] = "no-cache"
    else:
        response.headers["Cache-Control"] = "no-store"
    return response


def content_hash(body: bytes) -> str:
    """A short text that differs when the bytes do."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def csv_response(text: str, name: str) -> Response:
    """Comma-separated text as a file to save. name: of it, any text."""
    # The mark at the front tells spreadsheets that it is UTF-8.
    response = bytes_response(b"\xef\xbb\xbf" + text.encode("utf-8", "replace"), "text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="{re.sub(r"[^A-Za-z0-9_-]", "_", name)}.csv"'
    return response


def finish_response(response: Response) -> Response:
    """Last step of every answer: 304 or gzip."""
    if request.method in ("GET", "HEAD") and response.status_code == 200:
        response.make_conditional(request.environ)
    mimetype = response.mimetype or ""
    if response.direct_passthrough or response.status_code == 304 or not mimetype.startswith(_COMPRESSIBLE):
        return response
    response.headers.add("Vary", "Accept-Encoding")
    if "Content-Encoding" in response.headers or (response.content_length or 0) < _MIN_GZIP_BYTES:
        return response
    if request.accept_encodings["gzip"] > 0:
        response.set_data(gzip.compress(response.get_data(), _GZIP_LEVEL, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
    return response


class VersionedResponse:
    """An answer that every open page asks for again and again and that seldom changes: encoded once a version."""

    def __init__(self) -> None:
        self._kept: tuple[object, bytes, str] = (None, b"", "")

    def answer(self, version: object, make: Callable[[], object]) -> Response:
        """The kept answer of this version, or a new one."""
        if self._kept[0] != version or not self._kept[1]:
            body = encode(make())
            self._kept = version, body, content_hash(body)
        return bytes_response(self._kept[1], "application/json", etag=self._kept[2])
