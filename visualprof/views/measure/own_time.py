"""What threads did within some stretches of time: the own time of each event, that of what is inside it taken off."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Trace
from visualprof.views.measure.groups import group, one_of
from visualprof.views.measure.intervals import covered, length, merge, subtract, union
from visualprof.views.measure.timing import names

WORK = (Category.OP, Category.RUNTIME, Category.COMM, Category.DATALOADER, Category.SYNC, Category.OP_PART)


class OwnTime(msgspec.Struct, frozen=True):
    """rows: (n,) events. ns: (n,) own time of each. outside: ns in no event of any of the threads."""

    rows: Ints
    ns: Ints
    outside: int


class NamedTime(msgspec.Struct, frozen=True):
    """Own time by name and category. calls: events that have some."""

    name: list[str]
    category: list[str]
    ns: Ints
    calls: Ints


def own_time(trace: Trace, tracks: Sequence[int], spans: Ints) -> OwnTime:
    """Own time of the events of some threads within disjoint ascending intervals (m, 2) ns.

    While one of the threads works and another only stands in a range around its own work, that is the first one's time.
    """
    events = trace.events
    rows, spent, roots = list[Ints](), list[Ints](), np.zeros(0, np.int64)
    works = [work_spans(trace, number) for number in tracks] if len(tracks) > 1 else []
    for place, number in enumerate(tracks):
        track = trace.tracks[number]
        mine = np.arange(track.first, track.first + track.count)
        parent = events.parent[mine]
        others = merge(*works[:place], *works[place + 1 :]) if works else np.zeros((0, 2), np.int64)
        ours = subtract(spans, subtract(others, works[place])) if works else spans
        own = covered(ours, events.ts[mine], events.end[mine])
        inner = np.flatnonzero(parent >= 0)
        inside = np.bincount(parent[inner] - track.first, own[inner], len(mine)).astype(np.int64)
        self_ns = np.maximum(own - inside, 0)
        rows.append(mine[self_ns > 0])
        spent.append(self_ns[self_ns > 0])
        roots = np.append(roots, mine[parent < 0])
    outside = length(subtract(spans, union(events.ts[roots], events.end[roots])))
    return OwnTime(np.concatenate(rows), np.concatenate(spent), outside)


def work_spans(trace: Trace, number: int) -> Ints:
    """Disjoint intervals (m, 2) ns in which a thread works."""
    track, events = trace.tracks[number], trace.events
    rows = np.flatnonzero(one_of(events.category[track.first : track.first + track.count], WORK)) + track.first
    return union(events.ts[rows], events.end[rows])


def sum_by_name(trace: Trace, parts: Sequence[OwnTime]) -> NamedTime:
    """The parts together, by name and category."""
    none = np.zeros(0, np.int64)
    row, ns = np.concatenate([none, *(p.rows for p in parts)]), np.concatenate([none, *(p.ns for p in parts)])
    groups = group(trace.events.name[row], trace.events.category[row])
    categories = [Category(int(c)).name.lower() for c in trace.events.category[row][groups.first]]
    return NamedTime(names(trace, trace.events.name[row][groups.first]), categories, groups.sum(ns), groups.count)
