"""Signed URLs that grant access to one file, for one purpose and a limited time, without a login."""

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
    """Signs and verifies URLs below `prefix`.

    Args:
        secret: Key of this server and of others on the same data.
        prefix: Path of the URLs. They have no host, so that they are valid behind any name and proxy.
    """

    def __init__(self, secret: bytes, prefix: str = "/api/v1/agent/files/") -> None:
        self._secret = secret
        self._prefix = prefix

    def sign_url(self, purpose: str, key: str, valid_s: int, **parameters: str) -> str:
        """Return a signed URL. The parameters are part of the URL and cannot be changed.

        Args:
            purpose: "get" or "put".
            key: Key of the file.
            valid_s: Validity in seconds.
            parameters: Further parameters of the URL.
        """
        signed = {**parameters, "expires": str(int(time.time()) + valid_s)}
        query = urlencode({**signed, "signature": self._signature(purpose, key, signed)})
        return f"{self._prefix}{quote(key)}?{query}"

    def verify_url(self, purpose: str, key: str, query: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters of a signed URL.

        Raises:
            InvalidSignature: The signature is wrong, or the URL has expired.
        """
        parameters = {name: value for name, value in query.items() if name != "signature"}
        expected = self._signature(purpose, key, parameters)
        if not hmac.compare_digest(expected.encode(), query.get("signature", "").encode("utf-8", "replace")):
            raise InvalidSignature(
                msg("queue.address_not_signed_here", "this address was not signed here"),
                msg("queue.ask_new_one", "ask for a new one"),
            )
        if int(parameters.get("expires", "0")) < time.time():
            raise InvalidSignature(
                msg("queue.address_too_old", "this address is too old"), msg("queue.ask_new_one", "ask for a new one")
            )
        return parameters

    def sign_text(self, purpose: str, text: str) -> str:
        """Return the signature of a text."""
        return self._signature(purpose, text, {})

    def _signature(self, purpose: str, key: str, parameters: Mapping[str, str]) -> str:
        text = "\n".join((purpose, quote(key), urlencode(sorted(parameters.items()))))
        return hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
