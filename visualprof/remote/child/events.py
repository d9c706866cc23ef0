"""What the child tells the agent: a line of JSON each, written through at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RESERVE = 64 * 1024


class Events:
    """Appends to `events.jsonl`; the agent reads along.

    A file beside it keeps some room, so that a full disk can still be told.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._reserve = path.with_name(path.name + ".reserve")
        self._reserve.write_bytes(bytes(RESERVE))

    def tell(self, event: str, **fields: Any) -> None:
        """One event; fields are JSON's values."""
        left = (json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
        while left:
            left = left[self._write(left) :]

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._file, data)
        except OSError:
            if not self._reserve.exists():
                raise
            self._reserve.unlink()
            return os.write(self._file, data)

    def close(self) -> None:
        """Gives the room back."""
        self._reserve.unlink(missing_ok=True)
        os.close(self._file)
