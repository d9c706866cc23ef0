"""Rate limits of log-in attempts per minute: per address and account, per address, and per account.

Attempts are rows, so that several servers count together.
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

# The last one is for guesses from many addresses; it is higher, so that a user is rarely locked out by others.
MAX_PER_ACCOUNT, MAX_PER_ADDRESS, MAX_PER_ACCOUNT_FROM_ALL = 5, 30, 20
_MINUTE_NS = 60 * 10**9
_RECENT_COUNTS = (
    select(failures.c.key, func.count())
    .where(failures.c.key.in_(bindparam("keys", expanding=True)), failures.c.at_ns >= bindparam("since"))
    .group_by(failures.c.key)
)
_DELETE_OLD = without_result(delete(failures).where(failures.c.at_ns < bindparam("since")))
_INSERT_ATTEMPTS = insert(failures)


def count_attempt(database: Database, address: str, email: str = "") -> None:
    """Count an attempt before it is processed.

    Args:
        database: The database.
        address: Address of the client.
        email: E-mail address of the account; "" without one.

    Raises:
        TooManyAttempts: A limit is exceeded.
    """
    now = time.time_ns()
    limits = {
        hash_token(address): MAX_PER_ADDRESS,
        **({hash_token(f"{address} {email}"): MAX_PER_ACCOUNT} if email else {}),
        **({_account_key(email): MAX_PER_ACCOUNT_FROM_ALL} if email else {}),
    }
    with database.query() as connection:  # a client above the limit must not block writers
        _check_limits(connection, limits, now)
    with database.write() as connection:
        _check_limits(connection, limits, now)
        connection.execute(_DELETE_OLD, {"since": now - _MINUTE_NS})
        connection.execute(_INSERT_ATTEMPTS, [{"key": key, "at_ns": now} for key in limits])


def _check_limits(connection: Connection, limits: Mapping[str, int], now: int) -> None:
    """Raise an error if a limit is exceeded.

    Raises:
        TooManyAttempts: A limit is exceeded.
    """
    counts = connection.execute(_RECENT_COUNTS, {"keys": list(limits), "since": now - _MINUTE_NS})
    for key, count in counts:
        if count >= limits[key]:
            raise TooManyAttempts(
                msg("accounts.attempts_within_minute", f"{limits[key]} attempts within a minute"),
                msg("accounts.wait_minute", "wait a minute"),
            )


def forgive_attempt(connection: Connection, address: str, email: str = "") -> None:
    """Remove a successful attempt, and the earlier attempts for the account."""
    last = select(func.max(failures.c.seq)).where(failures.c.key == hash_token(address)).scalar_subquery()
    connection.execute(delete(failures).where(failures.c.seq == last))
    if email:
        connection.execute(delete(failures).where(failures.c.key == hash_token(f"{address} {email}")))
        last = select(func.max(failures.c.seq)).where(failures.c.key == _account_key(email)).scalar_subquery()
        connection.execute(delete(failures).where(failures.c.seq == last))


def _account_key(email: str) -> str:
    """Return the key of attempts for an account from all addresses."""
    return hash_token(f"account {email}")
