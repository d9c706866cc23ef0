"""Limits of how many rows one user may create, so that no member can fill a table that all share."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Table, func, select

from visualprof.messages import msg
from visualprof.remote.queue.errors import QuotaExceeded

MAX_TOKENS, MAX_PROJECTS, MAX_LINKS = 100, 200, 500
MAX_CODES = 50  # that are valid, per purpose
MAX_INVITATIONS = 1000
MAX_SESSIONS = 100


def check_count(connection: Connection, table: Table, owned: ColumnElement[bool], limit: int, title: str) -> None:
    """Raise an error if a user has too many rows.

    Args:
        connection: Connection of the transaction.
        table: The table.
        owned: Selects the rows of the user.
        limit: How many the user may have.
        title: Name of the rows, in the plural.

    Raises:
        QuotaExceeded: The user has `limit` rows.
    """
    if connection.execute(select(func.count()).select_from(table).where(owned)).scalar_one() >= limit:
        raise QuotaExceeded(
            msg("accounts.you_have_so_many", f"you have {limit} {title}"),
            msg("accounts.remove_some_first", "remove some first, or wait until some expire"),
        )
