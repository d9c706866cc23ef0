"""Device idle time by cause, and host activity during it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.trace import Category, Ids, Ints, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import group, is_in
from visualprof.views.measure.columns.intervals import covered_ns, merge, span_length, subtract, union
from visualprof.views.measure.columns.timing import sort_columns
from visualprof.views.measure.devices.gaps import CAUSES, Gaps, WorkSequence, find_gaps, work_sequences
from visualprof.views.measure.launches.launch import is_device_work, is_operator
from visualprof.views.measure.operators.self_time import self_times, sum_by_name
from visualprof.views.measure.steps.windows import StepWindows, step_windows

MAX_GAPS = 200  # gaps in the table
WORK_KINDS = {
    "computation": (Category.KERNEL,),
    "communication": (Category.COMM,),
    "memory": (Category.MEMCPY, Category.MEMSET),
}


@dataclass(frozen=True)
class IdleParams(Params):
    """Parameters of the view.

    Attributes:
        kernel_wait_ns: Shorter gaps between queued work count as the device's normal pace (cause `kernel_wait`).
    """

    kernel_wait_ns: Annotated[int, msgspec.Meta(ge=0)] = 30_000


class IdleColumns(Columns):
    """Devices, and the streams of devices that have several.

    The three kinds of work and `idle_ns` add up to `span_ns`. The causes add up to `idle_ns`.

    Attributes:
        stream: None for the device, that is, all of its streams together.
        computation_ns: Time with computation.
        communication_ns: Time with communication and no computation.
        memory_ns: Time with copies or fills and neither computation nor communication.
        other_ns: Idle time that no rule explains.
    """

    device: kinds.IdentifierColumn
    stream: kinds.NameColumn
    span_ns: kinds.DurationColumn
    computation_ns: kinds.DurationColumn
    communication_ns: kinds.DurationColumn
    memory_ns: kinds.DurationColumn
    idle_ns: kinds.DurationColumn
    idle_ratio: kinds.RatioColumn
    host_wait_ns: kinds.DurationColumn
    graph_ns: kinds.DurationColumn
    kernel_wait_ns: kinds.DurationColumn
    dependency_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn
    unknown_ns: kinds.DurationColumn
    gaps: kinds.CountColumn
    median_gap_ns: kinds.DurationColumn
    longest_gap_ns: kinds.DurationColumn


class IdleStepColumns(Columns):
    """Idle time by step and device."""

    step: kinds.NameColumn
    device: kinds.IdentifierColumn
    span_ns: kinds.DurationColumn
    idle_ns: kinds.DurationColumn
    idle_ratio: kinds.RatioColumn
    host_wait_ns: kinds.DurationColumn
    graph_ns: kinds.DurationColumn
    kernel_wait_ns: kinds.DurationColumn
    dependency_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn
    unknown_ns: kinds.DurationColumn


class HostColumns(Columns):
    """Host activity while a device waits: self time by name on the launching threads.

    Attributes:
        name: Name of the event; "" for time outside of all events.
        share: Share of the self time in this table.
    """

    name: kinds.NameColumn
    category: kinds.WordColumn
    self_ns: kinds.DurationColumn
    share: kinds.RatioColumn
    calls: kinds.CountColumn


class GapColumns(Columns):
    """The longest gaps of whole devices.

    Attributes:
        host: The event with the most self time on the launching thread during the gap.
        within: The outermost range or operator around that event.
        after: The work before the gap.
        before: The work after the gap.
        operator: The operator that launched the work after the gap.
        start_ns: Since the first event.
        end_ns: Since the first event.
        track: Track of the work after the gap.
    """

    duration_ns: kinds.DurationColumn
    device: kinds.IdentifierColumn
    cause: kinds.WordColumn
    host: kinds.NameColumn
    within: kinds.NameColumn
    after: kinds.NameColumn
    before: kinds.NameColumn
    operator: kinds.NameColumn
    step: kinds.NameColumn
    start_ns: kinds.DurationColumn
    end_ns: kinds.DurationColumn
    track: kinds.IdentifierColumn


class IdleAnswer(Table[IdleColumns]):
    """Idle time.

    Attributes:
        host: Host activity during the gaps of whole devices with the cause host_wait, until the launch started.
    """

    steps: Table[IdleStepColumns]
    host: Table[HostColumns]
    longest: Table[GapColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace has device work."""
    return bool(is_device_work(trace).any())


