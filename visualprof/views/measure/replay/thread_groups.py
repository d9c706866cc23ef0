"""Groups of threads that do not work at the same time, such as a thread pool with one busy thread at a time."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.views.measure.columns.intervals import covered_ns, merge, span_length, subtract
from visualprof.views.measure.operators.self_time import NO_SPANS, thread_busy_spans

MAX_OVERLAP_SHARE = 0.02  # threads whose work overlaps less than this share form one thread group


class ThreadGroup(msgspec.Struct, frozen=True):
    """Threads that do not work at the same time.

    Attributes:
        tracks: Their tracks.
        spans: (n, 2) ns in which any of them works.
    """

    tracks: list[int]
    spans: Ints


class _GrowingSpans:
    """Disjoint intervals to which others are added. Adding n sets takes O(n sqrt(n)) instead of O(n * n)."""

    def __init__(self, spans: Ints) -> None:
        self._merged, self._recent = spans, NO_SPANS

    def overlap_ns(self, spans: Ints) -> int:
        """Return the time in both this set and another one."""
        both = _near(self._merged, spans), _near(self._recent, spans)
        return sum(int(covered_ns(near, spans[:, 0], spans[:, 1]).sum()) for near in both)

    def add(self, spans: Ints) -> None:
        """Add disjoint ascending intervals (n, 2)."""
        self._recent = merge(self._recent, subtract(spans, _near(self._merged, spans)))
        if len(self._recent) ** 2 > len(self._merged):
            self._merged, self._recent = self.spans(), NO_SPANS

    def spans(self) -> Ints:
        """Return all intervals."""
        return merge(self._merged, self._recent)


def _near(spans: Ints, others: Ints) -> Ints:
    """Return the intervals (n, 2) between the start and the end of other intervals; all disjoint and ascending."""
    first, last = int(others[0, 0]), int(others[-1, 1])
    return spans[int(np.searchsorted(spans[:, 1], first, "right")) : int(np.searchsorted(spans[:, 0], last))]


def thread_groups(trace: Trace) -> list[ThreadGroup]:
    """Return the thread groups, the busiest first."""
    groups: list[tuple[list[int], _GrowingSpans]] = []
    for track, busy in sorted(thread_busy_spans(trace).items(), key=lambda item: -span_length(item[1])):
        limit = MAX_OVERLAP_SHARE * span_length(busy)
        for tracks, spans in groups:
            if spans.overlap_ns(busy) <= limit:
                tracks.append(track)
                spans.add(busy)
                break
        else:
            groups.append(([track], _GrowingSpans(busy)))
    return [ThreadGroup(tracks, spans.spans()) for tracks, spans in groups]
