"""Events inside a window of time: the table of a selected area, search, and the links of an event."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns
from visualprof.views.measure.columns.groups import distinct, group
from visualprof.views.measure.columns.intervals import covered_ns, span_length, span_lengths_by_group, union
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.answer_names import trace_short_names
from visualprof.views.measure.launches.launch import is_kernel, is_nested_duplicate

MAX_HITS = 10_000
TICK_COUNT = 512
LinkName = Literal["launch", "fwdbwd", "async", "flow", "owner"]
Direction = Literal["to", "from"]
LINK_NAMES: dict[LinkKind, LinkName] = {
    LinkKind.LAUNCH: "launch",
    LinkKind.FWDBWD: "fwdbwd",
    LinkKind.ASYNC: "async",
    LinkKind.FLOW: "flow",
    LinkKind.OWNER: "owner",
}


class WindowColumns(Columns):
    """Events of a window by name and category.

    Attributes:
        self_ns: Time inside the window, without events inside these events.
        total_ns: Time inside the window.
        share_ratio: Share of the window that the union of the events covers.
        event: Row of the longest event.
    """

    name: kinds.NameColumn
    category: kinds.WordColumn
    calls: kinds.CountColumn
    self_ns: kinds.DurationColumn
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
    """Return the events with a duration of some tracks that overlap [low, high) ns."""
    events = trace.events
    rows_by_track: list[Ints] = []
    for track in tracks:
        first = trace.tracks[track].first
        last = first + int(np.searchsorted(events.ts[first : first + trace.tracks[track].count], high))
        rows = np.arange(first, last)
        rows_by_track.append(rows[(events.end[rows] > low) & (events.dur[rows] >= 0)])
    return np.concatenate(rows_by_track).astype(np.int32) if rows_by_track else np.zeros(0, np.int32)


def window_table(trace: Trace, low: int, high: int, tracks: list[int]) -> WindowColumns:
    """Return the events of a window by name and category, with their time inside the window.

    The names with the most self time come first.
    """
    events = trace.events
    rows = events_in_window(trace, low, high, tracks)
    is_duplicate = is_nested_duplicate(trace)
    rows = rows[~is_duplicate[rows]]
    start, end = np.maximum(events.ts[rows], low), np.minimum(events.end[rows], high)
    time_inside = end - start
    groups = group(events.name[rows], events.category[rows])
    total = groups.sum(time_inside)
    position = np.full(len(events) + 1, -1)
    position[rows] = np.arange(len(rows))
    owner = position[nearest_ancestor(events.parent, ~is_duplicate, events.parent[rows])]
    nested = np.bincount(owner[owner >= 0], time_inside[owner >= 0], len(rows)).astype(np.int64)
    union_ns = span_lengths_by_group(groups.ids, start, end, len(groups.first))
    longest = rows[groups.largest_rows(events.dur[rows])]
    columns: dict[str, Column] = {
        "name": name_texts(trace, events.name[rows][groups.first]),
        "category": [Category(category).name.lower() for category in events.category[rows][groups.first].tolist()],
        "calls": groups.count,
        "self_ns": groups.sum(np.maximum(time_inside - nested, 0)),
        "total_ns": total,
        "mean_ns": total / np.maximum(groups.count, 1),
        "union_ns": union_ns,
        "share_ratio": union_ns / max(1, high - low),
        "event": longest,
    }
    return WindowColumns(**sort_columns(columns, "self_ns"))


def window_utilization(trace: Trace, low: int, high: int) -> list[DeviceUse]:
    """Return the share of the window in which each device ran a kernel."""
    events = trace.events
    rows = np.flatnonzero(is_kernel(trace) & (events.dur > 0) & (events.ts < high) & (events.end > low))
    row_device = np.array([track.device for track in trace.tracks] or [0])[events.track[rows]]
    uses: list[DeviceUse] = []
    for device in distinct(row_device).tolist():
        device_rows = rows[row_device == device]
        busy = span_length(union(np.maximum(events.ts[device_rows], low), np.minimum(events.end[device_rows], high)))
        uses.append(DeviceUse(device, busy / max(1, high - low)))
    return uses


class SearchHits(msgspec.Struct, frozen=True):
    """The events that match a search.

    Attributes:
        rows: At most MAX_HITS events, in the order of time.
        total: Number of all matches.
        ticks: (TICK_COUNT,) matches over the trace's time.
    """

    rows: Rows
    total: int
    ticks: Ints


def search_events(trace: Trace, text: str, exact: bool = False) -> SearchHits:
    """Return the events whose name contains the text (ignoring case), or equals it; kernels also by short name."""
    needle, short = text.casefold(), trace_short_names(trace)
    matching_ids = [
        name_id
        for name_id, string in enumerate(trace.strings)
        if (string == text if exact else needle in string.casefold() or needle in short.get(string, "").casefold())
    ]
    is_match = np.zeros(len(trace.strings), bool)
    is_match[matching_ids] = True
    rows = np.flatnonzero(is_match[trace.events.name])
    start, end = trace.span_ns
    tick = np.floor((trace.events.ts[rows] - start) * (TICK_COUNT / max(1, end - start))).astype(np.int64)
    ticks = np.bincount(np.minimum(tick, TICK_COUNT - 1), minlength=TICK_COUNT)
    return SearchHits(_first_in_time(trace, rows), len(rows), ticks)


def _first_in_time(trace: Trace, rows: Ints) -> Rows:
    """Return the first MAX_HITS of ascending rows in the order of time; the rows of a track are in that order."""
    borders = [np.searchsorted(rows, (track.first, track.first + track.count)) for track in trace.tracks]
    leading = [rows[first : min(first + MAX_HITS, last)] for first, last in borders]
    first_rows = np.concatenate(leading) if leading else rows
    return first_rows[np.argsort(trace.events.ts[first_rows], kind="stable")][:MAX_HITS].astype(np.int32)


def name_ids(trace: Trace, name: str) -> list[int]:
    """Return the string ids of a name."""
    return [name_id for name_id, string in enumerate(trace.strings) if string == name]


def longest_event_named(trace: Trace, name: str, on_device: bool | None = None) -> int:
    """Return the row of the longest event of a name, -1 without one; on a device, on the host, or anywhere."""
    mask = np.isin(trace.events.name, name_ids(trace, name))
    if on_device is not None:
        mask &= trace.track_mask(TrackKind.STREAM) == on_device
    rows = np.flatnonzero(mask)
    return int(rows[np.argmax(trace.events.dur[rows])]) if len(rows) else -1


def linked_events(trace: Trace, row: int) -> list[tuple[int, LinkName, Direction]]:
    """Return the events linked with one, as (row, kind, direction `to` or `from`)."""
    linked: list[tuple[int, LinkName, Direction]] = []
    directions: tuple[tuple[Direction, Ids, Ids], ...] = (
        ("to", trace.links.src, trace.links.dst),
        ("from", trace.links.dst, trace.links.src),
    )
    for direction, near_ends, far_ends in directions:
        rows: list[int] = np.flatnonzero(near_ends == row)[:64].tolist()
        for link in rows:
            linked.append((int(far_ends[link]), LINK_NAMES[LinkKind(int(trace.links.kind[link]))], direction))  # noqa: PERF401
    return linked


def self_ns(trace: Trace, row: int) -> int:
    """Return the self time of an event: its duration minus that of its direct children."""
    events = trace.events
    track = trace.tracks[int(events.track[row])]
    end = int(events.end[row])
    last = track.first + int(np.searchsorted(events.ts[track.first : track.first + track.count], end, side="right"))
    later = np.arange(row + 1, last)
    children = later[events.parent[later] == row]
    return int(max(0, events.dur[row]) - np.maximum(events.dur[children], 0).sum())


@cached_on_trace
def busy_profile(trace: Trace) -> dict[str, NDArray[np.float64]]:
    """Return the share of time in which devices and the host were busy, for the minimap.

    The trace is divided into TICK_COUNT equal parts.
    """
    start, end = trace.span_ns
    edges = np.linspace(start, end, TICK_COUNT + 1).astype(np.int64)
    events = trace.events
    profile: dict[str, NDArray[np.float64]] = {}
    host = events.category_mask(Category.OP, Category.RUNTIME, Category.COMM) & trace.track_mask(TrackKind.THREAD)
    for name, mask in (("host", host), ("device", is_kernel(trace))):
        rows = np.flatnonzero(mask & (events.dur > 0))
        spans = union(events.ts[rows], events.ts[rows] + events.dur[rows])
        profile[name] = covered_ns(spans, edges[:-1], edges[1:]) / np.maximum(1, np.diff(edges))
    return profile