def compute(trace: Trace, params: IdleParams) -> IdleAnswer:
    """Return idle time by device, stream and cause, in all steps or one.

    Source: HTA's temporal breakdown and idle time breakdown, docs/views/idle.md
    """
    windows = step_windows(trace)
    since = int(windows.start[0]) if len(windows) else None
    windows = windows.select_step(params.step) if params.step else windows
    events, lane_gaps = trace.events, list[tuple[WorkSequence, Gaps]]()
    ends: Ints = np.zeros(0, np.int64)
    for lane in work_sequences(trace):
        if lane.track < 0:
            ends = np.sort(events.end[lane.work])
        lane_gaps.append((lane, find_gaps(trace, lane, ends, params.kernel_wait_ns, since)))
    streams = Counter(lane.device for lane, _ in lane_gaps if lane.track >= 0)
    lane_gaps = [(lane, found_gaps) for lane, found_gaps in lane_gaps if lane.track < 0 or streams[lane.device] > 1]
    step = (int(windows.start.min()), int(windows.end.max())) if params.step and len(windows) else None
    rows = [_lane(trace, lane, found_gaps, *(step or _extent(trace, lane))) for lane, found_gaps in lane_gaps]
    devices = [(lane, found_gaps) for lane, found_gaps in lane_gaps if lane.track < 0]
    inside = [(lane, _clip(found_gaps, *(step or _extent(trace, lane)))) for lane, found_gaps in devices]
    waits = [_host_waits(trace, found_gaps) for _, found_gaps in inside]
    return IdleAnswer(
        columns=IdleColumns(**{key: [row[key] for row in rows] for key in IdleColumns.__struct_fields__}),
        steps=Table(columns=_steps(trace, devices, windows)),
        host=Table(columns=_host(trace, *(np.concatenate(parts) for parts in zip(*waits, strict=True)))),
        longest=Table(columns=_longest(trace, inside)),
    )


def make_charts(result: IdleAnswer, params: IdleParams, top: int) -> dict[str, charts.Option]:
    """Return the charts `causes` (by device and stream) and `meanwhile` (host activity)."""
    columns, host = result.columns, result.host.columns
    several = len(set(columns.device)) > 1
    prefixes = [f"{device} · " if several else "" for device in columns.device]
    lane = [
        f"{at}{stream}" if stream else at[:-3] or "@t:idle.whole"
        for at, stream in zip(prefixes, columns.stream, strict=True)
    ]
    series = [(f"@t:idle.cause.{cause}", getattr(columns, f"{cause}_ns")) for cause in CAUSES]
    used = [(name, values) for name, values in series if np.any(values)]
    named = [name or "@t:idle.outside" for name in host.name]
    return {
        "causes": charts.bars(lane, used),
        **({"meanwhile": charts.pie(zip(named, host.self_ns, strict=True), top=top)} if named else {}),
    }


def _extent(trace: Trace, lane: WorkSequence) -> tuple[int, int]:
    """Return the start of the first and the end of the last work of a lane."""
    return int(trace.events.ts[lane.work].min()), int(trace.events.end[lane.work].max())


def _clip(gaps_of_lane: Gaps, low: int, high: int) -> Gaps:
    """Return the gaps clipped to an interval."""
    start, end = np.clip(gaps_of_lane.start, low, high), np.clip(gaps_of_lane.end, low, high)
    at = np.flatnonzero(end > start)
    return replace(gaps_of_lane.select(at), start=start[at], end=end[at])


def _lane(
    trace: Trace, lane: WorkSequence, gaps_of_lane: Gaps, low: int, high: int
) -> dict[str, int | float | str | None]:
    """Return a row of `IdleColumns` for an interval."""
    events, clipped = trace.events, _clip(gaps_of_lane, low, high)
    start, end, category = events.ts[lane.work], events.end[lane.work], events.category[lane.work]
    before, spent = np.zeros((0, 2), np.int64), dict[str, int]()
    for kind, members in WORK_KINDS.items():
        of_kind = is_in(category, members)
        spans = union(np.clip(start[of_kind], low, high), np.clip(end[of_kind], low, high))
        spent[f"{kind}_ns"] = span_length(subtract(spans, before))
        before = merge(before, spans)
    idle = high - low - span_length(before)
    lengths = clipped.end - clipped.start
    causes = {f"{cause}_ns": int(lengths[clipped.cause == i].sum()) for i, cause in enumerate(CAUSES)}
    causes["other_ns"] += idle - sum(causes.values())  # before the first and after the last work of a step
    return {
        "device": lane.device,
        "stream": lane.stream_name(trace),
        "span_ns": high - low,
        **spent,
        "idle_ns": idle,
        "idle_ratio": idle / (high - low) if high > low else None,
        **causes,
        "gaps": len(lengths),
        "median_gap_ns": float(np.median(lengths)) if len(lengths) else None,
        "longest_gap_ns": int(lengths.max()) if len(lengths) else None,
    }


def _steps(trace: Trace, devices: list[tuple[WorkSequence, Gaps]], windows: StepWindows) -> IdleStepColumns:
    span, parts = windows.end - windows.start, list[dict[str, Ints]]()
    for lane, device_gaps in devices:
        ran = union(trace.events.ts[lane.work], trace.events.end[lane.work])
        idle = span - covered_ns(ran, windows.start, windows.end)
        causes = {f"{cause}_ns": covered_ns(device_gaps.spans(cause), windows.start, windows.end) for cause in CAUSES}
        causes["other_ns"] = causes["other_ns"] + idle - sum(causes.values())
        parts.append({"device": np.full(len(span), lane.device), "span_ns": span, "idle_ns": idle, **causes})
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    ratio = columns["idle_ns"] / np.maximum(columns["span_ns"], 1)
    return IdleStepColumns(step=list(windows.names) * len(devices), idle_ratio=ratio, **columns)


