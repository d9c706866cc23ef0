"""Sessions of browsers, and tokens of commands. Both can be ended at any time."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, insert, select

from visualprof.accounts import secret
from visualprof.accounts.audit import record_event
from visualprof.accounts.limits import MAX_SESSIONS, MAX_TOKENS, check_count
from visualprof.accounts.principal import ANONYMOUS, TOKEN_PREFIX, Actor, Principal, Role, lower_role
from visualprof.accounts.records import Token
from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import api_tokens, sessions, users

_COOKIE = "vp_w_"
MAX_IDLE_S, MAX_AGE_S = 12 * 3600, 14 * 86400
MAX_TOKEN_DAYS = 366
_DAY_NS = 86400 * 10**9


def _with_user(table: Any) -> Any:
    """Return a query for the row of a secret with its user; `may` is the user's role."""
    user_columns = users.c.email, users.c.name.label("who"), users.c.role.label("may"), users.c.disabled
    return (
        select(table, *user_columns)
        .join(users, users.c.id == table.c.user)
        .where(table.c.sha256 == bindparam("secret"))
    )


# Statements are built once, because building one takes longer than running it.
_OF_COOKIE, _OF_TOKEN = _with_user(sessions), _with_user(api_tokens)


@dataclass(frozen=True)
class Session:
    """A session of a browser."""

    id: str
    begun_ns: int
    seen_ns: int
    address: str
    browser: str


