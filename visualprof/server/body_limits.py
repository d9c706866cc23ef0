"""A body that nobody may send there must not fill the disk.

waitress takes a whole body, into a file where it is long, before the application hears of the request.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from waitress.parser import HTTPRequestParser
from waitress.utilities import RequestEntityTooLarge

from visualprof.messages import msg
from visualprof.remote.queue.store.files import MAX_BLOB_BYTES
from visualprof.server.identity import Identify
from visualprof.server.responses import ErrorBody
from visualprof.server.routes import JSON, MAX_BODY_BYTES

MAX_PART_BYTES = 32 << 20  # of a result; an agent sends 8 MiB at once


class BodyTooLarge(RequestEntityTooLarge):
    """The refusal of a body of which nothing more is read; in JSON, as every other."""

    # Its types say str, its code is bytes.
    def to_response(self, ident: str | None = None) -> Any:
        """Status, headers and body of the answer, after which the connection ends."""
        hint = msg(
            "server.only_files_jobs_graph",
            "only files for jobs and the Graph page may be long, sent with the server's token",
        )
        body = msgspec.json.encode(ErrorBody(msg("server.body_over_kib", f"the body is over {self.body} KiB"), hint))
        return f"{self.code} {self.reason}", [("Content-Type", JSON)], body


class RequestParser(HTTPRequestParser):
    """Reads a request, of its body no more than its sender may send to that address."""

    path: str

    def __init__(self, identify: Identify, peer: str, adj: Any) -> None:
        super().__init__(adj)
        self._identify, self._peer = identify, peer

    def parse_header(self, header_plus: bytes) -> None:
        """Knows the most that is read as soon as it knows who asks for what."""
        super().parse_header(header_plus)
        if self.body_rcv is not None:
            self.adj = copy.copy(self.adj)
            self.adj.max_request_body_size = self._most() + 1

    def received(self, data: bytes) -> int:
        """Bytes of `data` that belong to this request."""
        consumed = super().received(data)
        if isinstance(self.error, RequestEntityTooLarge):
            self.error = BodyTooLarge(f"{self._most() >> 10:,}")
        return consumed

    def _header(self, name: str) -> str:
        return self.headers.get(name.upper().replace("-", "_"), "")  # as waitress names it

    def _most(self) -> int:
        if self.path.endswith(("/api/v1/uploads", "/api/v1/models")):
            return MAX_BLOB_BYTES if self._identify(self._peer, self._header).may("member") else MAX_BODY_BYTES
        return MAX_PART_BYTES if "/api/v1/agent/files/" in self.path else MAX_BODY_BYTES
