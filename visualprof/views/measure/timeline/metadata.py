"""Data that the web UI draws of a timeline in addition to its tiles.

These are tracks, counters and steps, and the details of an event.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Rows, Trace, TrackKind
from visualprof.views.answers.kinds import Bandwidth, Duration, Kind
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.answer_names import trace_short_names
from visualprof.views.measure.launches.launch import device_calls
from visualprof.views.measure.launches.launch_origin import OriginRole, launch_origin
from visualprof.views.measure.operators.stacks import CallStacks
from visualprof.views.measure.ranks.alignment import epoch_ns
from visualprof.views.measure.timeline.counter_tracks import counter_tracks
from visualprof.views.measure.timeline.tiles import TILE_BUCKETS, timeline_tracks, track_groups
from visualprof.views.measure.timeline.window import Direction, LinkName, linked_events, name_ids, self_ns

MAX_LAUNCHED = 12  # locations of device work in the details of an event

# Kinds of typed arguments (docs/trace-model.md); others are texts or counts.
ARGUMENT_KINDS: dict[str, Kind] = {
    "bytes": "bytes",
    "shared_memory": "bytes",
    "flops": "flo",
    "occupancy": "ratio",
    "wait_ns": "ns",
    "grid": "dims",
    "block": "dims",
    "external_id": "id",
    "operator_id": "id",
    "operator_index": "id",
    "sequence": "id",
}


class TimelineTrack(msgspec.Struct):
    """A track with events.

    Attributes:
        group_lane: First lane of the track among those of its group's tiles.
    """

    id: int
    kind: Literal["thread", "stream", "gpu_annotation", "graph"]
    name: str
    process: str
    pid: str
    tid: str
    device: int | None
    stream: int | None
    lanes: int
    events: int
    group: int
    group_lane: int


class TimelineCounter(msgspec.Struct):
    """A counter track."""

    id: int
    name: str
    process: str
    samples: int
    min: float
    max: float


class TimelineStep(msgspec.Struct):
    """A step on the timeline."""

    name: str
    start_ns: int
    duration_ns: int


class TimelineMeta(msgspec.Struct):
    """Tracks, counters and steps of a timeline.

    Attributes:
        epoch_ns: Unix ns of time 0, as text because it exceeds JavaScript's integers.
    """

    version: str
    duration_ns: int
    epoch_ns: str | None
    tile_buckets: int
    categories: list[str]
    strings: int
    tracks: list[TimelineTrack]
    counters: list[TimelineCounter]
    steps: list[TimelineStep]
    minimap: dict[str, list[float]]
    warnings: list[str]


class EventLocation(msgspec.Struct):
    """Location of an event on the timeline.

    Attributes:
        short_name: Short name of a kernel, unique in the trace; null for names that stay as they are.
    """

    event: int
    name: str
    short_name: str | None
    category: str
    track: int
    lane: int
    start_ns: int
    duration_ns: int


class Occurrence(msgspec.Struct):
    """One of the calls of a name.

    Attributes:
        place: Its location, null if there are fewer calls.
        calls: Number of calls.
    """

    place: EventLocation | None
    calls: int


class LinkedEvent(EventLocation):
    """An event that is linked with another one."""

    kind: LinkName
    direction: Direction


class EventOrigin(EventLocation):
    """An event that another event comes from."""

    role: OriginRole


class LaunchedWork(msgspec.Struct):
    """The device work that was launched during an event on the host.

    Attributes:
        count: Number of kernels, copies and fills.
        total_ns: Sum of their durations.
        longest: The longest ones.
    """

    count: int
    total_ns: Duration
    longest: list[EventLocation]


class TimelineEvent(EventLocation):
    """Everything about one event.

    Attributes:
        call_stack: Its call stack; for device work, the call stack of its operator.
        launched: The device work that was launched during the event; null for device work and without any.
        kinds: Kinds of the columns.
        arguments: Raw arguments from the file; null if the file was deleted.
        nth: Number of events of the same name and kind of track that begin before it in its step,
            or in the trace if it has no step.
        slack_ns: How much longer the event may take before the recording does; sent with the
            arguments, null if it is unknown.
    """

    self_ns: int
    step: str | None
    nth: int
    correlation: int | None
    columns: dict[str, Any]
    kinds: dict[str, Kind]
    bandwidth_bytes_per_s: Bandwidth | None
    call_stack: str | None
    parent: EventLocation | None
    launched: LaunchedWork | None
    origin: list[EventOrigin]
    links: list[LinkedEvent]
    arguments: Any = None
    slack_ns: Duration | None = None


def timeline_meta(
    trace: Trace, version: str, minimap: dict[str, list[float]], counters: list[TimelineCounter]
) -> TimelineMeta:
    """Return tracks, counters and steps of a timeline.

    Args:
        trace: The trace.
        version: Version of the file.
        minimap: Result of `busy_profile`.
        counters: Result of `timeline_counters`.
    """
    origin, end = trace.span_ns
    epoch = epoch_ns(trace)
    return TimelineMeta(
        version=version,
        duration_ns=end - origin,
        epoch_ns=None if epoch is None else str(epoch + origin),
        tile_buckets=TILE_BUCKETS,
        categories=[category.name.lower() for category in Category],
        strings=len(trace.strings),
        tracks=_tracks(trace),
        counters=counters,
        steps=[
            TimelineStep(trace.strings[int(name)], int(ts) - origin, int(dur))
            for name, ts, dur in zip(trace.steps.name, trace.steps.ts, trace.steps.dur, strict=True)
        ],
        minimap=minimap,
        warnings=list(trace.meta.warnings),
    )


def _tracks(trace: Trace) -> list[TimelineTrack]:
    """Return the tracks with events."""
    group_of = {track: (row, group) for row, group in enumerate(track_groups(trace)) for track in group}
    first_lane = trace.pyramid.lane_of_track
    tracks: list[TimelineTrack] = []
    for row in timeline_tracks(trace):
        track, (number, group) = trace.tracks[row], group_of[row]
        on_device = track.kind != TrackKind.THREAD
        tracks.append(
            TimelineTrack(
                id=row,
                kind=track.kind.name.lower(),  # pyright: ignore[reportArgumentType] - one of the four
                name=track.name,
                process=track.process,
                pid=track.pid,
                tid=track.tid,
                device=track.device if on_device else None,
                stream=track.stream if on_device else None,
                lanes=int(first_lane[row + 1] - first_lane[row]),
                events=track.count,
                group=number,
                group_lane=int(first_lane[row] - first_lane[group.start]),
            )
        )
    return tracks


def timeline_counters(trace: Trace) -> list[TimelineCounter]:
    """Return the counters of a timeline."""
    return [
        TimelineCounter(
            number,
            counter.name,
            counter.process,
            len(counter.ts),
            float(counter.value.min()),
            float(counter.value.max()),
        )
        for number, counter in counter_tracks(trace).items()
    ]


def event_location(trace: Trace, row: int) -> EventLocation:
    """Return the location of an event."""
    return EventLocation(**_location_fields(trace, row))


def _location_fields(trace: Trace, row: int) -> dict[str, Any]:
    """Return the fields of an event's location."""
    events = trace.events
    name: str = trace.strings[int(events.name[row])]
    return {
        "event": row,
        "name": name,
        "short_name": trace_short_names(trace).get(name),
        "category": Category(events.category[row]).name.lower(),
        "track": int(events.track[row]),
        "lane": int(events.depth[row]),
        "start_ns": int(events.ts[row]) - trace.span_ns[0],
        "duration_ns": int(max(0, events.dur[row])),
    }


