"""Authenticate a request by its cookie or token, and authorize it for a route."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from flask import Response, g, request
from werkzeug.http import parse_cookie

from visualprof.accounts.principal import ANONYMOUS, LINK_PREFIX, READER, SINGLE_USER, TOKEN_PREFIX, Actor, Principal
from visualprof.errors import Forbidden, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import Unauthenticated
from visualprof.server.hosts import is_proxy, original_client
from visualprof.server.session_token import TOKEN_HEADER, TOKEN_VARIABLE
from visualprof.server.settings import Settings

if TYPE_CHECKING:
    from visualprof.accounts.proxy_login import ProxyAuth
    from visualprof.accounts.service import Accounts

# Role that a route needs: none ("anyone"), a token of an agent that the route checks itself ("agent"), or a role.
# Routes that show a run accept a link to the run, or the role of a viewer ("link").
RequiredRole = Literal["anyone", "agent", "link", "viewer", "member", "admin"]


def current_principal() -> Principal:
    """Return the principal of the current request."""
    return g.principal


def current_actor() -> Actor:
    """Return the principal and the address of the current request."""
    return Actor(g.principal, client_address())


def client_address() -> str:
    """Return the client address of the current request."""
    return original_client(request.remote_addr or "", request.headers.getlist("X-Forwarded-For"), g.proxies)


HeaderGetter = Callable[[str], str]  # the value of a header, "" without one
Identify = Callable[[str, HeaderGetter], Principal]  # from the address of the connection and the headers


def create_identifier(settings: Settings, accounts: Accounts | None, proxied: ProxyAuth | None = None) -> Identify:
    """Return a function that identifies the sender of a request. With `proxied`, a proxy logs users in."""

    def by_token(_: str, header: HeaderGetter) -> Principal:
        token = header(TOKEN_HEADER).encode("utf-8", "replace")
        if not settings.access.token or hmac.compare_digest(token, settings.access.token.encode()):
            return SINGLE_USER
        return ANONYMOUS if settings.access.private else READER

    def by_account(peer: str, header: HeaderGetter) -> Principal:
        assert accounts is not None
        scheme, _, bearer = header("Authorization").partition(" ")
        token = bearer.strip() if scheme.lower() == "bearer" else header(TOKEN_HEADER)
        if token.startswith(TOKEN_PREFIX):  # a token takes precedence over the cookie
            return accounts.sessions.principal_for_token(token)
        if token.startswith(LINK_PREFIX):
            return accounts.links.principal_for_code(token)
        if proxied is not None:
            name = header(settings.access.user_header)
            if not (name and is_proxy(peer, settings.web.proxies)):  # only a trusted proxy may name the user
                return ANONYMOUS
            return proxied.principal(name, original_client(peer, [header("X-Forwarded-For")], settings.web.proxies))
        cookie = parse_cookie(header("Cookie")).get(cookie_name(settings), "")
        return accounts.sessions.principal_for_cookie(cookie) if cookie else ANONYMOUS

    return by_account if accounts else by_token


def authorize(needs: RequiredRole, accounts: bool, acts: bool) -> None:
    """Check that the current request may use a route.

    Args:
        needs: Role that the route needs.
        accounts: Whether the server has accounts.
        acts: Whether the request changes data.

    Raises:
        Unauthenticated: The client is not logged in, or a token is missing.
        Forbidden: The role may not use the route.
        NotFound: The request uses a link to a run, which does not open this route.
    """
    principal = current_principal()
    if principal.scope is not None and needs not in ("anyone", "agent", "link"):
        raise NotFound(
            msg("server.link_one_run_opens", "a link to one run opens nothing else"), msg("server.log", "log in")
        )
    role = "viewer" if needs == "link" else needs
    if role in ("anyone", "agent") or principal.may(role):
        if principal.csrf and acts and needs != "agent":
            token = request.headers.get(TOKEN_HEADER, "").encode("utf-8", "replace")
            if not hmac.compare_digest(token, principal.csrf.encode()):
                raise Unauthenticated(
                    msg("server.page_lost_session", "this page has lost its session"), msg("server.reload", "reload it")
                )
        return
    if not accounts:
        hint = msg(
            "server.link_server_printed_commands",
            f"it is in the link that the server printed; commands take --token T or {TOKEN_VARIABLE}",
        )
        raise Unauthenticated(msg("server.needs_servers_token", "this needs the server's token"), hint)
    if principal.role is None:
        hint = msg(
            "server.commands_take_token_t",
            f"commands take --token T or {TOKEN_VARIABLE}, with a token of the Account page",
        )
        raise Unauthenticated(msg("server.nobody_logged", "you are not logged in"), hint)
    raise Forbidden(
        msg("server.needs_you_here", f"this needs a {needs}, and you are a {principal.role} here"),
        msg("server.ask_administrator", "ask an administrator"),
    )


def cookie_name(settings: Settings, name: str = "visualprof") -> str:
    """Return the name of a cookie. With TLS, its prefix keeps other hosts from setting the cookie."""
    return f"__Host-{name}" if settings.web.secure else name


def set_cookie(
    response: Response, settings: Settings, cookie: str, name: str = "visualprof", age_s: int | None = None
) -> None:
    """Set a cookie for the browser session or for `age_s` seconds. An empty value deletes it."""
    age = age_s if cookie else 0
    response.set_cookie(
        cookie_name(settings, name), cookie, age, httponly=True, samesite="Lax", secure=settings.web.secure
    )
