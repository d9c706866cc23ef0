"""Create responses of the API: JSON or CSV with an ETag, 304 if unchanged, gzip if it saves bytes."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from flask import Response, request

from visualprof.views.answers.encoding import encode

TSV_TYPE = "text/tab-separated-values"
_MIN_GZIP_BYTES = 1000
_GZIP_LEVEL = 5
_COMPRESSIBLE = ("text/", "application/json", "image/svg+xml", "application/manifest+json")


T = TypeVar("T", bound=msgspec.Struct)


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """An error and what to do about it.

    Attributes:
        error: What went wrong.
        hint: What to do about it.
        state: State of a file that is not parsed yet.
        progress: Parsed share of that file, 0..1.
        page: Page of the documentation that explains the error, such as "formats#ranks".
    """

    error: str
    hint: str | None = None
    state: Literal["waiting", "parsing", "ready", "growing", "failed"] | None = None
    progress: float | None = None
    page: str | None = None


def build_row(kind: type[T], source: object, **others: Any) -> T:
    """Return a struct from an object's attributes with the same names, and from further values."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__ if name not in others}, **others)


def json_response(body: object, status: int = 200) -> Response:
    """Return a msgspec struct as a JSON response."""
    return bytes_response(encode(body), "application/json", status)


def bytes_response(body: bytes, mimetype: str, status: int = 200, etag: str = "") -> Response:
    """Return bytes as a response with an ETag, by default the hash of the content."""
    response = Response(body, status, mimetype=mimetype)
    if status == 200:
        # Weak, because the compressed and the plain form share the ETag.
        response.set_etag(etag or content_hash(body), weak=True)
        response.headers["Cache-Control"] = "no-cache"
    else:
        response.headers["Cache-Control"] = "no-store"
    return response


def content_hash(body: bytes) -> str:
    """Return a short hash of bytes."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def csv_response(text: str, name: str) -> Response:
    """Return comma-separated text as a download; `name` may be any text."""
    # The byte order mark tells spreadsheets that the text is UTF-8.
    response = bytes_response(b"\xef\xbb\xbf" + text.encode("utf-8", "replace"), "text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="{re.sub(r"[^A-Za-z0-9_-]", "_", name)}.csv"'
    return response


def finish_response(response: Response) -> Response:
    """Finish a response: 304 if unchanged, gzip if it saves bytes."""
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
    """A response that all open pages poll and that rarely changes. It is encoded once per version."""

    def __init__(self) -> None:
        self._cached: tuple[object, bytes, str] = (None, b"", "")

    def answer(self, version: object, create: Callable[[], object]) -> Response:
        """Return the cached response of this version, or create a new one."""
        if self._cached[0] != version or not self._cached[1]:
            body = encode(create())
            self._cached = version, body, content_hash(body)
        return bytes_response(self._cached[1], "application/json", etag=self._cached[2])
