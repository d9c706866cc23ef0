"""JSON of the answers."""

from __future__ import annotations

import msgspec

_ENCODER = msgspec.json.Encoder()


def encode(body: object) -> bytes:
    """JSON of any structure that msgspec knows.

    Half surrogate pairs, as in the names of files that are not UTF-8, become "?".
    """
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(body), ensure_ascii=False).encode("utf-8", "replace")