def event_details(trace: Trace, row: int) -> TimelineEvent:
    """Return everything about one event except its raw arguments, which only the file has."""
    events, rows = trace.events, np.array([row], np.int32)
    columns = {
        name: _argument_value(trace, name, rows)
        for name, argument in trace.args.items()
        if len(argument.events)
        and argument.events[min(np.searchsorted(argument.events, rows)[0], len(argument.events) - 1)] == row
    }
    origin = launch_origin(trace, row)
    moved_bytes, duration, parent = columns.get("bytes"), int(max(0, events.dur[row])), int(events.parent[row])
    return TimelineEvent(
        **_location_fields(trace, row),
        self_ns=self_ns(trace, row),
        step=trace.strings[trace.steps.name[events.step[row]]] if events.step[row] >= 0 else None,
        nth=_nth(trace, row),
        correlation=int(events.corr[row]) or None,
        columns=columns,
        kinds={name: ARGUMENT_KINDS.get(name, "text" if trace.args[name].text else "count") for name in columns},
        bandwidth_bytes_per_s=moved_bytes / duration * 1e9
        if isinstance(moved_bytes, (int, float)) and duration
        else None,
        call_stack=_call_stack(trace, row, dict(origin).get("operator", -1)),
        parent=event_location(trace, parent) if parent >= 0 else None,
        launched=_launched_work(trace, row),
        origin=[EventOrigin(**_location_fields(trace, origin_row), role=role) for role, origin_row in origin],
        links=[
            LinkedEvent(**_location_fields(trace, linked_row), kind=kind, direction=direction)
            for linked_row, kind, direction in linked_events(trace, row)
        ],
    )


