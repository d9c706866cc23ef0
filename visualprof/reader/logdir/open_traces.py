"""Recently used traces, which stay open."""

from __future__ import annotations

import threading
from collections import OrderedDict

from visualprof.reader.cache import Cache
from visualprof.reader.trace import Trace

_MAX_OPEN_TRACES = 8


class OpenTraces:
    """Traces of a cache by fingerprint; safe for use by several threads."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, fingerprint: str) -> Trace | None:
        """Return the trace, or `None` if the cache does not have it. Loading does not block other traces."""
        with self._lock:
            trace = self._traces.get(fingerprint)
        trace = trace or self._cache.load(fingerprint)
        if trace:
            with self._lock:
                self._traces[fingerprint] = trace
                self._traces.move_to_end(fingerprint)
                while len(self._traces) > _MAX_OPEN_TRACES:
                    self._traces.popitem(last=False)
        return trace
