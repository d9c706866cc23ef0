"""Addresses that are good for one file, one purpose and some minutes, without a login."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from visualprof.messages import msg
from visualprof.remote.queue.errors import InvalidSignature

GET_VALID_S = 3600
PUT_VALID_S = 900


class Signer:
    """Signs and checks addresses below `prefix`.

    Args:
        secret: known to this server (and others on the same data) alone.
        prefix: of the addresses; they have no host, so that they hold behind any name and proxy.
    """

    def __init__(self, secret: bytes, prefix: str = "/api/v1/agent/files/") -> None:
        self._secret = secret
        self._prefix = prefix

    def sign_url(self, purpose: str, key: str, valid_s: int, **facts: str) -> str:
        """An address for `purpose` ("get" or "put"); facts stand in it and cannot be changed."""
        signed = {**facts, "expires": str(int(time.time()) + valid_s)}
        query = urlencode({**signed, "signature": self._signature(purpose, key, signed)})
        return f"{self._prefix}{quote(key)}?{query}"

    def verify_url(self, purpose: str, key: str, query: Mapping[str, str]) -> dict[str, str]:
        """The facts of an address.

        Raises: BadSignature.
        """
        facts = {name: value for name, value in query.items() if name != "signature"}
        right = self._signature(purpose, key, facts)
        if not hmac.compare_digest(right.encode(), query.get("signature", "").encode("utf-8", "replace")):
            raise InvalidSignature(
                msg("queue.address_not_signed_here", "this address was not signed here"),
                msg("queue.ask_new_one", "ask for a new one"),
            )
        if int(facts.get("expires", "0")) < time.time():
            raise InvalidSignature(
                msg("queue.address_too_old", "this address is too old"), msg("queue.ask_new_one", "ask for a new one")
            )
        return facts

    def sign_text(self, purpose: str, text: str) -> str:
        """A text that only this server could make of another."""
        return self._signature(purpose, text, {})

    def _signature(self, purpose: str, key: str, facts: Mapping[str, str]) -> str:
        text = "\n".join((purpose, quote(key), urlencode(sorted(facts.items()))))
        return hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
