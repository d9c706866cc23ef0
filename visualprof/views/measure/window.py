"""What ran inside a window of time: the table of an area selection, search, and one event's surroundings."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Rows, Trace, TrackKind
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns
from visualprof.views.measure.groups import distinct, group
from visualprof.views.measure.intervals import covered_ns, span_length, span_lengths_by_group, union
from visualprof.views.measure.launch import is_kernel, is_nested_duplicate
from visualprof.views.measure.timing import name_texts, sort_columns
from visualprof.views.measure.trace_cache import cached_on_trace

MAX_HITS = 10_000
TICK_COUNT = 512
LinkName = Literal["launch", "fwdbwd", "async", "flow", "owner"]
Direction = Literal["to", "from"]
LINK_NAMES: dict[LinkKind, LinkName] = {
    LinkKind.LAUNCH: "launch", LinkKind.FWDBWD: "fwdbwd", LinkKind.ASYNC: "async", LinkKind.FLOW: "flow",
    LinkKind.OWNER: "owner",
}  # fmt: skip


class WindowColumns(Columns):
    """Events of a window by name and category. total_ns: inside it; share_ratio: of their union. event: longest."""

    name: kinds.NameColumn
    category: kinds.WordColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    mean_ns: kinds.DurationColumn
    union_ns: kinds.DurationColumn
    share_ratio: kinds.RatioColumn
    event: kinds.IdentifierColumn


class DeviceUse(msgspec.Struct):
    """Share of a window in which a device ran a kernel."""

    device: kinds.Identifier
    utilization: kinds.Ratio


def events_in_window(trace: Trace, low: int, high: int, tracks: list[int]) -> Rows:
    """Timed events of some tracks that overlap [low, high) ns."""
    events = trace.events
    parts: list[Ints] = []
    for track in tracks:
        first = trace.tracks[track].first
        last = first + int(np.searchsorted(events.ts[first : first + trace.tracks[track].count], high))
        rows = np.arange(first, last)
        parts.append(rows[(events.end[rows] > low) & (events.dur[rows] >= 0)])
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)


def window_table(trace: Trace, low: int, high: int, tracks: list[int]) -> WindowColumns:
    """Events of a window by name and category: calls, time inside the window, its union, longest row.

    `share` is the union over the window's length.
    """
    events = trace.events
    rows = events_in_window(trace, low, high, tracks)
    rows = rows[~is_nested_duplicate(trace)[rows]]
    start, end = np.maximum(events.ts[rows], low), np.minimum(events.end[rows], high)
    inside = end - start
    groups = group(events.name[rows], events.category[rows])
    total = groups.sum(inside)
    unions = span_lengths_by_group(groups.ids, start, end, len(groups.first))
    longest = rows[groups.largest_rows(events.dur[rows])]
    columns: dict[str, Column] = {
        "name": name_texts(trace, events.name[rows][groups.first]),
        "category": [Category(c).name.lower() for c in events.category[rows][groups.first].tolist()],
        "calls": groups.count,
        "total_ns": total,
        "mean_ns": total / np.maximum(groups.count, 1),
        "union_ns": unions,
        "share_ratio": unions / max(1, high - low),
        "event": longest,
    }
    return WindowColumns(**sort_columns(columns, "total_ns"))


def window_utilization(trace: Trace, low: int, high: int) -> list[DeviceUse]:
    """Share of the window in which each device ran a kernel."""
    events = trace.events
    rows = np.flatnonzero(is_kernel(trace) & (events.dur > 0) & (events.ts < high) & (events.end > low))
    device_of = np.array([t.device for t in trace.tracks] or [0])[events.track[rows]]
    out: list[DeviceUse] = []
    for device in distinct(device_of).tolist():
        mine = rows[device_of == device]
        busy = span_length(union(np.maximum(events.ts[mine], low), np.minimum(events.end[mine], high)))
        out.append(DeviceUse(device, busy / max(1, high - low)))
    return out


class SearchHits(msgspec.Struct, frozen=True):
    """The events that match a search.

    rows: in order of time, at most MAX_HITS. total: all of them. ticks: (TICKS,) matches over the trace's time.
    """

    rows: Rows
    total: int
    ticks: Ints


def search_events(trace: Trace, text: str, exact: bool = False) -> SearchHits:
    """Events whose name contains the text (any case), or equals it."""
    needle = text.casefold()
    match = [i for i, s in enumerate(trace.strings) if (s == text if exact else needle in s.casefold())]
    table = np.zeros(len(trace.strings), bool)
    table[match] = True
    rows = np.flatnonzero(table[trace.events.name])
    rows = rows[np.argsort(trace.events.ts[rows], kind="stable")].astype(np.int32)
    start, end = trace.span_ns
    place = np.floor((trace.events.ts[rows] - start) * (TICK_COUNT / max(1, end - start))).astype(np.int64)
    return SearchHits(rows[:MAX_HITS], len(rows), np.bincount(np.minimum(place, TICK_COUNT - 1), minlength=TICK_COUNT))


def name_ids(trace: Trace, name: str) -> list[int]:
    """Numbers of a name in the trace's dictionary."""
    return [i for i, s in enumerate(trace.strings) if s == name]


