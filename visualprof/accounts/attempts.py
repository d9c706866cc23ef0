"""Attempts to get in: so many within a minute of one address for one account, and of one address at all.

They are rows, so that several servers count together.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection, delete, func, insert, select

from visualprof.accounts.secret import hashed
from visualprof.remote.queue.refusals import TooMany
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.tables import failures

FOR_ACCOUNT, OF_ADDRESS = 5, 30
_MINUTE_NS = 60 * 10**9


def count_attempt(database: Database, address: str, email: str = "") -> None:
    """Counts one, before anything is done for it. email: of the account; "" where none is named.

    Raises: TooMany.
    """
    now = time.time_ns()
    bounds = {hashed(address): OF_ADDRESS, **({hashed(f"{address} {email}"): FOR_ACCOUNT} if email else {})}
    with database.write() as connection:
        connection.execute(delete(failures).where(failures.c.at_ns < now - _MINUTE_NS))
        for key, most in bounds.items():
            before = select(func.count()).select_from(failures).where(failures.c.key == key)
            if connection.execute(before).scalar_one() >= most:
                raise TooMany(f"{most} attempts within a minute", "wait a minute")
        connection.execute(insert(failures), [{"key": key, "at_ns": now} for key in bounds])


def forgive_attempt(connection: Connection, address: str, email: str = "") -> None:
    """It was right: those before it for the account count no more, nor does it for the address."""
    last = select(func.max(failures.c.seq)).where(failures.c.key == hashed(address)).scalar_subquery()
    connection.execute(delete(failures).where(failures.c.seq == last))
    if email:
        connection.execute(delete(failures).where(failures.c.key == hashed(f"{address} {email}")))
