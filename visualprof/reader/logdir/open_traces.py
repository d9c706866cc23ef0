"""Recently used traces, which stay open."""

from __future__ import annotations

import threading
from collections import OrderedDict

from visualprof.reader.cache import Cache
from visualprof.reader.logdir.summary import file_fingerprint
from visualprof.reader.trace import Trace
from visualprof.reader.trace.rank_split import rank_labels, select_rank

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
        trace = trace or self._load(fingerprint)
        if trace:
            with self._lock:
                self._traces[fingerprint] = trace
                self._traces.move_to_end(fingerprint)
                while len(self._traces) > _MAX_OPEN_TRACES:
                    self._traces.popitem(last=False)
        return trace

    def _load(self, fingerprint: str) -> Trace | None:
        """Return the trace of a file, or of a rank in a file with several."""
        file, label = file_fingerprint(fingerprint)
        if not label:
            return self._cache.load(file)
        trace = self.get(file)
        return select_rank(trace, label) if trace and label in rank_labels(trace) else None