def _call_stack(trace: Trace, row: int, operator: int) -> str | None:
    """Return the call stack of an event, of the operator that launched it (-1 for none), or of its forward operator."""
    stacks = _call_stacks(trace)
    for source in (row, operator):
        if source >= 0 and (text := stacks.stack_text(int(stacks.source_ids(np.array([source], np.int32))[0]))):
            return text
    return None


def _launched_work(trace: Trace, row: int) -> LaunchedWork | None:
    """Return the device work that was launched by calls in an event of a thread."""
    events = trace.events
    if trace.tracks[int(events.track[row])].kind != TrackKind.THREAD:
        return None
    all_work, call, _ = device_calls(trace)
    is_inside = (call >= 0) & (events.track[call] == events.track[row])
    is_inside &= (events.ts[call] >= events.ts[row]) & (events.end[call] <= events.end[row])
    work = all_work[is_inside]
    if not len(work):
        return None
    durations = np.maximum(events.dur[work], 0)
    order = np.argsort(-durations, kind="stable")[:MAX_LAUNCHED]
    return LaunchedWork(len(work), int(durations.sum()), [event_location(trace, int(work[i])) for i in order])


def find_occurrence(trace: Trace, name: str, kind: TrackKind, step: str | None, nth: int) -> Occurrence:
    """Return the event of a name that has `nth` similar events before it.

    Events of the step count, or of the whole trace if `step` is `None`.
    """
    rows = _matching_events(trace, name_ids(trace, name), kind, _steps_named(trace, step))
    return Occurrence(event_location(trace, int(rows[nth])) if nth < len(rows) else None, len(rows))


def _nth(trace: Trace, row: int) -> int:
    """Return the position of an event among its `_matching_events`.

    It is counted, because a report needs hundreds of positions.
    """
    events, start_ns = trace.events, trace.events.ts[row]
    is_similar = (events.name == events.name[row]) & trace.track_mask(trace.tracks[int(events.track[row])].kind)
    if events.step[row] >= 0:
        is_similar &= events.step == events.step[row]
    is_similar[:row] &= events.ts[:row] <= start_ns
    is_similar[row:] &= events.ts[row:] < start_ns
    return int(np.count_nonzero(is_similar))


def _steps_named(trace: Trace, name: str | None) -> list[int] | None:
    """Return the indices of the steps with a name, `None` without a name."""
    return None if name is None else np.flatnonzero(np.isin(trace.steps.name, name_ids(trace, name))).tolist()


def _matching_events(trace: Trace, names: list[int], kind: TrackKind, steps: list[int] | None) -> Rows:
    """Return the events with some names on tracks of a kind, in some steps or anywhere, by start."""
    events = trace.events
    rows = np.flatnonzero(np.isin(events.name, names) & trace.track_mask(kind))
    rows = rows if steps is None else rows[np.isin(events.step[rows], steps)]
    return rows[np.argsort(events.ts[rows], kind="stable")].astype(np.int32)


@cached_on_trace
def _call_stacks(trace: Trace) -> CallStacks:
    """Return the call stacks of the trace, cached for all events that are shown."""
    return CallStacks(trace)


def _argument_value(trace: Trace, name: str, rows: Rows) -> object:
    """Return the value of an event's argument."""
    value = trace.arg(name, rows)[0].item()
    return trace.strings[int(value)] if trace.args[name].text else value
