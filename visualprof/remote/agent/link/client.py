"""HTTP to the server: outbound only, by the standard library alone."""

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
    """The server answered with an error that does not change when it is asked again."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body = body
        self.error = str(body.get("error") or f"HTTP status {status}")
        super().__init__(f"{status}: {self.error}")


class Unreachable(Exception):
    """No answer, or one that says to come again later."""

    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class Client:
    """Requests of one agent. token: sent to the server's own addresses alone."""

    def __init__(self, server: str, token: str = "") -> None:
        self.server = server.rstrip("/") + "/"
        self.token = token
        proxies: dict[str, str] | None = {} if _is_loopback(urlsplit(server).hostname or "") else None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _NoRedirect())

    def post(self, path: str, body: object, timeout_s: float = TIMEOUT_S, token: str = "") -> dict[str, Any]:
        """The answer to a request of the agent's API; {} for 204. body: bytes as they are, anything else as JSON.

        Raises: Answered, Unreachable.
        """
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.server + API + path, raw, headers, method="POST")
        with self._open(request, timeout_s) as response:
            return _decoded(_read(response))

    def put(self, url: str, body: Iterable[bytes], size: int, headers: Mapping[str, str]) -> None:
        """Send `size` bytes to a signed address.

        Raises: Answered, Unreachable.
        """
        headers = {**self._signed(url), **headers, "Content-Length": str(size)}
        request = urllib.request.Request(urljoin(self.server, url), cast("Any", body), headers, method="PUT")
        with self._open(request, TIMEOUT_S) as response:
            _read(response)

    def get(self, url: str, start: int, write: Callable[[bytes], object]) -> int:
        """Fetch a file from byte `start` and gives its pieces to `take`; returns the byte that it really began at.

        Raises: Answered, Unreachable.
        """
        headers = self._signed(url) | ({"Range": f"bytes={start}-"} if start else {})
        request = urllib.request.Request(urljoin(self.server, url), headers=headers)
        with self._open(request, TIMEOUT_S) as response:
            if start and response.status != 206:
                return 0  # it would send the whole again
            left = response.length  # None: it ends when the connection does
            while piece := _read(response, 1 << 18):
                write(piece)
                left = None if left is None else left - len(piece)
        if left:
            raise Unreachable(f"the answer broke off {left:,} bytes before its end")
        return start

    def _signed(self, url: str) -> dict[str, str]:
        """The token for addresses of the agent's API; a signed address of another store needs none."""
        whole = urljoin(self.server, url)
        return {"Authorization": f"Bearer {self.token}"} if whole.startswith(self.server + API) else {}

    def _open(self, request: urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
        request.add_header("User-Agent", "visualprof-agent")
        try:
            return self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(str(getattr(error, "reason", "") or error or type(error).__name__)) from None


def retry(
    call: Callable[[], T],
    stop: threading.Event,
    max_wait_s: float = float("inf"),
    on_failure: Callable[[Unreachable], object] | None = None,
) -> T:
    """Repeat a call, with growing pauses, while the server is unreachable; returns its result.

    Raises: StopRequested: `stop` was set meanwhile. Unreachable: still so after `patience_s`. Answered: from the call.
    """
    deadline = time.monotonic() + max_wait_s
    pause = BACKOFF_S[0]
    while True:
        try:
            return call()
        except Unreachable as error:
            if on_failure:
                on_failure(error)
            wait = max(pause * random.uniform(0.5, 1.5), error.retry_after_s)
            if time.monotonic() + wait > deadline:
                raise
        if stop.wait(wait):
            raise StopRequested
        pause = min(pause * 2, BACKOFF_S[1])


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would carry the token to another server."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _refusal(error: urllib.error.HTTPError) -> RequestRejected | Unreachable:
    if error.code == 429 or (error.code >= 500 and error.code != 507):
        wait = error.headers.get("Retry-After") or ""
        return Unreachable(f"HTTP status {error.code}", min(float(wait), 60.0) if wait.isdecimal() else 0.0)
    try:
        return RequestRejected(error.code, _decoded(error.read(MAX_BODY_BYTES)))
    except (Unreachable, OSError, http.client.HTTPException):
        return RequestRejected(error.code, {})


def _read(response: http.client.HTTPResponse, size: int = MAX_BODY_BYTES) -> bytes:
    try:
        return response.read(size)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the answer broke off: {error}") from None


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        raise Unreachable("the answer is not JSON; is a proxy in between?") from None
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine, which no proxy finds."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except (OSError, ValueError):
        return host == "localhost"
