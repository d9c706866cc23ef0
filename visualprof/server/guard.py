"""Who may ask and who may act: names, origins and the session's token; and the headers of every answer.

A page on the internet can make a browser resolve its own name to 127.0.0.1 (DNS rebinding) and then read
this server as its own. Its requests still carry its own name in `Host`, so only known names are served.
A page of another port or host can send requests, though not read the answers: what changes something must come from
our own page, or from no browser at all. Other users of this machine have no page to betray them: they lack the token.
"""

from __future__ import annotations

import socket
from functools import partial
from urllib.parse import urlsplit

from flask import Flask, Response, g, request

from visualprof.errors import Forbidden
from visualprof.messages import msg
from visualprof.server.hosts import is_ip_address, is_loopback
from visualprof.server.identity import Identify, RequiredRole, authorize
from visualprof.server.settings import Settings

_LOCAL = ("localhost", "127.0.0.1", "::1")

# What is not named, as scripts, connections and fonts, is the default.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'self'"
)


def install(app: Flask, settings: Settings, identify: Identify) -> None:
    """Put the guard before and after every request; `identity.who()` is known from then on."""
    bound, public = settings.host, urlsplit(settings.base_url).netloc
    further = [*settings.allowed_hosts, *([public] if public else [])]
    names = {_host_name(name) for name in (*_LOCAL, bound, *further)}
    origins = {name.lower() for name in further}
    everywhere = not is_loopback(bound)
    if everywhere:
        names.add(socket.gethostname().lower())

    def check() -> None:
        host = _host_name(request.headers.get("Host", ""))
        # An address cannot be rebound, only a name can.
        if "*" not in names and host not in names and not (everywhere and is_ip_address(host)):
            raise Forbidden(
                msg("server.server_not_answer_name", f"this server does not answer to the name {host[:100]!r}"),
                msg("server.start_allow_host", f"start it with --allow-host {host[:100]}"),
            )
        acts = request.method not in ("GET", "HEAD", "OPTIONS")
        if acts and _is_cross_origin(origins):
            raise Forbidden(
                msg("server.only_dashboards_own_page", "only the dashboard's own page may do this"),
                msg("server.proxy_front_must_pass", "a proxy in front of it must pass Host on"),
            )
        g.proxies = settings.proxies
        g.principal = identify(request.remote_addr or "", lambda name: request.headers.get(name, ""))
        authorize(required_role(app, request.endpoint, acts), settings.accounts, acts)

    app.before_request(check)
    # The page's own connections, and those to the bucket that takes its files.
    connects = (f"connect-src 'self' {settings.store.origin};",) if settings.store else ()
    app.after_request(
        partial(_add_security_headers, " ".join((*connects, CONTENT_SECURITY_POLICY, *settings.embedded_in)))
    )


def required_role(app: Flask, endpoint: str | None, acts: bool) -> RequiredRole:
    """What a route needs; an address that is none, as others do."""
    default = "member" if acts else "viewer"
    return getattr(app.view_functions[endpoint], "needs", "admin") if endpoint else default


def _is_cross_origin(origins: set[str]) -> bool:
    """Was it sent by a page that is not ours? Our origin is what the browser calls `Host`, its port included.

    Browsers say so in Sec-Fetch-Site, but not towards an address without TLS that is not this machine: `Origin` tells
    there. What neither says is from no page, unless its other headers are a browser's.

    Args:
        origins: further ones, with their ports where those are not the usual: a proxy may know us by another name.
    """
    headers = request.headers
    site, sender = headers.get("Sec-Fetch-Site"), headers.get("Origin") or headers.get("Referer")
    if site is not None:
        return site not in ("same-origin", "none")
    if sender is not None:
        return sender.partition("://")[2].partition("/")[0].lower() not in {headers["Host"].lower(), *origins}
    browser = headers.get("User-Agent", "").startswith("Mozilla/")
    return browser or any(name.startswith("Sec-") for name, _ in headers)


def _add_security_headers(policy: str, response: Response) -> Response:
    response.headers["Content-Security-Policy"] = policy
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


def _host_name(header: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.lower() if is_ip_address(header) else header.partition(":")[0].lower().rstrip(".")
