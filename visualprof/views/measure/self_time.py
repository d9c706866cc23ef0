"""What threads did within some stretches of time: the own time of each event, that of what is inside it taken off."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Trace, TrackKind
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import (
    covered_ns,
    intersect,
    merge,
    span_length,
    subtract,
    union,
    unions_by_group,
)
from visualprof.views.measure.timing import name_texts
from visualprof.views.measure.trace_cache import cached_on_trace

WORK_CATEGORIES = (Category.OP, Category.RUNTIME, Category.COMM, Category.DATALOADER, Category.SYNC, Category.OP_PART)
NO_SPANS = np.zeros((0, 2), np.int64)


class SelfTimes(msgspec.Struct, frozen=True):
    """rows: (n,) events. ns: (n,) own time of each. outside: ns in no event of any of the threads."""

    rows: Ints
    ns: Ints
    outside_ns: int


class NamedSelfTimes(msgspec.Struct, frozen=True):
    """Own time by name and category. calls: events that have some."""

    name: list[str]
    category: list[str]
    ns: Ints
    calls: Ints


def self_times(trace: Trace, tracks: Sequence[int], spans: Ints) -> SelfTimes:
    """Own time of the events of some threads within disjoint ascending intervals (m, 2) ns.

    While one of the threads works and another only stands in a range around its own work, that is the first one's time.
    """
    events = trace.events
    rows, spent, roots = list[Ints](), list[Ints](), np.zeros(0, np.int64)
    if not len(spans):
        return SelfTimes(roots, roots, 0)
    low, high = int(spans[0, 0]), int(spans[-1, 1])
    known = thread_busy_spans(trace) if len(tracks) > 1 else {}
    works = [intersect(known.get(number, NO_SPANS), np.array([[low, high]])) for number in tracks] if known else []
    for place, number in enumerate(tracks):
        mine = _rows_between(trace, number, low, high)
        parent = events.parent[mine]
        others = merge(*works[:place], *works[place + 1 :]) if works else NO_SPANS
        ours = subtract(spans, subtract(others, works[place])) if works else spans
        own = covered_ns(ours, events.ts[mine], events.end[mine])
        around = np.minimum(np.searchsorted(mine, parent), len(mine) - 1)
        inner = mine[around] == parent
        inside = np.bincount(around[inner], own[inner], len(mine)).astype(np.int64)
        self_ns = np.maximum(own - inside, 0)
        rows.append(mine[self_ns > 0])
        spent.append(self_ns[self_ns > 0])
        roots = np.append(roots, mine[~inner])
    outside = span_length(subtract(spans, union(events.ts[roots], events.end[roots])))
    return SelfTimes(np.concatenate(rows), np.concatenate(spent), outside)


def _rows_between(trace: Trace, number: int, low: int, high: int) -> Ints:
    """Events of a thread that lie between two times, or around the first of them, ascending."""
    track, events = trace.tracks[number], trace.events
    first, last = track.first, track.first + track.count
    begin, behind = (first + int(at) for at in np.searchsorted(events.ts[first:last], (low, high)))
    around, row = list[int](), begin - 1
    while row >= first:  # as many turns as events lie in each other
        if events.end[row] >= low:
            around.append(row)
        row = int(events.parent[row])
    return np.concatenate((np.array(around[::-1], np.int64), np.arange(begin, behind, dtype=np.int64)))


@cached_on_trace
def thread_busy_spans(trace: Trace) -> dict[int, Ints]:
    """Disjoint intervals (m, 2) ns in which each thread that works does so, by its track."""
    events = trace.events
    rows = np.flatnonzero(
        events.category_mask(*WORK_CATEGORIES) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    )
    threads = group(events.track[rows])
    spans = unions_by_group(threads, events.ts[rows], events.end[rows])
    return dict(zip(events.track[rows[threads.first]].tolist(), spans, strict=True))


def sum_by_name(trace: Trace, parts: Sequence[SelfTimes]) -> NamedSelfTimes:
    """The parts together, by name and category."""
    none = np.zeros(0, np.int64)
    row, ns = np.concatenate([none, *(p.rows for p in parts)]), np.concatenate([none, *(p.ns for p in parts)])
    groups = group(trace.events.name[row], trace.events.category[row])
    categories = [Category(int(c)).name.lower() for c in trace.events.category[row][groups.first]]
    return NamedSelfTimes(
        name_texts(trace, trace.events.name[row][groups.first]), categories, groups.sum(ns), groups.count
    )
