"""Answers of views, computed once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from visualprof.views.answers.table import Answer

_KEPT = 64

Key = tuple[object, ...]


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    result: Answer | None = None


class Results:
    """The most recently used results. Who asks for one that is being computed waits for it."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key, compute: Callable[[], Answer]) -> Answer:
        """The kept result of the key, or a new one; an error is not kept."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self._kept:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.result is None:
                entry.result = compute()
            return entry.result
