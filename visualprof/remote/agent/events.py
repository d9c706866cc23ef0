"""What a child says, line by line, while it runs. It may be hostile: lines are limited, types are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeGuard

from visualprof.remote.agent.files import is_plain, open_plain

LINE_MAX = 1 << 20
READ_MAX = 4 << 20

Event = dict[str, Any]


class EventFile:
    """Reads complete lines of a growing file, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.bad = 0

    def skip_half_line(self) -> None:
        """Leaves out what a child that ended wrote last; the next one's first byte comes after it."""
        if is_plain(self._path):
            self._offset = self._path.stat().st_size

    def read(self) -> list[Event]:
        """Those that came since the last call, at most 4 MiB of them."""
        try:
            with open_plain(self._path) as file:
                file.seek(self._offset)
                data = file.read(READ_MAX)
        except OSError:
            return []
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            if len(rest) > LINE_MAX:
                self._offset += len(rest)
                self.bad += 1
            return []
        self._offset += len(whole) + 1
        return [event for line in whole.split(b"\n") if line.strip() and (event := self._event(line))]

    def _event(self, line: bytes) -> Event | None:
        try:
            found = json.loads(line) if len(line) <= LINE_MAX else None
        except (ValueError, RecursionError):
            found = None
        if is_object(found) and isinstance(found.get("event"), str):
            return found
        self.bad += 1
        return None


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object of JSON."""
    return isinstance(value, dict)


def text(event: Event, key: str, most: int = 2000) -> str:
    """A text of an event, "" for anything else."""
    value = event.get(key)
    return value[:most] if isinstance(value, str) else ""


def whole(event: Event, key: str) -> int | None:
    """An integer of an event, None for anything else."""
    value = event.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
