"""Who the page acts for: the server's token on a laptop; logging in and out where people have accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec
from flask import Response, request
from msgspec.structs import replace

from visualprof.accounts.notifications.kinds import Language
from visualprof.accounts.principal import ANONYMOUS, Actor, Principal, Registration, Role
from visualprof.errors import Forbidden, NotFound
from visualprof.messages import msg
from visualprof.server.identity import client_address, cookie_name, current_actor, current_principal, set_cookie
from visualprof.server.responses import build_row, json_response
from visualprof.server.routes import Resource, get, mutation, read_body
from visualprof.server.settings import Settings

if TYPE_CHECKING:
    from visualprof.accounts.external_login import OidcLogin as IssuedAccounts
    from visualprof.accounts.mail_links import AccountLinkMailer
    from visualprof.accounts.service import Accounts

ISSUER_ERRORS = {404: msg("server.there_none_there_no", "there is none, or there are no accounts")}
LOGIN_COOKIE, LOGIN_COOKIE_S = "visualprof-log-in", 600  # of a log-in at the issuer
ID_TOKEN_COOKIE, MAX_ID_TOKEN_CHARS = (
    "visualprof-issued",
    3500,
)  # keeps the ID token until the session ends, where a cookie has room for it
FORM_TYPE, MAX_FORM_BYTES = "application/x-www-form-urlencoded", 64 << 10
LOG_OUT_ERRORS = {
    **ISSUER_ERRORS,
    400: msg("server.token_not_issuers_another", "the token is not the issuer's, of another time, or was used"),
    429: msg("server.too_many_attempts", "too many attempts"),
    502: msg("server.issuer_not_answer", "the issuer does not answer"),
}
LOGIN_ERRORS = {
    403: msg("server.proxy_logs_people", "a proxy logs people in"),
    401: msg("server.address_password_wrong", "the address or the password are wrong"),
    404: msg("server.there_no_accounts", "there are no accounts"),
    429: msg("server.too_many_attempts", "too many attempts"),
}


class CurrentUser(msgspec.Struct):
    """Somebody with an account. session: they logged in here, and can log out."""

    id: str
    email: str
    name: str
    role: Role
    session: bool


class SessionAnswer(msgspec.Struct, kw_only=True):
    """trusted: whoever asks may act. accounts: people log in here. person: who did; null for nobody.

    registration: whether people make their accounts themselves. token: what the page sends with every change.
    by_proxy: a proxy logs people in, and out. issuer: host of the one where people may log in; "" without one.
    by_mail: links to make an account and to set a new password are sent by e-mail.
    direct: files for jobs go to a bucket (POST uploads/direct). leave: where who has logged out ends the session at the
    issuer, too; "" for nowhere.
    """

    trusted: bool
    accounts: bool
    registration: Registration
    person: CurrentUser | None
    token: str
    by_proxy: bool
    issuer: str
    by_mail: bool
    direct: bool
    leave: str = ""


class LoginRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Who somebody is, and the proof."""

    email: str
    password: str


class RegistrationRequest(LoginRequest, kw_only=True):
    """An account to be made. code: of the invitation."""

    name: str = ""
    code: str = ""


class IssuerUrl(msgspec.Struct):
    """Where somebody logs in; from there they come back."""

    address: str


class IssuerCallback(msgspec.Struct, forbid_unknown_fields=True):
    """What the issuer gave to whom it sent back. error: instead of a code."""

    state: str
    code: str = ""
    error: str = ""


class LinkRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A link that somebody wants by e-mail: to make an account (confirm), or to set a new password (reset)."""

    email: str
    wish: Literal["confirm", "reset"]
    language: Language = "en"


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody sets a new password by a code."""

    code: str
    password: str


