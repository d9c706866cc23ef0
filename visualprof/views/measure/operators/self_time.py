"""Activity of threads during some intervals: the self time of each event, without nested events."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64

import msgspec
import numpy as np

from visualprof.reader.native import INT32, INT64, UINT8, function
from visualprof.reader.trace import Category, Ids, Ints, Mask, Trace, TrackKind
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import (
    covered_ns,
    intersect,
    merge,
    span_length,
    subtract,
    union,
)
from visualprof.views.measure.columns.timing import name_texts
from visualprof.views.measure.columns.trace_cache import cached_on_trace

WORK_CATEGORIES = (Category.OP, Category.RUNTIME, Category.COMM, Category.DATALOADER, Category.SYNC, Category.OP_PART)
NO_SPANS = np.zeros((0, 2), np.int64)


class SelfTimes(msgspec.Struct, frozen=True):
    """Self times of events.

    Attributes:
        rows: (n,) events.
        ns: (n,) self time of each.
        outside_ns: Time outside of all events of all threads.
    """

    rows: Ints
    ns: Ints
    outside_ns: int


class NamedSelfTimes(msgspec.Struct, frozen=True):
    """Self time by name and category.

    Attributes:
        name: Names.
        category: Categories.
        ns: Self times.
        calls: Numbers of events with self time.
    """

    name: list[str]
    category: list[str]
    ns: Ints
    calls: Ints


def self_times(trace: Trace, tracks: Sequence[int], spans: Ints) -> SelfTimes:
    """Return the self time of the events of some threads within disjoint ascending intervals (m, 2) ns.

    If one thread works while another is only inside a range around its own work, the time is
    counted for the first one.
    """
    events = trace.events
    rows, times, roots = list[Ints](), list[Ints](), np.zeros(0, np.int64)
    if not len(spans):
        return SelfTimes(roots, roots, 0)
    start, end = int(spans[0, 0]), int(spans[-1, 1])
    work_spans = thread_busy_spans(trace) if len(tracks) > 1 else {}
    work_by_track = (
        [intersect(work_spans.get(track, NO_SPANS), np.array([[start, end]])) for track in tracks] if work_spans else []
    )
    for index, track in enumerate(tracks):
        enclosing, first, last = _rows_between(trace, track, start, end)
        track_rows = np.concatenate((enclosing, np.arange(first, last)))
        starts, ends = (np.concatenate((times[enclosing], times[first:last])) for times in (events.ts, events.end))
        other_work = merge(*work_by_track[:index], *work_by_track[index + 1 :]) if work_by_track else NO_SPANS
        own_spans = subtract(spans, subtract(other_work, work_by_track[index])) if work_by_track else spans
        self_ns = covered_ns(own_spans, starts, ends)
        nested_ns, is_nested = _nested_times(events.parent, track_rows, self_ns)
        self_ns -= nested_ns
        with_time = np.flatnonzero(self_ns > 0)
        rows.append(track_rows[with_time])
        times.append(self_ns[with_time])
        roots = np.append(roots, track_rows[np.flatnonzero(~is_nested)])
    outside = span_length(subtract(spans, union(events.ts[roots], events.end[roots])))
    return SelfTimes(np.concatenate(rows), np.concatenate(times), outside)


def _nested_times(parent: Ids, rows: Ints, total: Ints) -> tuple[Ints, Mask]:
    """Return the time of the events directly inside each of some events, and which of them are inside another one.

    Args:
        parent: Parent of every event.
        rows: (n,) events, ascending.
        total: (n,) time of each in ns.
    """
    native = function("vp_child_sums", None, INT64, INT32, INT64, c_int64, INT64, UINT8)
    if native:
        nested_ns, is_nested = np.zeros(len(rows), np.int64), np.empty(len(rows), np.uint8)
        native(rows, parent, total, len(rows), nested_ns, is_nested)
        return nested_ns, is_nested.view(np.bool_)
    callers = parent[rows]
    index = np.minimum(np.searchsorted(rows, callers), len(rows) - 1)
    is_inside = rows[index] == callers
    return np.bincount(index[is_inside], total[is_inside], len(rows)).astype(np.int64), is_inside


def _rows_between(trace: Trace, track_number: int, start: int, end: int) -> tuple[Ints, int, int]:
    """Return the events of a thread that enclose `start`, ascending, and the range of its later events up to `end`."""
    track, events = trace.tracks[track_number], trace.events
    first, last = track.first, track.first + track.count
    first_inside, end_inside = (first + int(offset) for offset in np.searchsorted(events.ts[first:last], (start, end)))
    enclosing, row = list[int](), first_inside - 1
    while row >= first:  # one iteration per preceding sibling and ancestor
        if events.end[row] >= start:
            enclosing.append(row)
        row = int(events.parent[row])
    return np.array(enclosing[::-1], np.int64), first_inside, end_inside


@cached_on_trace
def thread_busy_spans(trace: Trace) -> dict[int, Ints]:
    """Return the disjoint intervals (m, 2) ns in which each thread works, by its track; idle threads are left out."""
    events = trace.events
    is_work = events.category_mask(*WORK_CATEGORIES) & (events.dur > 0)
    busy_spans: dict[int, Ints] = {}
    for number, track in enumerate(trace.tracks):
        if track.kind is TrackKind.THREAD and track.count:
            rows = np.flatnonzero(is_work[track.first : track.first + track.count]) + track.first
            if len(rows):
                busy_spans[number] = union(events.ts[rows], events.end[rows])
    return busy_spans


def sum_by_name(trace: Trace, parts: Sequence[SelfTimes]) -> NamedSelfTimes:
    """Return self times summed up by name and category."""
    empty = np.zeros(0, np.int64)
    rows, ns = (
        np.concatenate([empty, *(part.rows for part in parts)]),
        np.concatenate([empty, *(part.ns for part in parts)]),
    )
    names, categories = trace.events.name[rows], trace.events.category[rows]
    groups = group(names, categories)
    return NamedSelfTimes(
        name_texts(trace, names[groups.first]),
        [Category(int(category)).name.lower() for category in categories[groups.first]],
        groups.sum(ns),
        groups.count,
    )
