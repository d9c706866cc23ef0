"""Serve the built files of the web UI, with our own content types and cache times.

The system's registry of file types is not used. On some machines it reports JavaScript as plain text, and the web UI
would stay blank.
"""

from __future__ import annotations

import gzip
import os.path
from functools import lru_cache
from html import escape
from pathlib import Path

from flask import Blueprint, Response, request
from werkzeug.security import safe_join

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.server.responses import bytes_response

_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".wasm": "application/wasm",
    ".txt": "text/plain",
}

_NOT_BUILT_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>visualprof</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:4rem auto;padding:0 1rem}}
:root{{color-scheme:light dark}}
code{{background:#8883;padding:.1em .4em;border-radius:.3em}}</style>
<h1>The web UI is not built yet</h1>
<p>The server runs and its <a href="api/v1/runs">API</a> answers, but there is no web UI in <code>{dist}</code>.</p>
<p>In a checkout, <code>pip install .</code> builds the web UI; with Node.js, you can also run
<code>cd visualprof/frontend &amp;&amp; npm ci &amp;&amp; npm run build</code>. Then reload this address.</p></html>
"""


def blueprint(dist: Path) -> Blueprint:
    """Return the routes of the web UI with the built files in `dist`."""
    routes = Blueprint("spa", __name__)

    @routes.get("/")
    @routes.get("/<path:path>")
    def file(path: str = "") -> Response:
        if path.startswith("api/") or path == "api":
            raise NotFound(
                msg("server.there_no", f"there is no {request.path}"),
                msg("server.api_described_api_v1", "the API is described by /api/v1/openapi.json"),
            )
        built = safe_join(str(dist), path) if path else None
        if built and os.path.isfile(built):
            return _file_response(Path(built), hashed=path.startswith("assets/"))
        if "." in path.rpartition("/")[2]:
            raise NotFound(msg("server.there_no_file", f"there is no file {path[:200]!r}"))
        index = dist / "index.html"  # any other address belongs to the web UI's router
        if index.is_file():
            return _file_response(index, hashed=False)
        return bytes_response(
            _NOT_BUILT_PAGE.format(dist=escape(str(dist))).encode(), "text/html", 200 if not path else 404
        )

    file.needs = "anyone"  # pyright: ignore[reportFunctionMemberAccess]
    return routes


def _file_response(path: Path, hashed: bool) -> Response:
    response = bytes_response(_bytes(path), _TYPES.get(path.suffix.lower(), "application/octet-stream"))
    if hashed:
        _compress(response, path)
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if hashed else "no-cache"
    return response


def _compress(response: Response, path: Path) -> None:
    """Compress a file of the web UI with Brotli (created by the build) or gzip, depending on the browser."""
    brotli = path.with_name(f"{path.name}.br")
    if request.accept_encodings["br"] > 0 and brotli.is_file():
        response.set_data(_bytes(brotli))
        response.headers["Content-Encoding"] = "br"
    elif request.accept_encodings["gzip"] > 0:
        response.set_data(_bytes(path, gzipped=True))
        response.headers["Content-Encoding"] = "gzip"


def _bytes(path: Path, gzipped: bool = False) -> bytes:
    status = path.stat()
    return _read_cached(path, status.st_mtime_ns, status.st_size, gzipped)


@lru_cache(maxsize=512)
def _read_cached(path: Path, mtime_ns: int, size: int, gzipped: bool) -> bytes:
    """Return the content, cached while the file is unchanged. Level 9 is smaller, but slower than for API responses."""
    del mtime_ns, size
    return gzip.compress(path.read_bytes(), 9, mtime=0) if gzipped else path.read_bytes()
