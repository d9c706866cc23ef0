"""Random texts that are shown once: cookies, tokens and codes. Their SHA-256 alone is kept."""

from __future__ import annotations

import secrets

from visualprof.remote.queue.store.agents import hashed, short_id

__all__ = ["hashed", "new", "short_id"]


def new(prefix: str) -> tuple[str, str]:
    """A new one of 256 random bits, and what is kept of it. prefix: says what it is, also to scanners for secrets."""
    text = prefix + secrets.token_urlsafe(32)
    return text, hashed(text)