def longest_event_named(trace: Trace, name: str, on_device: bool | None = None) -> int:
    """Row of the longest event of that name, -1 when there is none; on a device, on the host, or anywhere."""
    mask = np.isin(trace.events.name, name_ids(trace, name))
    if on_device is not None:
        mask &= trace.track_mask(TrackKind.STREAM) == on_device
    rows = np.flatnonzero(mask)
    return int(rows[np.argmax(trace.events.dur[rows])]) if len(rows) else -1


def linked_events(trace: Trace, row: int) -> list[tuple[int, LinkName, Direction]]:
    """Events linked with one: (row, kind, direction `to` or `from`)."""
    out: list[tuple[int, LinkName, Direction]] = []
    ends: tuple[tuple[Direction, Ids, Ids], ...] = (
        ("to", trace.links.src, trace.links.dst),
        ("from", trace.links.dst, trace.links.src),
    )
    for direction, mine, other in ends:
        rows: list[int] = np.flatnonzero(mine == row)[:64].tolist()
        for i in rows:
            out.append((int(other[i]), LINK_NAMES[LinkKind(int(trace.links.kind[i]))], direction))  # noqa: PERF401
    return out


def self_ns(trace: Trace, row: int) -> int:
    """Duration of an event less that of its direct children."""
    events = trace.events
    track = trace.tracks[int(events.track[row])]
    end = int(events.end[row])
    last = track.first + int(np.searchsorted(events.ts[track.first : track.first + track.count], end, side="right"))
    inside = np.arange(row + 1, last)
    children = inside[events.parent[inside] == row]
    return int(max(0, events.dur[row]) - np.maximum(events.dur[children], 0).sum())


@cached_on_trace
def busy_profile(trace: Trace) -> dict[str, NDArray[np.float64]]:
    """Share of each of TICKS equal parts of the trace that devices and the host were busy: for the minimap."""
    start, end = trace.span_ns
    edges = np.linspace(start, end, TICK_COUNT + 1).astype(np.int64)
    events = trace.events
    out: dict[str, NDArray[np.float64]] = {}
    host = events.category_mask(Category.OP, Category.RUNTIME, Category.COMM) & trace.track_mask(TrackKind.THREAD)
    for name, mask in (("host", host), ("device", is_kernel(trace))):
        rows = np.flatnonzero(mask & (events.dur > 0))
        spans = union(events.ts[rows], events.ts[rows] + events.dur[rows])
        out[name] = covered_ns(spans, edges[:-1], edges[1:]) / np.maximum(1, np.diff(edges))
    return out
