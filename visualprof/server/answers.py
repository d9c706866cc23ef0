"""How the API answers: JSON or CSV with an ETag, 304 when nothing changed, gzip when it pays."""

from __future__ import annotations

import gzip
import hashlib
import re

from flask import Response, request

from visualprof.server.encoding import encode

_MIN_GZIP = 1000
_GZIP_LEVEL = 5
_PACKABLE = ("text/", "application/json", "image/svg+xml", "application/manifest+json")


def answer(body: object, status: int = 200) -> Response:
    """Any structure of msgspec's as JSON."""
    return raw(encode(body), "application/json", status)


def raw(body: bytes, mimetype: str, status: int = 200) -> Response:
    """Bytes with an ETag of their content."""
    response = Response(body, status, mimetype=mimetype)
    if status == 200:
        # Weak: the packed and the plain form share it.
        response.set_etag(hashlib.blake2b(body, digest_size=12).hexdigest(), weak=True)
        response.headers["Cache-Control"] = "no-cache"
    else:
        response.headers["Cache-Control"] = "no-store"
    return response


def csv_file(text: str, name: str) -> Response:
    """Comma-separated text as a file to save. name: of it, any text."""
    # The mark at the front tells spreadsheets that it is UTF-8.
    response = raw(b"\xef\xbb\xbf" + text.encode("utf-8", "replace"), "text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="{re.sub(r"[^A-Za-z0-9_-]", "_", name)}.csv"'
    return response


def finish(response: Response) -> Response:
    """Last step of every answer: 304 or gzip."""
    if request.method in ("GET", "HEAD") and response.status_code == 200:
        response.make_conditional(request.environ)
    mimetype = response.mimetype or ""
    if response.direct_passthrough or response.status_code == 304 or not mimetype.startswith(_PACKABLE):
        return response
    response.headers.add("Vary", "Accept-Encoding")
    if "Content-Encoding" in response.headers or (response.content_length or 0) < _MIN_GZIP:
        return response
    if request.accept_encodings["gzip"] > 0:
        response.set_data(gzip.compress(response.get_data(), _GZIP_LEVEL, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
    return response
