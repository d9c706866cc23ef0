"""HTTP client of the server: outbound requests only, with the standard library."""

from __future__ import annotations

import http.client
import ipaddress
import json
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast
from urllib.parse import urljoin, urlsplit

from visualprof.remote.agent.errors import StopRequested

TIMEOUT_S = 20.0
BACKOFF_S = (0.2, 10.0)
MAX_BODY_BYTES = 16 << 20
API = "api/v1/agent/"
T = TypeVar("T")


class RequestRejected(Exception):
    """The server answered with an error that a retry would not change."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body = body
        self.error = str(body.get("error") or f"HTTP status {status}")
        super().__init__(f"{status}: {self.error}")


class Unreachable(Exception):
    """The server did not answer, or asked to retry later."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Client:
    """HTTP client of one agent. The token is sent only to the server's own addresses."""

    def __init__(self, server: str, token: str = "") -> None:
        self.server = server.rstrip("/") + "/"
        self.token = token
        proxies: dict[str, str] | None = {} if _is_loopback(urlsplit(server).hostname or "") else None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _NoRedirect())

    def post(self, path: str, body: object, timeout_s: float = TIMEOUT_S, token: str = "") -> dict[str, Any]:
        """Send a request to the agent's API and return the answer; `{}` for status 204.

        Args:
            path: Path below the agent's API.
            body: Bytes are sent unchanged; anything else is sent as JSON.
            timeout_s: Timeout of the request.
            token: Replaces the client's token.

        Raises:
            RequestRejected: The server answered with an error.
            Unreachable: The server did not answer.
        """
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.server + API + path, raw, headers, method="POST")
        with self._open(request, timeout_s) as response:
            return _decode_json(_read_body(response))

    def put(self, url: str, body: Iterable[bytes], size: int, headers: Mapping[str, str]) -> None:
        """Send `size` bytes to a signed address.

        Raises:
            RequestRejected: The server answered with an error.
            Unreachable: The server did not answer.
        """
        headers = {**self._auth_headers(url), **headers, "Content-Length": str(size)}
        request = urllib.request.Request(urljoin(self.server, url), cast("Any", body), headers, method="PUT")
        with self._open(request, TIMEOUT_S) as response:
            _read_body(response)

    def get(self, url: str, offset: int, write: Callable[[bytes], object]) -> int:
        """Download a file from byte `offset` on and pass its blocks to `write`.

        Returns:
            The byte at which the download really started: `offset`, or 0 without any data if the server ignores ranges.

        Raises:
            RequestRejected: The server answered with an error.
            Unreachable: The server did not answer, or the answer broke off.
        """
        headers = self._auth_headers(url) | ({"Range": f"bytes={offset}-"} if offset else {})
        request = urllib.request.Request(urljoin(self.server, url), headers=headers)
        with self._open(request, TIMEOUT_S) as response:
            if offset and response.status != 206:
                return 0  # the server would send the whole file
            remaining = response.length  # None: the answer ends with the connection
            while piece := _read_body(response, 1 << 18):
                write(piece)
                remaining = None if remaining is None else remaining - len(piece)
        if remaining:
            raise Unreachable(f"the answer ended {remaining:,} bytes early")
        return offset

    def _auth_headers(self, url: str) -> dict[str, str]:
        """Return the token for addresses of the agent's API. A signed address of another store needs no token."""
        address = urljoin(self.server, url)
        return {"Authorization": f"Bearer {self.token}"} if address.startswith(self.server + API) else {}

    def _open(self, request: urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
        request.add_header("User-Agent", "visualprof-agent")
        try:
            return self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise _to_exception(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(str(getattr(error, "reason", "") or error or type(error).__name__)) from None


def retry(
    call: Callable[[], T],
    stop: threading.Event,
    max_wait_s: float = float("inf"),
    on_failure: Callable[[Unreachable], object] | None = None,
) -> T:
    """Repeat a call with exponential backoff while the server is unreachable, and return its result.

    Args:
        call: The call.
        stop: Ends the retries when set.
        max_wait_s: Give up after this time.
        on_failure: Called with each error.

    Raises:
        StopRequested: `stop` was set.
        Unreachable: The server was still unreachable after `max_wait_s`.
        RequestRejected: The server answered the call with an error.
    """
    deadline = time.monotonic() + max_wait_s
    pause_s = BACKOFF_S[0]
    while True:
        try:
            return call()
        except Unreachable as error:
            if on_failure:
                on_failure(error)
            delay_s = max(pause_s * random.uniform(0.5, 1.5), error.retry_after_s)
            if time.monotonic() + delay_s > deadline:
                raise
        if stop.wait(delay_s):
            raise StopRequested
        pause_s = min(pause_s * 2, BACKOFF_S[1])


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, which would send the token to another server."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _to_exception(error: urllib.error.HTTPError) -> RequestRejected | Unreachable:
    if error.code == 429 or (error.code >= 500 and error.code != 507):
        wait = error.headers.get("Retry-After") or ""
        return Unreachable(f"HTTP status {error.code}", min(float(wait), 60.0) if wait.isdecimal() else 0.0)
    try:
        return RequestRejected(error.code, _decode_json(error.read(MAX_BODY_BYTES)))
    except (Unreachable, OSError, http.client.HTTPException):
        return RequestRejected(error.code, {})


def _read_body(response: http.client.HTTPResponse, size: int = MAX_BODY_BYTES) -> bytes:
    try:
        return response.read(size)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the answer broke off: {error}") from None


def _decode_json(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        raise Unreachable("the answer is not JSON; is a proxy in between?") from None
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _is_loopback(host: str) -> bool:
    """Return whether a host is this machine, which a proxy cannot reach."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except (OSError, ValueError):
        return host == "localhost"
