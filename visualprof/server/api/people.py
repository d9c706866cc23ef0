"""People: one's own account, and for administrators everybody's, with the log of what was done."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import msgspec
from flask import Response
from msgspec import Meta

from visualprof.accounts.principal import Role
from visualprof.accounts.records import AuditEvent, Token, User
from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.server.answers import csv_file, row
from visualprof.server.api.quotas import QuotaRow, UsedRow
from visualprof.server.api.session import existing, with_passwords
from visualprof.server.identity import actor, who
from visualprof.server.routes import Query, Resource, change, get
from visualprof.server.settings import Settings
from visualprof.views.answers.table import Table

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

NO_USER = {404: msg("server.there_no_such_user", "there is no such user")}
MOST_DEEDS = 1000


class SessionRow(msgspec.Struct):
    """A browser that is logged in. current: the one that asks."""

    id: str
    begun_ns: int
    seen_ns: int
    address: str
    browser: str
    current: bool


class AccountAnswer(msgspec.Struct):
    """Where one is logged in, one's tokens, and what one may have and has.

    password: one has one, and may change it. new_token: shown this once, else null.
    """

    sessions: list[SessionRow]
    tokens: list[Token]
    quota: QuotaRow
    used: UsedRow
    password: bool
    new_token: str | None = None


class PasswordChange(msgspec.Struct, forbid_unknown_fields=True):
    """One's own password."""

    old: str
    new: str


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token to be made. days: how long it lasts."""

    name: str
    role: Role = "member"
    days: float = 90


class UsersAnswer(msgspec.Struct):
    """Everybody by address. code: of an invitation or for a new password; shown this once, null otherwise."""

    users: list[User]
    code: str | None = None


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    """An account that an administrator makes."""

    email: str
    password: str
    name: str = ""
    role: Role = "member"


class UserChange(msgspec.Struct, forbid_unknown_fields=True):
    """What an administrator may change of somebody; what is absent stays."""

    name: str | None = None
    role: Role | None = None
    disabled: bool | None = None
    password: str | None = None


class Invitation(msgspec.Struct, forbid_unknown_fields=True):
    """Whom to invite; without an address whoever has the code, where people register by it."""

    email: str = ""
    role: Role = "member"


class AuditQuery(Query):
    """A page of the log."""

    before: Annotated[int, Meta(ge=1, le=2**53, description="only rows with a lower number")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_DEEDS, description="rows at most")] = 100
    format: Annotated[str, Meta(pattern="^(json|csv)$", description="json or csv")] = "json"


class AuditAnswer(msgspec.Struct):
    """The log, the newest first."""

    deeds: list[AuditEvent]


class People(Resource):
    """The routes over the accounts of a server."""

    def __init__(self, settings: Settings, accounts: Accounts | None) -> None:
        self._settings, self._accounts = settings, accounts

    @get("/account", refuses={404: "there are no accounts"})
    def account(self) -> AccountAnswer:
        """One's own account."""
        return self._own()

    @change("POST", "/account/password", refuses={401: "the old one is wrong"}, needs="viewer")
    def password(self, body: PasswordChange) -> AccountAnswer:
        """Change one's own password; every session and token ends."""
        with_passwords(self._accounts, self._settings).users.change_password(actor(), body.old, body.new)
        return self._own()

    @change("DELETE", "/account/sessions/<session>", refuses={404: "there is no such session"}, needs="viewer")
    def end_session(self, session: str) -> AccountAnswer:
        """Log out another browser."""
        existing(self._accounts).sessions.end(actor(), session)
        return self._own()

    @change("POST", "/account/tokens", status=201, refuses={400: "a wrong name, role or time"}, needs="viewer")
    def make_token(self, body: NewToken) -> AccountAnswer:
        """Make a token."""
        return self._own(existing(self._accounts).sessions.create_token(actor(), body.name, body.role, body.days))

    @change("DELETE", "/account/tokens/<token>", refuses={404: "there is no such token"}, needs="viewer")
    def end_token(self, token: str) -> AccountAnswer:
        """End a token."""
        existing(self._accounts).sessions.revoke_token(actor(), token)
        return self._own()

    @get("/users", refuses={404: "there are no accounts"}, needs="admin")
    def users(self) -> UsersAnswer:
        """Everybody."""
        return self._everybody()

    @change("POST", "/users", status=201, refuses={409: "the address is taken"}, needs="admin")
    def create(self, body: NewUser) -> UsersAnswer:
        """Make an account."""
        existing(self._accounts).users.create(actor(), body.email, body.name, body.role, body.password)
        return self._everybody()

    @change("PATCH", "/users/<user>", refuses={**NO_USER, 409: "nobody would be administrator"}, needs="admin")
    def change_user(self, user: str, body: UserChange) -> UsersAnswer:
        """Change somebody's account."""
        users = existing(self._accounts).users
        if body.password is not None:
            users.set_password(actor(), user, body.password)
        users.update(actor(), user, body.name, body.role, body.disabled)
        return self._everybody()

    @change("POST", "/users/<user>/password", refuses=NO_USER, needs="admin")
    def offer_password(self, user: str) -> UsersAnswer:
        """A code by which somebody sets a new password."""
        return self._everybody(existing(self._accounts).users.reset_code(actor(), user))

    @change("POST", "/invitations", status=201, refuses={400: "no address"}, needs="admin")
    def invite(self, body: Invitation) -> UsersAnswer:
        """A code by which somebody registers."""
        if not body.email.strip() and (self._settings.user_header or self._settings.oidc):
            raise BadParameter(
                msg(
                    "server.email_people_invited_here",
                    "email: people are invited here by their address alone, because others log them in",
                )
            )
        return self._everybody(existing(self._accounts).users.invite(actor(), body.email, body.role))

    @get("/audit", media=("application/json", "text/csv"), refuses={404: "there are no accounts"}, needs="admin")
    def log(self, query: AuditQuery) -> AuditAnswer | Response:
        """What was done."""
        rows = existing(self._accounts).audit_events(query.before, query.limit)
        if query.format == "json":
            return AuditAnswer(rows)
        columns = {
            name: [getattr(deed, name) for deed in rows] for name in (field.name for field in fields(AuditEvent))
        }
        return csv_file(Table(columns=columns).to_csv(), "audit")

    def _own(self, new_token: str | None = None) -> AccountAnswer:
        accounts, me = existing(self._accounts), who()
        mine = [row(SessionRow, s, current=s.id == me.session) for s in accounts.sessions.for_user(me.user or "")]
        tokens = accounts.sessions.tokens_for_user(me.user or "")
        quota, used = accounts.quotas.get(me.user or "")
        password = not self._settings.user_header and accounts.users.has_password(me.user or "")
        return AccountAnswer(mine, tokens, row(QuotaRow, quota), row(UsedRow, used), password, new_token)

    def _everybody(self, code: str | None = None) -> UsersAnswer:
        return UsersAnswer(existing(self._accounts).users.list_all(), code)
