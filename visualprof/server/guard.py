"""What keeps other people's web pages out: the Host allow-list and the headers of every answer.

A page on the internet can make a browser resolve its own name to 127.0.0.1 (DNS rebinding) and then read
this server as its own. Its requests still carry its own name in `Host`, so only known names are served.
"""

from __future__ import annotations

import ipaddress
import socket

from flask import Flask, Response, request

from visualprof.errors import Forbidden

_LOCAL = ("localhost", "127.0.0.1", "::1")

# What is not named, as scripts, connections and fonts, is the default.
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; frame-ancestors 'self'; base-uri 'none'"
)


def install(app: Flask, bound: str, allowed: tuple[str, ...]) -> None:
    """Puts the guard before and after every request.

    Args:
        app: the application.
        bound: the address that the server listens on.
        allowed: further names; "*" is any.
    """
    names = {name.lower().strip("[]") for name in (*_LOCAL, bound, *allowed)}
    everywhere = not _loopback(bound)
    if everywhere:
        names.add(socket.gethostname().lower())

    def check() -> None:
        host = _host_name(request.headers.get("Host", ""))
        # An address cannot be rebound, only a name can.
        if "*" not in names and host not in names and not (everywhere and _is_address(host)):
            raise Forbidden(
                f"this server does not answer to the name {host[:100]!r}", f"start it with --allow-host {host[:100]}"
            )
        if request.method not in ("GET", "HEAD", "OPTIONS") and _foreign(host, names):
            raise Forbidden("a page of another site may not do this")

    app.before_request(check)
    app.after_request(_headers)


def _foreign(host: str, names: set[str]) -> bool:
    """Was it sent by a page of another site?

    Browsers say so in Sec-Fetch-Site, but not towards an address without TLS that is not this machine: `Origin` tells
    there. (It may be null for our own page, too, which asks for no referrer.)
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site == "cross-site"
    if origin is None or "*" in names:
        return origin == "null"
    sender = _host_name(origin.partition("://")[2])
    return not sender or (sender != host and sender not in names)


def _headers(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


def _host_name(header: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower().rstrip(".")


def _loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
