"""Who the page acts for: the server's token on a laptop; logging in and out where people have accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from flask import Response, request

from visualprof.accounts.principal import NOBODY, Actor, Principal, Registration, Role
from visualprof.errors import Forbidden, NotFound
from visualprof.server.answers import answer, row
from visualprof.server.identity import actor, sender, set_cookie, who
from visualprof.server.routes import Resource, change, get
from visualprof.server.settings import Settings

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

REFUSED = {
    403: "a proxy logs people in",
    401: "the address or the password are wrong",
    404: "there are no accounts",
    429: "too many attempts",
}


class Person(msgspec.Struct):
    """Somebody with an account. session: they logged in here, and can log out."""

    id: str
    email: str
    name: str
    role: Role
    session: bool


class SessionAnswer(msgspec.Struct):
    """trusted: whoever asks may act. accounts: people log in here. person: who did; null for nobody.

    registration: whether people make their accounts themselves. token: what the page sends with every change.
    by_proxy: a proxy logs people in, and out. direct: files for jobs go to a bucket (POST uploads/direct).
    """

    trusted: bool
    accounts: bool
    registration: Registration
    person: Person | None
    token: str
    by_proxy: bool
    direct: bool


class LogIn(msgspec.Struct, forbid_unknown_fields=True):
    """Who somebody is, and the proof."""

    email: str
    password: str


class Register(LogIn, kw_only=True):
    """An account to be made. code: of the invitation."""

    name: str = ""
    code: str = ""


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody sets a new password by a code."""

    code: str
    password: str


class Session(Resource):
    """The routes that somebody who is not logged in needs."""

    def __init__(self, settings: Settings, accounts: Accounts | None) -> None:
        self._settings, self._accounts = settings, accounts

    @get("/session", needs="anyone")
    def session(self) -> SessionAnswer:
        """Who asks, and may they act?"""
        return self._answer(who())

    @change("POST", "/session", refuses=REFUSED, needs="anyone")
    def log_in(self, body: LogIn) -> SessionAnswer | Response:
        """Log in; the cookie is that of a new session."""
        accounts = with_passwords(self._accounts, self._settings)
        return self._begin(accounts, accounts.users.log_in(body.email, body.password, sender()).id)

    @change("DELETE", "/session", refuses=REFUSED, needs="viewer")
    def log_out(self) -> SessionAnswer | Response:
        """Log out."""
        accounts = existing(self._accounts)
        if who().session:
            accounts.sessions.end(actor(), who().session)
        response = answer(self._answer(NOBODY))
        set_cookie(response, self._settings, "")
        return response

    @change("POST", "/session/register", refuses={**REFUSED, 409: "the address is taken"}, needs="anyone")
    def register(self, body: Register) -> SessionAnswer | Response:
        """Make an account, and log in."""
        accounts = with_passwords(self._accounts, self._settings)
        user = accounts.users.register(
            Actor(NOBODY, sender()), body.email, body.name, body.password, accounts.registration, body.code
        )
        return self._begin(accounts, user.id)

    @change(
        "POST", "/session/password", refuses={**REFUSED, 400: "the code or the password are of no use"}, needs="anyone"
    )
    def reset(self, body: NewPassword) -> SessionAnswer:
        """Set a new password by a code; whoever has it logs in with that."""
        with_passwords(self._accounts, self._settings).users.reset_password(
            Actor(NOBODY, sender()), body.code, body.password
        )
        return self._answer(who())

    def _begin(self, accounts: Accounts, user: str) -> Response:
        cookie = accounts.sessions.begin(user, sender(), request.headers.get("User-Agent", ""))
        response = answer(self._answer(accounts.sessions.of_cookie(cookie)))
        set_cookie(response, self._settings, cookie)
        return response

    def _answer(self, principal: Principal) -> SessionAnswer:
        registration = self._accounts.registration if self._accounts else "off"
        person, trusted = person_of(principal), principal.may("member")
        by_proxy, direct = bool(self._settings.user_header), self._settings.store is not None
        return SessionAnswer(trusted, bool(self._accounts), registration, person, principal.csrf, by_proxy, direct)


def person_of(principal: Principal) -> Person | None:
    """Who is logged in; None for nobody, and where there are no accounts."""
    return row(Person, principal, id=principal.user, session=bool(principal.session)) if principal.user else None


def existing(accounts: Accounts | None) -> Accounts:
    """The accounts.

    Raises: NotFound: the server has none.
    """
    if accounts is None:
        raise NotFound("this server has no accounts", "start it with --accounts")
    return accounts


def with_passwords(accounts: Accounts | None, settings: Settings) -> Accounts:
    """The accounts, where people log in by passwords.

    Raises: NotFound: the server has none. Forbidden: a proxy does it.
    """
    if settings.user_header:
        raise Forbidden("the proxy in front of this server logs people in", "passwords are changed there")
    return existing(accounts)