def _host_waits(trace: Trace, device_gaps: Gaps) -> tuple[Ints, Ints, Ids]:
    """Return (start, end, launching call) from the end of the work before a gap to the launch of the work after it."""
    at = np.flatnonzero(device_gaps.cause == CAUSES.index("host_wait"))
    call = device_gaps.call[at]
    return device_gaps.start[at], np.minimum(trace.events.ts[call], device_gaps.end[at]), call


def _host(trace: Trace, start: Ints, end: Ints, call: Ids) -> HostColumns:
    """Return the self time of host events on the launching threads in some intervals."""
    tracks = trace.events.track[call]
    thread_times = (
        [self_times(trace, (int(tracks[rows[0]]),), union(start[rows], end[rows])) for rows in group(tracks).members()]
        if len(call)
        else []
    )
    total, outside = sum_by_name(trace, thread_times), sum(item.outside_ns for item in thread_times)
    extra = [outside] if outside else []
    spent = np.append(total.ns, extra)
    columns: dict[str, Column] = {
        "name": [*total.name, *([""] if outside else [])],
        "category": [*total.category, *([None] if outside else [])],
        "self_ns": spent,
        "share": spent / max(int(spent.sum()), 1),
        "calls": np.append(total.calls.astype(np.float64), [np.nan] if outside else []),
    }
    return HostColumns(**sort_columns(columns, "self_ns"))


def _longest(trace: Trace, devices: list[tuple[WorkSequence, Gaps]]) -> GapColumns:
    events, first = trace.events, trace.span_ns[0]
    longest_gaps = [
        device_gaps.select(np.argsort(device_gaps.start - device_gaps.end, kind="stable")[:MAX_GAPS])
        for _, device_gaps in devices
    ]
    device = np.repeat([lane.device for lane, _ in devices], [len(device_gaps.start) for device_gaps in longest_gaps])
    merged = Gaps(
        *(
            np.concatenate([getattr(device_gaps, name) for device_gaps in longest_gaps])
            for name in Gaps.__struct_fields__
        )
    )
    order = np.argsort(merged.start - merged.end, kind="stable")[:MAX_GAPS]
    longest = merged.select(order)
    meanwhile = [
        _meanwhile(trace, *gap)
        for gap in zip(*(c.tolist() for c in (longest.start, longest.end, longest.call)), strict=True)
    ]
    return GapColumns(
        device=device[order],
        duration_ns=longest.end - longest.start,
        cause=[CAUSES[int(i)] for i in longest.cause],
        host=_names(trace, np.array([row for row, _ in meanwhile])),
        within=_names(trace, np.array([row for _, row in meanwhile])),
        after=_names(trace, longest.previous_work),
        before=_names(trace, longest.next_work),
        operator=_names(trace, nearest_ancestor(events.parent, is_operator(trace), longest.call)),
        step=[
            trace.strings[int(trace.steps.name[i])] if i >= 0 else None for i in events.step[longest.next_work].tolist()
        ],
        start_ns=longest.start - first,
        end_ns=longest.end - first,
        track=events.track[longest.next_work],
    )


def _names(trace: Trace, rows: Rows) -> list[str | None]:
    return [trace.strings[int(trace.events.name[row])] if row >= 0 else None for row in rows.tolist()]


def _meanwhile(trace: Trace, start: int, end: int, call: int) -> tuple[int, int]:
    """Return the longest event of a call's thread in a gap, up to the call, and the outermost event around it.

    Both are rows of events, -1 for none. Steps do not count as outermost events.
    """
    if call < 0:
        return -1, -1
    events = trace.events
    track = trace.tracks[int(events.track[call])]
    end = min(end, int(events.ts[call]))
    ts = events.ts[track.first : track.first + track.count]
    first, last = (track.first + int(np.searchsorted(ts, at)) for at in (start, end))
    above = list(_upwards(trace, first - 1 if first > track.first else -1))
    rows = np.array([*above[::-1], *range(first, last)], np.int64)  # ascending
    if not len(rows):
        return -1, -1
    spent = np.maximum(np.minimum(events.end[rows], end) - np.maximum(events.ts[rows], start), 0)
    parent = events.parent[rows]
    place = np.searchsorted(rows, parent)
    inside = (parent >= 0) & (rows[np.minimum(place, len(rows) - 1)] == parent)
    self_ns = spent - np.bincount(place[inside], spent[inside], len(rows)).astype(np.int64)
    longest = int(self_ns.argmax())
    if self_ns[longest] <= 0:
        return -1, -1
    around = [row for row in _upwards(trace, int(rows[longest])) if events.category[row] != Category.STEP]
    return int(rows[longest]), around[-1] if len(around) > 1 else -1


def _upwards(trace: Trace, row: int) -> Iterator[int]:
    """Yield an event and all events around it."""
    while row >= 0:
        yield row
        row = int(trace.events.parent[row])


VIEW = View("idle", 45, needs, IdleParams, compute, make_charts)
