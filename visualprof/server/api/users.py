"""Accounts: the current user's own account, and for administrators all accounts and the audit log."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import msgspec
from flask import Response
from msgspec import Meta

from visualprof.accounts.principal import Role
from visualprof.accounts.records import AuditEvent, Token, User
from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.server.api.quotas import QuotaRow, UsageRow
from visualprof.server.api.session import require_password_login
from visualprof.server.identity import current_actor, current_principal
from visualprof.server.responses import build_row, csv_response
from visualprof.server.routes import Query, Resource, get, mutation
from visualprof.views.answers.table import Table

USER_ERRORS = {404: msg("server.there_no_such_user", "there is no such user")}
MAX_AUDIT_EVENTS = 1000


class SessionRow(msgspec.Struct):
    """A browser in which the user is logged in.

    Attributes:
        id: Id of the session.
        begun_ns: Time of the login.
        seen_ns: Time of the last request.
        address: Network address of the browser.
        browser: Name of the browser.
        current: Whether this browser sent the request.
    """

    id: str
    begun_ns: int
    seen_ns: int
    address: str
    browser: str
    current: bool


class AccountAnswer(msgspec.Struct):
    """Sessions, tokens and quota of the current user.

    Attributes:
        sessions: Browsers in which the user is logged in.
        tokens: Access tokens.
        quota: The user's limits.
        used: The user's usage.
        password: Whether the user has a password and may change it.
        new_token: A new token. Shown only once, null otherwise.
    """

    sessions: list[SessionRow]
    tokens: list[Token]
    quota: QuotaRow
    used: UsageRow
    password: bool
    new_token: str | None = None


class PasswordChange(msgspec.Struct, forbid_unknown_fields=True):
    """The current user's old and new password."""

    old: str
    new: str


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token to create.

    Attributes:
        name: Name of the token.
        role: Role of the token.
        days: Lifetime in days.
    """

    name: str
    role: Role = "member"
    days: float = 90


class UsersAnswer(msgspec.Struct):
    """All users, by address.

    Attributes:
        users: The users.
        code: Code of an invitation or for a new password. Shown only once, null otherwise.
    """

    users: list[User]
    code: str | None = None


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    """An account that an administrator creates."""

    email: str
    password: str
    name: str = ""
    role: Role = "member"


class UserChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes that an administrator makes to an account. Absent fields keep their value."""

    name: str | None = None
    role: Role | None = None
    disabled: bool | None = None
    password: str | None = None


class Invitation(msgspec.Struct, forbid_unknown_fields=True):
    """An invitation of a user.

    Attributes:
        email: Address of the user. Without an address, anyone with the code may register, if registration needs codes.
        role: Role of the new account.
    """

    email: str = ""
    role: Role = "member"


class AuditQuery(Query):
    """A page of the audit log."""

    before: Annotated[int, Meta(ge=1, le=2**53, description="only rows with a lower number")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_AUDIT_EVENTS, description="maximum number of rows")] = 100
    format: Annotated[str, Meta(pattern="^(json|csv)$", description="json or csv")] = "json"


class AuditAnswer(msgspec.Struct):
    """Rows of the audit log, newest first."""

    deeds: list[AuditEvent]


class Users(Resource):
    """The routes for accounts."""

    @get("/account", errors={404: "there are no accounts"})
    def account(self) -> AccountAnswer:
        """Return the current user's account."""
        return self._account_answer()

    @mutation("POST", "/account/password", errors={401: "the old password is wrong"}, needs="viewer")
    def password(self, body: PasswordChange) -> AccountAnswer:
        """Change the current user's password. Every session and token ends."""
        require_password_login(self._services).users.change_password(current_actor(), body.old, body.new)
        return self._account_answer()

    @mutation("DELETE", "/account/sessions/<session>", errors={404: "there is no such session"}, needs="viewer")
    def end_session(self, session: str) -> AccountAnswer:
        """Log out another browser."""
        self._accounts.sessions.end(current_actor(), session)
        return self._account_answer()

    @mutation(
        "POST",
        "/account/tokens",
        status=201,
        errors={400: "invalid name, role or lifetime", 429: "too many tokens"},
        needs="viewer",
    )
    def make_token(self, body: NewToken) -> AccountAnswer:
        """Create a token."""
        return self._account_answer(
            self._accounts.sessions.create_token(current_actor(), body.name, body.role, body.days)
        )

    @mutation("DELETE", "/account/tokens/<token>", errors={404: "there is no such token"}, needs="viewer")
    def end_token(self, token: str) -> AccountAnswer:
        """Revoke a token."""
        self._accounts.sessions.revoke_token(current_actor(), token)
        return self._account_answer()

    @get("/users", errors={404: "there are no accounts"}, needs="admin")
    def users(self) -> UsersAnswer:
        """List all users."""
        return self._everybody()

    @mutation("POST", "/users", status=201, errors={409: "the address is taken"}, needs="admin")
    def create(self, body: NewUser) -> UsersAnswer:
        """Create an account."""
        self._accounts.users.create(current_actor(), body.email, body.name, body.role, body.password)
        return self._everybody()

    @mutation("PATCH", "/users/<user>", errors={**USER_ERRORS, 409: "no administrator would be left"}, needs="admin")
    def change_user(self, user: str, body: UserChange) -> UsersAnswer:
        """Change an account."""
        users = self._accounts.users
        if body.password is not None:
            users.set_password(current_actor(), user, body.password)
        users.update(current_actor(), user, body.name, body.role, body.disabled)
        return self._everybody()

    @mutation("POST", "/users/<user>/password", errors=USER_ERRORS, needs="admin")
    def offer_password(self, user: str) -> UsersAnswer:
        """Create a code with which a user sets a new password."""
        return self._everybody(self._accounts.users.reset_code(current_actor(), user))

    @mutation("POST", "/invitations", status=201, errors={400: "invalid address"}, needs="admin")
    def invite(self, body: Invitation) -> UsersAnswer:
        """Create a code with which an invited user registers."""
        if not body.email.strip() and (self._settings.access.user_header or self._settings.oidc.oidc):
            raise BadParameter(
                msg(
                    "server.email_people_invited_here",
                    "email: an address is required, because a proxy or an issuer logs users in",
                )
            )
        return self._everybody(self._accounts.users.invite(current_actor(), body.email, body.role))

    @get("/audit", media=("application/json", "text/csv"), errors={404: "there are no accounts"}, needs="admin")
    def log(self, query: AuditQuery) -> AuditAnswer | Response:
        """List the audit log."""
        rows = self._accounts.audit_events(query.before, query.limit)
        if query.format == "json":
            return AuditAnswer(rows)
        columns = {
            name: [getattr(deed, name) for deed in rows] for name in (field.name for field in fields(AuditEvent))
        }
        return csv_response(Table(columns=columns).to_csv(), "audit")

    def _account_answer(self, new_token: str | None = None) -> AccountAnswer:
        accounts, principal = self._accounts, current_principal()
        sessions = [
            build_row(SessionRow, s, current=s.id == principal.session)
            for s in accounts.sessions.for_user(principal.user or "")
        ]
        tokens = accounts.sessions.tokens_for_user(principal.user or "")
        quota, used = accounts.quotas.get(principal.user or "")
        password = not self._settings.access.user_header and accounts.users.has_password(principal.user or "")
        return AccountAnswer(
            sessions, tokens, build_row(QuotaRow, quota), build_row(UsageRow, used), password, new_token
        )

    def _everybody(self, code: str | None = None) -> UsersAnswer:
        return UsersAnswer(self._accounts.users.list_all(), code)
