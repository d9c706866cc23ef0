"""Events of a running child, as lines of JSON. A child may be hostile, so lengths and types are checked."""

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
    """Progress of a task, from the events of its children.

    Attributes:
        on_point: Called with each point.
        changed: Called after each change.
        phase: Current phase.
        batch: Current batch size.
        step: Current step of a benchmark case; "" for none.
        step_since: Start of the step, as `time.monotonic()`.
        share: Finished share of the stage.
        version: Version of the runtime.
        effective: Options that the runtime really used.
        profiles: Recorded profiles.
        warnings: Warnings of the result.
        not_measured: Sizes that could not be measured.
        load_ns: Load time of the model.
        converted: Description of a conversion, unchecked.
    """

    on_point: Callable[[dict[str, Any]], None]
    changed: Callable[[], None]
    phase: str = "preparing"
    batch: int | None = None
    step: str = ""
    step_since: float = 0.0
    share: float = 0.0  # finished share of the stage
    version: str = ""
    effective: dict[str, Any] = field(default_factory=dict[str, Any])
    profiles: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    warnings: list[str] = field(default_factory=list[str])
    not_measured: list[int] = field(default_factory=list[int])
    load_ns: int | None = None
    converted: dict[str, Any] = field(default_factory=dict[str, Any])

    def add_warning(self, text: str) -> None:
        """Add a warning once; repeats of a measurement report it again."""
        if text and text not in self.warnings:
            self.warnings.append(text)

    def add_not_measured(self, size: int | None) -> None:
        """Add a size that could not be measured, if any, once."""
        if size is not None and size not in self.not_measured:
            self.not_measured.append(size)


class EventReader:
    """Reads the complete lines of a growing file, each line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = 0  # bytes read so far

    def skip_partial_line(self) -> None:
        """Skip to the end of the file, past a partial line that the previous child may have left."""
        if is_regular(self._path):
            self.offset = self._path.stat().st_size

    def read(self) -> list[Event]:
        """Return the events since the last call, at most 4 MiB of them."""
        try:
            with open_regular(self._path) as file:
                file.seek(self.offset)
                data = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        complete_lines, newline, rest = data.rpartition(b"\n")
        if not newline:
            if len(rest) > MAX_LINE_BYTES:
                self.offset += len(rest)
            return []
        self.offset += len(complete_lines) + 1
        return [event for line in complete_lines.split(b"\n") if line.strip() and (event := self._event(line))]

    def _event(self, line: bytes) -> Event | None:
        try:
            event = json.loads(line) if len(line) <= MAX_LINE_BYTES else None
        except (ValueError, RecursionError):
            event = None
        return event if is_object(event) and isinstance(event.get("event"), str) else None


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def text_field(event: Event, key: str, max_length: int = 2000) -> str:
    """Return a text of an event, "" for any other value."""
    value = event.get(key)
    return _truncate(value, max_length) if isinstance(value, str) else ""


def int_field(event: Event, key: str) -> int | None:
    """Return an integer of an event, `None` for any other value."""
    value = event.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and _fits(value) else None


def sanitize(value: object, depth: int = 3) -> Any:
    """Return a value of an event, cut to what any JSON reader accepts; `None` for numbers and depths beyond that."""
    if isinstance(value, str):
        return _truncate(value, MAX_TEXT_LENGTH)
    if isinstance(value, (bool, int, float)):
        return value if _fits(value) else None
    if depth and isinstance(value, list):
        items = cast("list[object]", value)
        return [sanitize(item, depth - 1) for item in items[:MAX_ITEMS]]
    if depth and is_object(value):
        return {
            _truncate(name, MAX_TEXT_LENGTH): sanitize(item, depth - 1)
            for name, item in islice(value.items(), MAX_ITEMS)
        }
    return None


def _fits(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else -(1 << 63) <= value < 1 << 63


def _truncate(value: str, max_length: int) -> str:
    """Return a text cut to `max_length`, without lone surrogates, which JSON can contain and UTF-8 cannot."""
    return value[:max_length].encode("utf-8", "replace").decode()