class Session(Resource):
    """The routes that somebody who is not logged in needs."""

    def __init__(
        self,
        settings: Settings,
        accounts: Accounts | None,
        issued: IssuedAccounts | None = None,
        by_mail: AccountLinkMailer | None = None,
    ) -> None:
        self._settings, self._accounts, self._issued, self._by_mail = settings, accounts, issued, by_mail

    @get("/session", needs="anyone")
    def session(self) -> SessionAnswer:
        """Who asks, and may they act?"""
        return self._answer(current_principal())

    @mutation("POST", "/session", errors=LOGIN_ERRORS, needs="anyone")
    def log_in(self, body: LoginRequest) -> SessionAnswer | Response:
        """Log in; the cookie is that of a new session."""
        accounts = require_password_login(self._accounts, self._settings)
        return self._begin(accounts, accounts.users.log_in(body.email, body.password, client_address()).id)

    @mutation("POST", "/session/issuer", errors={**ISSUER_ERRORS, 502: "it does not answer"}, needs="anyone")
    def begin_issuer(self) -> IssuerUrl | Response:
        """Begin to log in at the issuer; a cookie keeps what the way back needs."""
        kept, address = self._known_issuer().start(client_address())
        response = json_response(IssuerUrl(address))
        set_cookie(response, self._settings, kept, LOGIN_COOKIE, LOGIN_COOKIE_S)
        return response

    @mutation("POST", "/session/issued", errors={**ISSUER_ERRORS, 401: "it vouches for nobody who may"}, needs="anyone")
    def log_in_issued(self, body: IssuerCallback) -> SessionAnswer | Response:
        """Log in with what the issuer gave; the cookie is that of a new session."""
        issued, kept = self._known_issuer(), request.cookies.get(cookie_name(self._settings, LOGIN_COOKIE), "")
        said = issued.issuer.finish_login(kept, body.state, body.code, body.error)
        user, name = issued.log_in(said, client_address()), issued.session_digest(said)
        response = self._begin(require_accounts(self._accounts), user, said.token, name)
        set_cookie(response, self._settings, "", LOGIN_COOKIE)
        return response

    @mutation("POST", "/session/logged-out", status=204, content=FORM_TYPE, errors=LOG_OUT_ERRORS, needs="anyone")
    def log_out_issued(self) -> None:
        """The issuer ends sessions that began there: its logout token says which."""
        said = parse_qs(read_body(MAX_FORM_BYTES).decode("utf-8", "replace"))
        self._known_issuer().log_out(said.get("logout_token", [""])[0], client_address())

    @mutation("DELETE", "/session", errors=LOGIN_ERRORS, needs="viewer")
    def log_out(self) -> SessionAnswer | Response:
        """Log out."""
        accounts = require_accounts(self._accounts)
        if current_principal().session:
            accounts.sessions.end(current_actor(), current_principal().session)
        token = request.cookies.get(cookie_name(self._settings, ID_TOKEN_COOKIE), "")
        leave = self._issued.issuer.end_session_url(token) if self._issued and token else ""
        response = json_response(replace(self._answer(ANONYMOUS), leave=leave))
        for of in ("visualprof", ID_TOKEN_COOKIE):
            set_cookie(response, self._settings, "", of)
        return response

    @mutation("POST", "/session/register", errors={**LOGIN_ERRORS, 409: "the address is taken"}, needs="anyone")
    def register(self, body: RegistrationRequest) -> SessionAnswer | Response:
        """Make an account, and log in."""
        accounts = require_password_login(self._accounts, self._settings)
        self._refuse_register()
        if self._by_mail and accounts.registration == "open" and not body.code:
            raise Forbidden(
                msg("server.address_confirmed", "the address is to be confirmed"),
                msg("server.ask_link", "ask for a link to it"),
            )
        user = accounts.users.register(
            Actor(ANONYMOUS, client_address()), body.email, body.name, body.password, accounts.registration, body.code
        )
        return self._begin(accounts, user.id)

    @mutation("POST", "/session/link", errors={**LOGIN_ERRORS, 400: "it is no address"}, needs="anyone")
    def send_link(self, body: LinkRequest) -> SessionAnswer:
        """Have a link sent to one's address. The answer is the same whether it has an account."""
        accounts = require_password_login(self._accounts, self._settings)
        if body.wish == "confirm":
            self._refuse_register()
        if self._by_mail is None or (body.wish == "confirm" and accounts.registration != "open"):
            raise Forbidden(
                msg("server.server_sends_no_such", "this server sends no such links"),
                msg("server.ask_administrator_one", "ask an administrator for one"),
            )
        self._by_mail.request(Actor(ANONYMOUS, client_address()), body.email, body.wish, body.language)
        return self._answer(current_principal())

    @mutation(
        "POST",
        "/session/password",
        errors={**LOGIN_ERRORS, 400: "the code or the password are of no use"},
        needs="anyone",
    )
    def reset(self, body: NewPassword) -> SessionAnswer:
        """Set a new password by a code; whoever has it logs in with that."""
        require_password_login(self._accounts, self._settings).users.reset_password(
            Actor(ANONYMOUS, client_address()), body.code, body.password
        )
        return self._answer(current_principal())

    def _known_issuer(self) -> IssuedAccounts:
        if self._issued is None:
            raise NotFound(
                msg("server.people_not_log_issuer", "people do not log in by an issuer here"),
                msg("server.start_server_oidc", "start the server with --oidc"),
            )
        return self._issued

    def _refuse_register(self) -> None:
        if self._issued:  # whose users own their addresses: nobody may claim one before
            raise Forbidden(
                msg("server.people_here_log_issuer", "people here log in by the issuer"),
                msg("server.makes_account", "that makes the account"),
            )

    def _begin(self, accounts: Accounts, user: str, token: str = "", issued: str | None = None) -> Response:
        cookie = accounts.sessions.create(user, client_address(), request.headers.get("User-Agent", ""), issued)
        response = json_response(self._answer(accounts.sessions.principal_for_cookie(cookie)))
        set_cookie(response, self._settings, cookie)
        if self._issued:
            set_cookie(response, self._settings, token if len(token) <= MAX_ID_TOKEN_CHARS else "", ID_TOKEN_COOKIE)
        return response

    def _answer(self, principal: Principal) -> SessionAnswer:
        registration = self._accounts.registration if self._accounts else "off"
        person, trusted = current_user(principal), principal.may("member")
        return SessionAnswer(
            trusted=trusted,
            accounts=bool(self._accounts),
            registration=registration,
            person=person,
            token=principal.csrf,
            by_proxy=bool(self._settings.user_header),
            issuer=urlsplit(self._settings.oidc).hostname or "",
            by_mail=self._by_mail is not None,
            direct=self._settings.store is not None,
        )


def current_user(principal: Principal) -> CurrentUser | None:
    """Who is logged in; None for nobody, and where there are no accounts."""
    return (
        build_row(CurrentUser, principal, id=principal.user, session=bool(principal.session))
        if principal.user
        else None
    )


def require_accounts(accounts: Accounts | None) -> Accounts:
    """The accounts.

    Raises: NotFound: the server has none.
    """
    if accounts is None:
        raise NotFound(
            msg("server.server_no_accounts", "this server has no accounts"),
            msg("server.start_accounts", "start it with --accounts"),
        )
    return accounts


def require_password_login(accounts: Accounts | None, settings: Settings) -> Accounts:
    """The accounts, where people log in by passwords.

    Raises: NotFound: the server has none. Forbidden: a proxy does it.
    """
    if settings.user_header:
        raise Forbidden(
            msg("server.proxy_front_server_logs", "the proxy in front of this server logs people in"),
            msg("server.passwords_changed_there", "passwords are changed there"),
        )
    return require_accounts(accounts)
