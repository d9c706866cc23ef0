"""Random texts that are shown once: cookies, tokens and codes. Their SHA-256 alone is kept."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import update

from visualprof.remote.queue.store.agents import hash_token, new_id
from visualprof.remote.queue.store.database import Database, without_result

__all__ = ["RECORD_INTERVAL_NS", "generate", "hash_token", "new_id", "record_use"]
RECORD_INTERVAL_NS = 60 * 10**9  # it is noted no more often that one was used


def generate(prefix: str) -> tuple[str, str]:
    """A new one of 256 random bits, and what is kept of it. prefix: says what it is, also to scanners for secrets."""
    text = prefix + secrets.token_urlsafe(32)
    return text, hash_token(text)


def record_use(
    database: Database, used: Any, sha256: str, last_ns: int | None, now_ns: int, every_ns: int = RECORD_INTERVAL_NS
) -> None:
    """Note that one was used, no more often than every_ns. used: the column of its table that says when."""
    if now_ns - (last_ns or 0) > every_ns:
        with database.write() as connection:
            connection.execute(
                without_result(update(used.table).where(used.table.c.sha256 == sha256).values({used: now_ns}))
            )
