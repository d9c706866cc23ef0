"""Check host names, origins and the session token of each request, and add security headers to each response.

A website can make a browser resolve the website's name to 127.0.0.1 (DNS rebinding) and then read this server as its
own. Such requests still carry the website's name in `Host`, so the server answers only to known names. A page of
another port or host can send requests, but cannot read the responses. So a request that changes data must come from our
own web UI, or not from a browser. Other users of this machine cannot act, because they do not have the token.
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

HSTS_S = 365 * 86400
# Types that are not listed, such as scripts, connections and fonts, use the default.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'self'"
)


def install(app: Flask, settings: Settings, identify: Identify) -> None:
    """Install checks before and security headers after each request. The checks also set the current principal."""
    bound, public = settings.web.host, urlsplit(settings.web.base_url).netloc
    further = [*settings.web.allowed_hosts, *([public] if public else [])]
    names = {_host_name(name) for name in (*_LOCAL, bound, *further)}
    origins = {name.lower() for name in further}
    everywhere = not is_loopback(bound)
    if everywhere:
        names.add(socket.gethostname().lower())

    def check() -> None:
        host = _host_name(request.headers.get("Host", ""))
        # DNS rebinding needs a name, so IP addresses are safe.
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
        g.proxies = settings.web.proxies
        g.principal = identify(request.remote_addr or "", lambda name: request.headers.get(name, ""))
        authorize(required_role(app, request.endpoint, acts), settings.access.accounts, acts)

    app.before_request(check)
    # The web UI connects to this server and to the bucket that receives its uploads.
    connects = (f"connect-src 'self' {settings.queue.store.origin};",) if settings.queue.store else ()
    policy = " ".join((*connects, CONTENT_SECURITY_POLICY, *settings.web.embedded_in))
    app.after_request(partial(_add_security_headers, policy, settings))


def required_role(app: Flask, endpoint: str | None, acts: bool) -> RequiredRole:
    """Return the role that a route needs; an unknown address needs the default role."""
    default = "member" if acts else "viewer"
    return getattr(app.view_functions[endpoint], "needs", "admin") if endpoint else default


def _is_cross_origin(origins: set[str]) -> bool:
    """Whether a page of another site sent the request. Our origin is the browser's `Host`, including its port.

    Browsers send Sec-Fetch-Site, except to remote addresses without TLS; there, `Origin` indicates the sender. A
    request without both comes from no page, unless its other headers are those of a browser.

    Args:
        origins: Further allowed origins, with non-default ports: a proxy may serve us under another name.
    """
    headers = request.headers
    site, sender = headers.get("Sec-Fetch-Site"), headers.get("Origin") or headers.get("Referer")
    if site is not None:
        return site not in ("same-origin", "none")
    if sender is not None:
        return sender.partition("://")[2].partition("/")[0].lower() not in {headers["Host"].lower(), *origins}
    browser = headers.get("User-Agent", "").startswith("Mozilla/")
    return browser or any(name.startswith("Sec-") for name, _ in headers)


def _add_security_headers(policy: str, settings: Settings, response: Response) -> Response:
    response.headers["Content-Security-Policy"] = policy
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    if settings.access.accounts and request.path.startswith("/api/"):
        response.headers["Cache-Control"] = "no-store"  # answers depend on the user, and the machine may be shared
    if settings.web.secure:
        response.headers["Strict-Transport-Security"] = f"max-age={HSTS_S}"
    return response


def _host_name(header: str) -> str:
    """Return the name in a Host header, in lower case, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.lower() if is_ip_address(header) else header.partition(":")[0].lower().rstrip(".")
