"""Files of the local store at signed addresses: uploaded ones are read, results are written."""

from __future__ import annotations

import re

from flask import Blueprint, Response, request, send_file

from visualprof.errors import BadParameter, NotFound
from visualprof.remote.queue.refusals import Elsewhere
from visualprof.remote.queue.service import Queue
from visualprof.server.answers import answer
from visualprof.server.api.agent_link import elsewhere
from visualprof.server.remote_service import Remote

_RANGE = re.compile(r"bytes (?:(\d{1,15})-(\d{1,15})|\*)/(\d{1,15}|\*)")


def blueprint(remote: Remote) -> Blueprint:
    """The routes. The address itself is the permission, so nothing else is asked for."""
    routes = Blueprint("blobs", __name__, url_prefix="/api/v1/agent/files")
    routes.register_error_handler(Elsewhere, elsewhere)

    def queue() -> Queue:
        remote.refuse_read_only()
        return remote.needed("no file is kept here")

    @routes.get("/<path:key>")
    def read(key: str) -> Response:
        facts = queue().signer.check("get", key, request.args)
        path = queue().store.path(key)
        if not path.is_file():
            raise NotFound(f"{key} is gone")
        name = facts.get("name") or "file"
        response = send_file(path, "application/octet-stream", as_attachment=True, download_name=name, conditional=True)
        response.headers["Cache-Control"] = "private, no-store"
        return response

    @routes.put("/<path:key>")
    def write(key: str) -> Response:
        facts = queue().signer.check("put", key, request.args)
        limit = int(facts["size"])
        start = _start(limit)
        size = queue().store.append(key, start, request.stream.read, limit)
        return answer({"size": size}, 201)

    return routes


def _start(size: int) -> int:
    """Where the body begins in the whole file.

    Raises: BadParameter: the header contradicts the announcement or the body.
    """
    header = request.headers.get("Content-Range")
    if header is None:
        return 0
    match = _RANGE.fullmatch(header)
    if match is None or (match[3] != "*" and int(match[3]) != size):
        raise BadParameter(f"Content-Range {header[:80]!r} does not fit", f"bytes START-END/{size}")
    if match[1] is None:
        return 0
    length = int(match[2]) - int(match[1]) + 1
    if request.content_length is not None and request.content_length != length:
        raise BadParameter(f"Content-Range has {length} bytes, the body {request.content_length}")
    return int(match[1])
