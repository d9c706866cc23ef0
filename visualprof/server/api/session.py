"""Sessions: the server's token on a single-user server, login and logout on a server with accounts."""

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
from visualprof.server.login_providers import open_login_providers
from visualprof.server.responses import build_row, json_response
from visualprof.server.routes import Resource, get, mutation, read_body
from visualprof.server.services import Services

if TYPE_CHECKING:
    from visualprof.accounts.external_login import OidcLogin as IssuedAccounts
    from visualprof.accounts.service import Accounts

ISSUER_ERRORS = {404: msg("server.there_none_there_no", "there is no issuer, or there are no accounts")}
LOGIN_COOKIE, LOGIN_COOKIE_S = "visualprof-log-in", 600  # during a login at the issuer
# Stores the ID token until the session ends, if it fits into a cookie.
ID_TOKEN_COOKIE, MAX_ID_TOKEN_CHARS = "visualprof-issued", 3500
FORM_TYPE, MAX_FORM_BYTES = "application/x-www-form-urlencoded", 64 << 10
LOG_OUT_ERRORS = {
    **ISSUER_ERRORS,
    400: msg("server.token_not_issuers_another", "the token is not from the issuer, has expired or was already used"),
    429: msg("server.too_many_attempts", "too many attempts"),
    502: msg("server.issuer_not_answer", "the issuer does not answer"),
}
LOGIN_ERRORS = {
    403: msg("server.proxy_logs_people", "a proxy logs users in"),
    401: msg("server.address_password_wrong", "the address or the password is wrong"),
    404: msg("server.there_no_accounts", "there are no accounts"),
    429: msg("server.too_many_attempts", "too many attempts"),
}


class CurrentUser(msgspec.Struct):
    """The user of the current request.

    Attributes:
        id: Id of the user.
        email: Address of the user.
        name: Name of the user.
        role: Role of the user.
        session: Whether the user logged in here and can log out.
    """

    id: str
    email: str
    name: str
    role: Role
    session: bool


class SessionAnswer(msgspec.Struct, kw_only=True):
    """The session of the current request, and how users can log in.

    Attributes:
        trusted: Whether the current user may change data.
        accounts: Whether the server has accounts.
        registration: Whether users can create their own accounts.
        person: The current user, or null if no user is logged in.
        token: Token that the web UI sends with every change.
        by_proxy: Whether a proxy logs users in and out.
        issuer: Host of the issuer where users can log in, or "" without an issuer.
        by_mail: Whether e-mail links can create an account and reset a password.
        direct: Whether job files are uploaded to a bucket (POST uploads/direct).
        leave: URL that also ends the session at the issuer after a logout, or "".
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
    """Credentials of a user."""

    email: str
    password: str


class RegistrationRequest(LoginRequest, kw_only=True):
    """An account to create.

    Attributes:
        name: Name of the user.
        code: Code of the invitation.
    """

    name: str = ""
    code: str = ""


class IssuerUrl(msgspec.Struct):
    """The URL at the issuer where the user logs in. The issuer then redirects the user back."""

    address: str


class IssuerCallback(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters with which the issuer redirected the user back. `error` replaces `code` if the login failed."""

    state: str
    code: str = ""
    error: str = ""


class LinkRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request for an e-mail link that creates an account (`confirm`) or resets a password (`reset`)."""

    email: str
    wish: Literal["confirm", "reset"]
    language: Language = "en"


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    """A new password with the code that permits it."""

    code: str
    password: str


class Session(Resource):
    """The routes that work without a login."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._issued, self._by_mail = open_login_providers(services.settings, services.accounts)

    @get("/session", needs="anyone")
    def session(self) -> SessionAnswer:
        """Return the current user and the permission to change data."""
        return self._answer(current_principal())

    @mutation("POST", "/session", errors=LOGIN_ERRORS, needs="anyone")
    def log_in(self, body: LoginRequest) -> SessionAnswer | Response:
        """Log in with a password and set the cookie of a new session."""
        accounts = require_password_login(self._services)
        return self._begin(accounts, accounts.users.log_in(body.email, body.password, client_address()).id)

    @mutation("POST", "/session/issuer", errors={**ISSUER_ERRORS, 502: "the issuer does not answer"}, needs="anyone")
    def begin_issuer(self) -> IssuerUrl | Response:
        """Start a login at the issuer. A cookie stores the state of the login."""
        login_state, address = self._require_issuer().start(client_address())
        response = json_response(IssuerUrl(address))
        set_cookie(response, self._settings, login_state, LOGIN_COOKIE, LOGIN_COOKIE_S)
        return response

    @mutation(
        "POST", "/session/issued", errors={**ISSUER_ERRORS, 401: "the issuer's user may not log in"}, needs="anyone"
    )
    def log_in_issued(self, body: IssuerCallback) -> SessionAnswer | Response:
        """Log in with the parameters of the issuer's redirect and set the cookie of a new session."""
        issued, login_state = self._require_issuer(), request.cookies.get(cookie_name(self._settings, LOGIN_COOKIE), "")
        login = issued.issuer.finish_login(login_state, body.state, body.code, body.error)
        user, name = issued.log_in(login, client_address()), issued.session_digest(login)
        response = self._begin(self._accounts, user, login.token, name)
        set_cookie(response, self._settings, "", LOGIN_COOKIE)
        return response

    @mutation("POST", "/session/logged-out", status=204, content=FORM_TYPE, errors=LOG_OUT_ERRORS, needs="anyone")
    def log_out_issued(self) -> None:
        """End the sessions that the issuer's logout token names (back-channel logout)."""
        form = parse_qs(read_body(MAX_FORM_BYTES).decode("utf-8", "replace"))
        self._require_issuer().log_out(form.get("logout_token", [""])[0], client_address())

    @mutation("DELETE", "/session", errors=LOGIN_ERRORS, needs="viewer")
    def log_out(self) -> SessionAnswer | Response:
        """Log out."""
        accounts = self._accounts
        if current_principal().session:
            accounts.sessions.end(current_actor(), current_principal().session)
        token = request.cookies.get(cookie_name(self._settings, ID_TOKEN_COOKIE), "")
        leave = self._issued.issuer.end_session_url(token) if self._issued and token else ""
        response = json_response(replace(self._answer(ANONYMOUS), leave=leave))
        for name in ("visualprof", ID_TOKEN_COOKIE):
            set_cookie(response, self._settings, "", name)
        return response

    @mutation("POST", "/session/register", errors={**LOGIN_ERRORS, 400: "no account can be created so"}, needs="anyone")
    def register(self, body: RegistrationRequest) -> SessionAnswer | Response:
        """Create an account and log in."""
        accounts = require_password_login(self._services)
        self._check_registration_allowed()
        if self._by_mail and accounts.registration == "open" and not body.code:
            raise Forbidden(
                msg("server.address_confirmed", "the address is to be confirmed"),
                msg("server.ask_link", "request a confirmation link"),
            )
        user = accounts.users.register(
            Actor(ANONYMOUS, client_address()), body.email, body.name, body.password, accounts.registration, body.code
        )
        return self._begin(accounts, user.id)

    @mutation("POST", "/session/link", errors={**LOGIN_ERRORS, 400: "not an e-mail address"}, needs="anyone")
    def send_link(self, body: LinkRequest) -> SessionAnswer:
        """Send an e-mail link. The answer does not reveal whether the address has an account."""
        accounts = require_password_login(self._services)
        if body.wish == "confirm":
            self._check_registration_allowed()
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
        errors={**LOGIN_ERRORS, 400: "the code or the password is invalid"},
        needs="anyone",
    )
    def reset(self, body: NewPassword) -> SessionAnswer:
        """Set a new password with a code. The user logs in with it afterwards."""
        require_password_login(self._services).users.reset_password(
            Actor(ANONYMOUS, client_address()), body.code, body.password
        )
        return self._answer(current_principal())

    def _require_issuer(self) -> IssuedAccounts:
        if self._issued is None:
            raise NotFound(
                msg("server.people_not_log_issuer", "people do not log in by an issuer here"),
                msg("server.start_server_oidc", "start the server with --oidc"),
            )
        return self._issued

    def _check_registration_allowed(self) -> None:
        if self._issued:  # the issuer verifies addresses, so no one else may register one
            raise Forbidden(
                msg("server.people_here_log_issuer", "users of this server log in with the issuer"),
                msg("server.makes_account", "the first login creates the account"),
            )

    def _begin(self, accounts: Accounts, user: str, token: str = "", issued: str | None = None) -> Response:
        cookie = accounts.sessions.create(user, client_address(), request.headers.get("User-Agent", ""), issued)
        response = json_response(self._answer(accounts.sessions.principal_for_cookie(cookie)))
        set_cookie(response, self._settings, cookie)
        if self._issued:
            set_cookie(response, self._settings, token if len(token) <= MAX_ID_TOKEN_CHARS else "", ID_TOKEN_COOKIE)
        return response

    def _answer(self, principal: Principal) -> SessionAnswer:
        registration = self._services.accounts.registration if self._services.accounts else "off"
        return SessionAnswer(
            trusted=principal.may("member"),
            accounts=bool(self._services.accounts),
            registration=registration,
            person=current_user(principal),
            token=principal.csrf,
            by_proxy=bool(self._settings.access.user_header),
            issuer=urlsplit(self._settings.oidc.oidc).hostname or "",
            by_mail=self._by_mail is not None,
            direct=self._settings.queue.store is not None,
        )


def current_user(principal: Principal) -> CurrentUser | None:
    """Return the user who is logged in, or `None` without a login or without accounts."""
    return (
        build_row(CurrentUser, principal, id=principal.user, session=bool(principal.session))
        if principal.user
        else None
    )


def require_password_login(services: Services) -> Accounts:
    """Return the accounts if users log in with passwords.

    Raises:
        NotFound: The server has no accounts.
        Forbidden: A proxy logs users in.
    """
    if services.settings.access.user_header:
        raise Forbidden(
            msg("server.proxy_front_server_logs", "the proxy in front of this server logs users in"),
            msg("server.passwords_changed_there", "passwords are changed there"),
        )
    return services.require_accounts()
