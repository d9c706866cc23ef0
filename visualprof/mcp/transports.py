"""Connect clients to the server: over standard input and output, or over HTTP."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from visualprof.errors import VisualprofError
from visualprof.server.routes import MAX_BODY_BYTES
from visualprof.server.session_token import TOKEN_HEADER, TOKEN_VARIABLE

MCP_PATH = "/mcp"
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_CLOSE_S = 3  # for requests in progress


def serve_stdio(server: Server[Any]) -> None:
    """Answer until the client closes its end. Write nothing but the protocol to standard output."""

    async def run() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(run)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket for the HTTP server; port 0 chooses a free port.

    Raises:
        VisualprofError: The address is not available.
    """
    name = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        hint = "choose another --port; --port 0 takes a free one"
        raise VisualprofError(f"cannot listen on {host}:{port}: {error.strerror or error}", hint) from error


def serve_http(server: Server[Any], bound: socket.socket, token: str, names: Sequence[str]) -> None:
    """Answer requests until interrupted.

    Args:
        server: Server of the protocol.
        bound: Socket from `listen`.
        token: Token that each request must contain, "" for none.
        names: Host names by which clients may reach the server, in addition to those of this machine.
    """
    config = uvicorn.Config(
        http_app(server, token, names), log_level="warning", timeout_graceful_shutdown=_CLOSE_S, server_header=False
    )
    uvicorn.Server(config).run([bound])


def http_app(server: Server[Any], token: str, names: Sequence[str]) -> ASGIApp:
    """Return the application. It answers only to known host names, not to other websites, and only with the token."""
    hosts = [*_LOCAL, *names]
    security = TransportSecuritySettings(
        allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)],
        allowed_origins=list(_origins(hosts)),
    )
    app = server.streamable_http_app(
        streamable_http_path=MCP_PATH, transport_security=security, max_request_body_size=MAX_BODY_BYTES
    )
    return _Guard(app, token) if token else app


def _origins(hosts: Sequence[str]) -> Iterator[str]:
    for host in hosts:
        for scheme in ("http", "https"):
            yield f"{scheme}://{host}"
            yield f"{scheme}://{host}:*"


class _Guard:
    """A filter that rejects requests without the token, in `Authorization: Bearer` or in the dashboard's header."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._has_token(scope["headers"]):
            hint = f"send Authorization: Bearer TOKEN; {TOKEN_VARIABLE} sets it for the server"
            body = {"error": "this needs the server's token", "hint": hint}
            headers = {"WWW-Authenticate": "Bearer"}
            await JSONResponse(body, 401, headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _has_token(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        values = dict(headers)
        scheme, _, bearer = values.get(b"authorization", b"").partition(b" ")
        header_token = values.get(TOKEN_HEADER.lower().encode(), b"")
        sent = bearer.strip() if scheme.lower() == b"bearer" else header_token
        return hmac.compare_digest(sent, self._token)
