"""Random secrets that are shown once: cookies, tokens and codes. Only their SHA-256 is stored."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import update

from visualprof.remote.queue.store.agents import hash_token, new_id
from visualprof.remote.queue.store.database import Database, without_result

__all__ = ["RECORD_INTERVAL_NS", "generate", "hash_token", "new_id", "record_use"]
RECORD_INTERVAL_NS = 60 * 10**9  # minimum interval between recorded uses


def generate(prefix: str) -> tuple[str, str]:
    """Return a new secret of 256 random bits, and its digest.

    The prefix identifies its kind, also for secret scanners.
    """
    text = prefix + secrets.token_urlsafe(32)
    return text, hash_token(text)


def record_use(
    database: Database, used: Any, sha256: str, last_ns: int | None, now_ns: int, every_ns: int = RECORD_INTERVAL_NS
) -> None:
    """Record that a secret was used, at most once per interval.

    Args:
        database: The database.
        used: Column with the time of the last use.
        sha256: Digest of the secret.
        last_ns: Time of the last recorded use.
        now_ns: Current time.
        every_ns: The interval.
    """
    if now_ns - (last_ns or 0) > every_ns:
        with database.write() as connection:
            connection.execute(
                without_result(update(used.table).where(used.table.c.sha256 == sha256).values({used: now_ns}))
            )