class Sessions:
    """The tables of sessions and tokens.

    Args:
        database: The database.
        idle_s: Maximum idle time of a session.
        whole_s: Maximum age of a session.
    """

    def __init__(self, database: Database, idle_s: float = MAX_IDLE_S, whole_s: float = MAX_AGE_S) -> None:
        self._database = database
        self._idle_ns, self._whole_ns = int(idle_s * 1e9), int(whole_s * 1e9)

    def create(self, user: str, address: str, browser: str, issued: str | None = None) -> str:
        """Create a session and return its cookie; expired sessions of all users are deleted.

        Args:
            user: Id of the user.
            address: Address of the client.
            browser: User agent of the browser.
            issued: Digest of the issuer's session id; None for a local log-in.
        """
        now = time.time_ns()
        cookie, sha256 = secret.generate(_COOKIE)
        row = {
            "id": secret.new_id(),
            "user": user,
            "address": address[:200],
            "browser": browser[:300],
            "issued": issued,
        }
        with self._database.write() as connection:
            is_expired = (sessions.c.seen_ns < now - self._idle_ns) | (sessions.c.begun_ns < now - self._whole_ns)
            connection.execute(delete(sessions).where(is_expired))
            oldest = select(sessions.c.sha256).where(sessions.c.user == user).order_by(sessions.c.seen_ns.desc())
            connection.execute(delete(sessions).where(sessions.c.sha256.in_(oldest.offset(MAX_SESSIONS - 1))))
            connection.execute(insert(sessions).values(sha256=sha256, begun_ns=now, seen_ns=now, **row))
        return cookie

    def principal_for_cookie(self, cookie: str) -> Principal:
        """Return the principal of a cookie; `ANONYMOUS` if the session has ended."""
        sha256, now = secret.hash_token(cookie), time.time_ns()
        with self._database.query() as connection:
            row = connection.execute(_OF_COOKIE, {"secret": sha256}).first()
        if row is None or row.disabled or now - row.seen_ns > self._idle_ns or now - row.begun_ns > self._whole_ns:
            return ANONYMOUS
        every_ns = min(secret.RECORD_INTERVAL_NS, self._idle_ns // 4)
        secret.record_use(self._database, sessions.c.seen_ns, sha256, row.seen_ns, now, every_ns)
        csrf = hashlib.blake2b(cookie.encode(), person=b"csrf", digest_size=24).hexdigest()
        return Principal(row.user, row.email, row.who, row.may, row.id, csrf)

    def principal_for_token(self, token: str) -> Principal:
        """Return the principal of a token; `ANONYMOUS` if the token is unknown or expired."""
        sha256, now = secret.hash_token(token), time.time_ns()
        with self._database.query() as connection:
            row = connection.execute(_OF_TOKEN, {"secret": sha256}).first()
        if row is None or row.disabled or row.expires_ns < now:
            return ANONYMOUS
        secret.record_use(self._database, api_tokens.c.used_ns, sha256, row.used_ns, now)
        return Principal(row.user, row.email, row.who, lower_role(row.may, row.role))

    def for_user(self, user: str) -> list[Session]:
        """Return a user's sessions, latest first."""
        query = select(sessions).where(sessions.c.user == user).order_by(sessions.c.seen_ns.desc())
        with self._database.query() as connection:
            return [_session(row) for row in connection.execute(query)]

    def end(self, actor: Actor, session: str) -> None:
        """End one of the actor's sessions.

        Raises:
            NotFound: The actor has no such session.
        """
        is_own = (sessions.c.id == session) & (sessions.c.user == actor.user)
        with self._database.write() as connection:
            if not connection.execute(delete(sessions).where(is_own)).rowcount:
                raise NotFound(msg("accounts.there_no_session", f"there is no session {session[:40]!r}"))
            record_event(connection, actor, msg("accounts.log_out_2", "log out"), session)

    def create_token(self, actor: Actor, name: str, role: Role, days: float) -> str:
        """Create a token for the actor; it is shown only once.

        Raises:
            BadParameter: The name, the role or the number of days is invalid.
            QuotaExceeded: The actor has too many tokens.
        """
        if not (name.isprintable() and 0 < len(name.strip()) <= 200):
            raise BadParameter(msg("accounts.name_1_200_visible", "name: 1 to 200 visible characters"))
        if not 0 < days <= MAX_TOKEN_DAYS:
            raise BadParameter(msg("accounts.days_more_than_0", f"days: more than 0, at most {MAX_TOKEN_DAYS}"))
        if not actor.principal.may(role):
            raise BadParameter(msg("accounts.role_you_no_yourself", f"role: you are no {role} yourself"))
        now = time.time_ns()
        token, sha256 = secret.generate(TOKEN_PREFIX)
        row = {"id": secret.new_id(), "user": actor.user, "name": name.strip(), "role": role, "created_ns": now}
        with self._database.write() as connection:
            check_count(connection, api_tokens, api_tokens.c.user == actor.user, MAX_TOKENS, "tokens")
            values = {**row, "sha256": sha256, "expires_ns": now + int(days * _DAY_NS)}
            connection.execute(insert(api_tokens).values(values))
            record_event(connection, actor, msg("accounts.make_token_2", "make token"), f"{name} as {role}")
        return token

    def tokens_for_user(self, user: str) -> list[Token]:
        """Return a user's tokens, latest first."""
        query = select(api_tokens).where(api_tokens.c.user == user).order_by(api_tokens.c.created_ns.desc())
        with self._database.query() as connection:
            return [_token(row) for row in connection.execute(query)]

    def revoke_token(self, actor: Actor, token: str) -> None:
        """Revoke one of the actor's tokens.

        Raises:
            NotFound: The actor has no such token.
        """
        is_own = (api_tokens.c.id == token) & (api_tokens.c.user == actor.user)
        with self._database.write() as connection:
            if not connection.execute(delete(api_tokens).where(is_own)).rowcount:
                raise NotFound(msg("accounts.there_no_token", f"there is no token {token[:40]!r}"))
            record_event(connection, actor, msg("accounts.end_token", "end token"), token)


def _session(row: AnyRow) -> Session:
    return Session(row.id, row.begun_ns, row.seen_ns, row.address, row.browser)


def _token(row: AnyRow) -> Token:
    return Token(row.id, row.name, row.role, row.created_ns, row.expires_ns, row.used_ns)
