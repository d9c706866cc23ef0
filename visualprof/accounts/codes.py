"""One-time codes with an expiry time: invitations, e-mail confirmations, new passwords, and machines that join."""

from __future__ import annotations

import time
from typing import Literal

from sqlalchemy import Connection, delete, insert, select

from visualprof.accounts import secret
from visualprof.accounts.limits import MAX_CODES, MAX_INVITATIONS, check_count
from visualprof.accounts.principal import Role
from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import codes

Purpose = Literal["invitation", "confirm", "reset", "machine"]
VALID_S: dict[Purpose, int] = {"invitation": 7 * 86400, "confirm": 86400, "reset": 3600, "machine": 600}
_RECENT_S = 120


def create(connection: Connection, purpose: Purpose, email: str, role: Role, creator: str | None) -> str:
    """Create a code.

    Args:
        connection: Connection of the transaction.
        purpose: What the code is for.
        email: E-mail address of the addressee; "" is anyone.
        role: Role of the account.
        creator: Id of the user who creates the code.

    Raises:
        QuotaExceeded: The user has created too many codes that are still valid.
    """
    now = time.time_ns()
    code, sha256 = secret.generate("vp_c_")
    connection.execute(delete(codes).where(codes.c.expires_ns < now))
    if creator is not None:
        created = (codes.c.made_by == creator) & (codes.c.purpose == purpose)
        limit = MAX_INVITATIONS if purpose == "invitation" else MAX_CODES
        check_count(connection, codes, created, limit, "valid codes")
    row = {"purpose": purpose, "email": email, "role": role, "made_by": creator}
    connection.execute(insert(codes).values(sha256=sha256, expires_ns=now + VALID_S[purpose] * 10**9, **row))
    return code


def recently_created(connection: Connection, purpose: Purpose, email: str) -> bool:
    """Return whether a code was created for an address within two minutes, at the request of its owner."""
    min_expires_ns = time.time_ns() + (VALID_S[purpose] - _RECENT_S) * 10**9
    query = select(codes.c.sha256).where(codes.c.expires_ns > min_expires_ns, codes.c.made_by.is_(None))
    return connection.execute(query.filter_by(purpose=purpose, email=email)).first() is not None


def redeem(connection: Connection, code: str, *purposes: Purpose) -> AnyRow:
    """Delete the code and return its row.

    Raises:
        BadParameter: There is no such code for these purposes, or it has expired.
    """
    matching = (codes.c.sha256 == secret.hash_token(code)) & codes.c.purpose.in_(purposes)
    row = connection.execute(delete(codes).where(matching).returning(codes)).first()
    if row is None or row.expires_ns < time.time_ns():
        raise BadParameter(
            msg("accounts.code_used_time_over", "code: it was used, or its time is over"),
            msg("accounts.ask_administrator_new_one", "ask an administrator for a new one"),
        )
    return row


def exists(connection: Connection, purpose: Purpose, code: str) -> bool:
    """Return whether there is such a code; it may have expired."""
    matching = (codes.c.sha256 == secret.hash_token(code)) & (codes.c.purpose == purpose)
    return connection.execute(select(codes.c.sha256).where(matching)).first() is not None


def redeem_by_email(connection: Connection, purpose: Purpose, email: str) -> AnyRow | None:
    """Delete the codes for a verified e-mail address and return a valid row, or None."""
    matching = (codes.c.email == email) & (codes.c.purpose == purpose)
    rows = connection.execute(delete(codes).where(matching).returning(codes)).all()
    return next((row for row in rows if row.expires_ns >= time.time_ns()), None)


def check_and_mark_used(connection: Connection, text: str, until_ns: int) -> bool:
    """Return whether a text was used before, and mark it as used until it expires."""
    sha256 = secret.hash_token(text)
    connection.execute(delete(codes).where(codes.c.expires_ns < time.time_ns()))
    if connection.execute(select(codes.c.sha256).where(codes.c.sha256 == sha256)).first():
        return True
    row = {"purpose": "used", "email": "", "role": "", "made_by": None}
    connection.execute(insert(codes).values(sha256=sha256, expires_ns=until_ns, **row))
    return False
