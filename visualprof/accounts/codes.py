"""Codes that do one thing once, within a time.

An invitation to register, the proof that an address is somebody's, a new password, a machine that joins.
"""

from __future__ import annotations

import time
from typing import Literal

from sqlalchemy import Connection, delete, insert, select

from visualprof.accounts import secret
from visualprof.accounts.principal import Role
from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import codes

Purpose = Literal["invitation", "confirm", "reset", "machine"]
VALID_S: dict[Purpose, int] = {"invitation": 7 * 86400, "confirm": 86400, "reset": 3600, "machine": 600}
_LATELY_S = 120


def create(connection: Connection, purpose: Purpose, email: str, role: Role, made_by: str | None) -> str:
    """A new code. email: of whom it is for; "" is anybody."""
    now = time.time_ns()
    code, sha256 = secret.generate("vp_c_")
    connection.execute(delete(codes).where(codes.c.expires_ns < now))
    row = {"purpose": purpose, "email": email, "role": role, "made_by": made_by}
    connection.execute(insert(codes).values(sha256=sha256, expires_ns=now + VALID_S[purpose] * 10**9, **row))
    return code


def recently_created(connection: Connection, purpose: Purpose, email: str) -> bool:
    """Was one made for somebody within two minutes, because they asked for it?"""
    since = time.time_ns() + (VALID_S[purpose] - _LATELY_S) * 10**9
    query = select(codes.c.sha256).where(codes.c.expires_ns > since, codes.c.made_by.is_(None))
    return connection.execute(query.filter_by(purpose=purpose, email=email)).first() is not None


def redeem(connection: Connection, code: str, *purposes: Purpose) -> AnyRow:
    """The row of a code for one of some purposes, which is gone with it.

    Raises: BadParameter: there is none, or its time is over.
    """
    mine = (codes.c.sha256 == secret.hash_token(code)) & codes.c.purpose.in_(purposes)
    row = connection.execute(delete(codes).where(mine).returning(codes)).first()
    if row is None or row.expires_ns < time.time_ns():
        raise BadParameter(
            msg("accounts.code_used_time_over", "code: it was used, or its time is over"),
            msg("accounts.ask_administrator_new_one", "ask an administrator for a new one"),
        )
    return row


def exists(connection: Connection, purpose: Purpose, code: str) -> bool:
    """Is there such a code? Its time may be over."""
    mine = (codes.c.sha256 == secret.hash_token(code)) & (codes.c.purpose == purpose)
    return connection.execute(select(codes.c.sha256).where(mine)).first() is not None


def redeem_by_email(connection: Connection, purpose: Purpose, email: str) -> AnyRow | None:
    """A row for somebody whose address is known to be theirs, which is gone with it; None where there is none."""
    theirs = (codes.c.email == email) & (codes.c.purpose == purpose)
    rows = connection.execute(delete(codes).where(theirs).returning(codes)).all()
    return next((row for row in rows if row.expires_ns >= time.time_ns()), None)


def check_and_mark_used(connection: Connection, text: str, until_ns: int) -> bool:
    """Was this text of somebody else used before? It is from now on, until it is of no use anyway."""
    sha256 = secret.hash_token(text)
    connection.execute(delete(codes).where(codes.c.expires_ns < time.time_ns()))
    if connection.execute(select(codes.c.sha256).where(codes.c.sha256 == sha256)).first():
        return True
    row = {"purpose": "used", "email": "", "role": "", "made_by": None}
    connection.execute(insert(codes).values(sha256=sha256, expires_ns=until_ns, **row))
    return False
