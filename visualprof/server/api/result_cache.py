"""Cache results in memory, and compute each only once at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_RESULTS = 64  # cached results

T = TypeVar("T")


@dataclass
class _Entry(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    result: T | None = None


class ResultCache(Generic[T]):
    """The most recently used results. A request for a result that is being computed waits for it."""

    def __init__(self, max_results: int = MAX_RESULTS) -> None:
        self._max_results = max_results
        self._entries: OrderedDict[object, _Entry[T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object, compute: Callable[[], T], exclusive: bool = True) -> T:
        """Return the cached result of the key, or compute it. Errors are not cached.

        Args:
            key: The key.
            compute: Compute the result.
            exclusive: Other requests wait for the result. Not for results of the pool, which limits who waits.
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Entry[T]())
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_results:
                self._entries.popitem(last=False)
        with entry.lock if exclusive else nullcontext():
            result = entry.result
            if result is None:
                result = entry.result = compute()
            return result
