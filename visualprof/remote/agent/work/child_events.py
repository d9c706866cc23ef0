"""What a child says, line by line, while it runs. It may be hostile: lines are limited, types are checked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard, cast

from visualprof.remote.agent.child_files import is_regular, open_regular

MAX_LINE_BYTES = 1 << 18
MAX_TEXT_LENGTH = 2000
MAX_ITEMS = 100
MAX_READ_BYTES = 4 << 20

Event = dict[str, Any]


@dataclass
class TaskProgress:
    """What the children of a task have said. on_point: gets each point. changed: is called when there is news.

    converted: what a conversion told, as it came. step: of a benchmark case, since so many s of time.monotonic().
    """

    on_point: Callable[[dict[str, Any]], None]
    changed: Callable[[], None]
    phase: str = "preparing"
    batch: int | None = None
    step: str = ""
    step_since: float = 0.0
    share: float = 0.0  # of the stage
    version: str = ""
    effective: dict[str, Any] = field(default_factory=dict[str, Any])
    profiles: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    warnings: list[str] = field(default_factory=list[str])
    load_ns: int | None = None
    converted: dict[str, Any] = field(default_factory=dict[str, Any])


class EventReader:
    """Reads complete lines of a growing file, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = 0  # bytes that were read

    def skip_partial_line(self) -> None:
        """Skip to the end of the file, past half a line that the last child may have left."""
        if is_regular(self._path):
            self.offset = self._path.stat().st_size

    def read(self) -> list[Event]:
        """The events since the last call, at most 4 MiB of them."""
        try:
            with open_regular(self._path) as file:
                file.seek(self.offset)
                data = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            if len(rest) > MAX_LINE_BYTES:
                self.offset += len(rest)
            return []
        self.offset += len(whole) + 1
        return [event for line in whole.split(b"\n") if line.strip() and (event := self._event(line))]

    def _event(self, line: bytes) -> Event | None:
        try:
            event = json.loads(line) if len(line) <= MAX_LINE_BYTES else None
        except (ValueError, RecursionError):
            event = None
        return event if is_object(event) and isinstance(event.get("event"), str) else None


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object of JSON."""
    return isinstance(value, dict)


def text_field(event: Event, key: str, most: int = 2000) -> str:
    """A text of an event, "" for anything else."""
    value = event.get(key)
    return _cut(value, most) if isinstance(value, str) else ""


def int_field(event: Event, key: str) -> int | None:
    """An integer of an event, None for anything else."""
    value = event.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and _fits(value) else None


def sanitize(value: object, depth: int = 3) -> Any:
    """A value of an event, cut to what any reader of JSON takes; None for numbers and depths beyond that."""
    if isinstance(value, str):
        return _cut(value, MAX_TEXT_LENGTH)
    if isinstance(value, (bool, int, float)):
        return value if _fits(value) else None
    if depth and isinstance(value, list):
        items = cast("list[object]", value)
        return [sanitize(item, depth - 1) for item in items[:MAX_ITEMS]]
    if depth and is_object(value):
        return {
            _cut(name, MAX_TEXT_LENGTH): sanitize(item, depth - 1) for name, item in islice(value.items(), MAX_ITEMS)
        }
    return None


def _fits(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else -(1 << 63) <= value < 1 << 63


def _cut(value: str, most: int) -> str:
    """A text cut to `most`, without lone surrogates, which JSON can hold and UTF-8 cannot."""
    return value[:most].encode("utf-8", "replace").decode()
