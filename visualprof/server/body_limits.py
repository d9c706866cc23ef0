"""Reject malformed requests and oversized bodies before the application sees them.

waitress receives a whole body, into a file if it is long, before it calls the application. A body that its sender may
not send must not fill the disk.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import Error, RequestEntityTooLarge

from visualprof.messages import msg
from visualprof.remote.queue.errors import PayloadTooLarge
from visualprof.remote.queue.store.files import MAX_BLOB_BYTES
from visualprof.remote.recordings import MAX_FILE_BYTES as MAX_RECORDING_BYTES
from visualprof.server.identity import Identify
from visualprof.server.responses import ErrorBody
from visualprof.server.routes import JSON, MAX_BODY_BYTES

MAX_PART_BYTES = 32 << 20  # of a result; an agent sends 8 MiB at once
MAX_LENGTH_DIGITS = 18
_LOGGED_CHARS = 100  # of a request line
_log = logging.getLogger(__name__)

_ENCODINGS = re.compile(rb"(?im)^transfer-encoding[ \t]*:([^\r\n]*)")


class RequestRejected(Error):
    """The answer to a request that the application never sees, as JSON like every other error.

    Args:
        code: Status code.
        reason: Reason phrase of the status.
        body: The error and its hint.
    """

    def __init__(self, code: int, reason: str, body: ErrorBody) -> None:
        super().__init__(body.error)
        self.code, self.reason, self._json = code, reason, msgspec.json.encode(body)

    # The base class is typed as returning str, but must return bytes.
    def to_response(self, ident: str | None = None) -> Any:
        """Return status, headers and body of the answer, after which the connection is closed."""
        del ident
        return f"{self.code} {self.reason}", [("Content-Type", JSON)], self._json


class RequestParser(HTTPRequestParser):
    """Reads a request, and at most as much of its body as its sender may send to that path.

    Args:
        identify: Returns who sent a request.
        peer: Address of the sender.
        adj: Settings of waitress.
    """

    # waitress sets these only if the request line is valid, but reads them for every request.
    path: str = ""
    command: Any = ""
    first_line: Any = b""

    def __init__(
        self, identify: Identify, peer: str, adj: Any, on_rejected: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(adj)
        self._identify, self._peer, self._on_rejected = identify, peer, on_rejected

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the request line and the headers, and set the limit of the body.

        Raises:
            ParsingError: The request is malformed, or ambiguous for a proxy in front of the server.
        """
        self.first_line = header_plus.partition(b"\r\n")[0]
        if b"\r\n " in header_plus or b"\r\n\t" in header_plus:
            raise ParsingError("a header is folded over several lines")
        try:
            super().parse_header(header_plus)
        except ValueError as error:  # an invalid address, or a number of thousands of digits
            raise ParsingError(" ".join(str(error).split())[:200]) from None
        if self.version not in ("1.0", "1.1"):
            raise ParsingError("only HTTP/1.0 and HTTP/1.1 are supported")
        if b",".join(_ENCODINGS.findall(header_plus)).lower().count(b"chunked") > 1:
            raise ParsingError("Transfer-Encoding names chunked twice")  # RFC 9112 6.1
        has_encoding = self.chunked or "TRANSFER_ENCODING" in self.headers
        if has_encoding and ("CONTENT_LENGTH" in self.headers or self.version != "1.1"):
            raise ParsingError("Transfer-Encoding is only valid in HTTP/1.1 and without Content-Length")  # RFC 9112 6.1
        if len(self.headers.get("CONTENT_LENGTH", "")) > MAX_LENGTH_DIGITS:
            raise ParsingError("Content-Length is too large")
        if self.body_rcv is not None:
            self.adj = copy.copy(self.adj)
            self.adj.max_request_body_size = self._max_body_bytes() + 1

    def received(self, data: bytes) -> int:
        """Return how many bytes of `data` belong to this request."""
        was_complete = self.completed
        consumed = super().received(data)
        error: Error | None = self.error
        if error is not None and not was_complete:
            self.error = self._reject(error)
            return len(data)  # the connection is closed: what follows is not another request
        return consumed

    def _reject(self, error: Error) -> RequestRejected:
        """Write one line to the log and return the answer; the connection takes no further request."""
        self._on_rejected()
        if isinstance(error, RequestEntityTooLarge):
            body = ErrorBody(
                msg("server.body_over_kib", f"the body is over {self._max_body_bytes() >> 10:,} KiB"),
                msg(
                    "server.only_files_jobs_graph",
                    "only recordings, and files for jobs and the Graph page, may be long, sent with the server's token",
                ),
                page=PayloadTooLarge.docs_page,
            )
        else:
            body = ErrorBody(
                msg("server.malformed_request", f"the request is malformed: {error.body}"),
                msg("server.check_client_or_proxy", "check the client, or the proxy in front of the server"),
            )
        line = bytes(self.first_line)[:_LOGGED_CHARS].decode("latin-1")
        _log.warning("rejected a request of %s: %s %s: %s", self._peer, error.code, error.reason, line)
        return RequestRejected(error.code, error.reason, body)

    def _header(self, name: str) -> str:
        return self.headers.get(name.upper().replace("-", "_"), "")  # as waitress names it

    def _max_body_bytes(self) -> int:
        if self.path.endswith(("/api/v1/uploads", "/api/v1/models", "/api/v1/runs")):
            limit = MAX_RECORDING_BYTES if self.path.endswith("/runs") else MAX_BLOB_BYTES
            return limit if self._identify(self._peer, self._header).may("member") else MAX_BODY_BYTES
        return MAX_PART_BYTES if "/api/v1/agent/files/" in self.path else MAX_BODY_BYTES
