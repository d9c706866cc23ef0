"""Recently used traces, which stay open."""

from __future__ import annotations

import threading
from collections import OrderedDict

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.summary import file_fingerprint
from visualprof.reader.trace import Trace
from visualprof.reader.trace.rank_split import rank_labels, select_rank

_MAX_OPEN_TRACES = 8
# Results that are cached on a trace take about 40 bytes per event. Beyond this many events, traces are closed that no
# request used for some time; opening a trace of ten million events again takes 0.1 s.
_MAX_IDLE_EVENTS = 10_000_000
_IDLE_S = 60.0


class OpenTraces:
    """Traces of a cache by fingerprint; safe for use by several threads.

    Args:
        cache: The cache.
        max_idle_events: Total number of events up to which unused traces stay open.
        clock: Measures how long a trace is unused.
    """

    def __init__(self, cache: Cache, max_idle_events: int = _MAX_IDLE_EVENTS, clock: Clock = SYSTEM_CLOCK) -> None:
        self._cache, self._max_idle_events, self._clock = cache, max_idle_events, clock
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._used_s: dict[str, float] = {}
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
                self._used_s[fingerprint] = self._clock.monotonic()
                self._close_unused()
        return trace

    def _close_unused(self) -> None:
        """Close the least recently used traces: all beyond the limit of traces, idle ones beyond that of events."""
        events = sum(len(trace.events) for trace in self._traces.values())
        for fingerprint, trace in list(self._traces.items())[:-1]:
            idle_s = self._clock.monotonic() - self._used_s[fingerprint]
            is_excess = len(self._traces) > _MAX_OPEN_TRACES
            if not is_excess and (events <= self._max_idle_events or idle_s < _IDLE_S):
                return
            del self._traces[fingerprint], self._used_s[fingerprint]
            events -= len(trace.events)

    def _load(self, fingerprint: str) -> Trace | None:
        """Return the trace of a file, or of a rank in a file with several."""
        file, label = file_fingerprint(fingerprint)
        if not label:
            return self._cache.load(file)
        trace = self.get(file)
        return select_rank(trace, label) if trace and label in rank_labels(trace) else None
