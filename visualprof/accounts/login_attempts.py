"""Attempts to get in: so many within a minute of one address for one account, and of one address at all.

They are rows, so that several servers count together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from visualprof.accounts.secret import hash_token
from visualprof.messages import msg
from visualprof.remote.queue.errors import TooManyAttempts
from visualprof.remote.queue.store.database import Database, without_result
from visualprof.remote.queue.store.tables import failures

MAX_PER_ACCOUNT, MAX_PER_ADDRESS = 5, 30
_MINUTE_NS = 60 * 10**9
_LATELY = (
    select(failures.c.key, func.count())
    .where(failures.c.key.in_(bindparam("keys", expanding=True)), failures.c.at_ns >= bindparam("since"))
    .group_by(failures.c.key)
)
_OVER = without_result(delete(failures).where(failures.c.at_ns < bindparam("since")))
_COUNTED = insert(failures)


def count_attempt(database: Database, address: str, email: str = "") -> None:
    """Count one, before anything is done for it. email: of the account; "" where none is named.

    Raises: TooMany.
    """
    now = time.time_ns()
    bounds = {
        hash_token(address): MAX_PER_ADDRESS,
        **({hash_token(f"{address} {email}"): MAX_PER_ACCOUNT} if email else {}),
    }
    with database.query() as connection:  # whoever goes on and on must not keep the writers busy
        _refuse(connection, bounds, now)
    with database.write() as connection:
        _refuse(connection, bounds, now)
        connection.execute(_OVER, {"since": now - _MINUTE_NS})
        connection.execute(_COUNTED, [{"key": key, "at_ns": now} for key in bounds])


def _refuse(connection: Connection, bounds: Mapping[str, int], now: int) -> None:
    """Raises: TooMany."""
    counts = connection.execute(_LATELY, {"keys": list(bounds), "since": now - _MINUTE_NS})
    for key, count in counts:
        if count >= bounds[key]:
            raise TooManyAttempts(
                msg("accounts.attempts_within_minute", f"{bounds[key]} attempts within a minute"),
                msg("accounts.wait_minute", "wait a minute"),
            )


def forgive_attempt(connection: Connection, address: str, email: str = "") -> None:
    """It was right: those before it for the account count no more, nor does it for the address."""
    last = select(func.max(failures.c.seq)).where(failures.c.key == hash_token(address)).scalar_subquery()
    connection.execute(delete(failures).where(failures.c.seq == last))
    if email:
        connection.execute(delete(failures).where(failures.c.key == hash_token(f"{address} {email}")))
