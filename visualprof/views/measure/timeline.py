"""What a page draws of a timeline beside its tiles: tracks, counters and steps, and everything about one event."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Rows, Trace, TrackKind
from visualprof.views.answers.kinds import Bandwidth, Duration, Kind
from visualprof.views.measure.alignment import epoch_ns
from visualprof.views.measure.counter_tracks import counter_tracks
from visualprof.views.measure.launch_origin import OriginRole, launch_origin
from visualprof.views.measure.stacks import CallStacks
from visualprof.views.measure.tiles import TILE_BUCKETS, timeline_tracks, track_groups
from visualprof.views.measure.trace_cache import cached_on_trace
from visualprof.views.measure.window import Direction, LinkName, linked_events, name_ids, self_ns

# What typed arguments hold (docs/trace-model.md); others are texts or counts.
ARGUMENT_KINDS: dict[str, Kind] = {
    "bytes": "bytes", "shared_memory": "bytes", "flops": "flo", "occupancy": "ratio", "wait_ns": "ns", "grid": "dims",
    "block": "dims", "external_id": "id", "operator_id": "id", "operator_index": "id", "sequence": "id",
}  # fmt: skip


class TimelineTrack(msgspec.Struct):
    """A track with events; group_lane: its first lane among those of its group's tiles."""

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
    """What is on the timeline. epoch_ns: Unix ns of time 0 as text, beyond the whole numbers of JavaScript."""

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
    """Where an event stands on the timeline."""

    event: int
    name: str
    category: str
    track: int
    lane: int
    start_ns: int
    duration_ns: int


class Occurrence(msgspec.Struct):
    """One of the calls of a name: its place, null where there are fewer. calls: how many there are."""

    place: EventLocation | None
    calls: int


class LinkedEvent(EventLocation):
    """An event linked with another."""

    kind: LinkName
    direction: Direction


class EventOrigin(EventLocation):
    """What an event comes from."""

    role: OriginRole


class TimelineEvent(EventLocation):
    """Everything about one event. kinds: of its columns. arguments: raw, from the file; null when it is gone.

    nth: how many of its name and kind of track begin before it in its step, or in the trace where it has none.
    slack_ns: by how much it may take longer before the recording does; with the arguments, None where it is not known.
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
    origin: list[EventOrigin]
    links: list[LinkedEvent]
    arguments: Any = None
    slack_ns: Duration | None = None


def timeline_meta(trace: Trace, version: str, minimap: dict[str, list[float]]) -> TimelineMeta:
    """What is on the timeline. version: of the file. minimap: from `busy_profile`."""
    origin, until = trace.span_ns
    epoch = epoch_ns(trace)
    return TimelineMeta(
        version=version,
        duration_ns=until - origin,
        epoch_ns=None if epoch is None else str(epoch + origin),
        tile_buckets=TILE_BUCKETS,
        categories=[c.name.lower() for c in Category],
        strings=len(trace.strings),
        tracks=_tracks(trace),
        counters=_counters(trace),
        steps=[
            TimelineStep(trace.strings[int(n)], int(ts) - origin, int(dur))
            for n, ts, dur in zip(trace.steps.name, trace.steps.ts, trace.steps.dur, strict=True)
        ],
        minimap=minimap,
        warnings=list(trace.meta.warnings),
    )


def _tracks(trace: Trace) -> list[TimelineTrack]:
    group_of = {track: (i, group) for i, group in enumerate(track_groups(trace)) for track in group}
    first_lane = trace.pyramid.lane_of_track
    tracks: list[TimelineTrack] = []
    for i in timeline_tracks(trace):
        track, (number, group) = trace.tracks[i], group_of[i]
        on_device = track.kind != TrackKind.THREAD
        tracks.append(
            TimelineTrack(
                id=i,
                kind=track.kind.name.lower(),  # pyright: ignore[reportArgumentType] - one of the four
                name=track.name,
                process=track.process,
                pid=track.pid,
                tid=track.tid,
                device=track.device if on_device else None,
                stream=track.stream if on_device else None,
                lanes=int(first_lane[i + 1] - first_lane[i]),
                events=track.count,
                group=number,
                group_lane=int(first_lane[i] - first_lane[group.start]),
            )
        )
    return tracks


def _counters(trace: Trace) -> list[TimelineCounter]:
    return [
        TimelineCounter(i, one.name, one.process, len(one.ts), float(one.value.min()), float(one.value.max()))
        for i, one in counter_tracks(trace).items()
    ]


def event_location(trace: Trace, row: int) -> EventLocation:
    """Where an event stands."""
    return EventLocation(**_place(trace, row))


def _place(trace: Trace, row: int) -> dict[str, Any]:
    events = trace.events
    return {
        "event": row,
        "name": trace.strings[events.name[row]],
        "category": Category(events.category[row]).name.lower(),
        "track": int(events.track[row]),
        "lane": int(events.depth[row]),
        "start_ns": int(events.ts[row]) - trace.span_ns[0],
        "duration_ns": int(max(0, events.dur[row])),
    }


def event_details(trace: Trace, row: int) -> TimelineEvent:
    """Everything about one event but its raw arguments, which only the file has."""
    events, rows = trace.events, np.array([row], np.int32)
    columns = {
        name: _argument(trace, name, rows)
        for name, argument in trace.args.items()
        if len(argument.events)
        and argument.events[min(np.searchsorted(argument.events, rows)[0], len(argument.events) - 1)] == row
    }
    stacks = _stacks(trace)
    moved, duration, parent = columns.get("bytes"), int(max(0, events.dur[row])), int(events.parent[row])
    return TimelineEvent(
        **_place(trace, row),
        self_ns=self_ns(trace, row),
        step=trace.strings[trace.steps.name[events.step[row]]] if events.step[row] >= 0 else None,
        nth=_nth(trace, row),
        correlation=int(events.corr[row]) or None,
        columns=columns,
        kinds={name: ARGUMENT_KINDS.get(name, "text" if trace.args[name].text else "count") for name in columns},
        bandwidth_bytes_per_s=moved / duration * 1e9 if isinstance(moved, (int, float)) and duration else None,
        call_stack=stacks.stack_text(int(stacks.stack_ids(rows)[0])) or None,
        parent=event_location(trace, parent) if parent >= 0 else None,
        origin=[EventOrigin(**_place(trace, other), role=role) for role, other in launch_origin(trace, row)],
        links=[
            LinkedEvent(**_place(trace, other), kind=kind, direction=direction)
            for other, kind, direction in linked_events(trace, row)
        ],
    )


def find_occurrence(trace: Trace, name: str, kind: TrackKind, step: str | None, nth: int) -> Occurrence:
    """The event of that name that has `nth` of its kind before it in the step, or in the trace where `step` is None."""
    rows = _alike(trace, name_ids(trace, name), kind, _steps_called(trace, step))
    return Occurrence(event_location(trace, int(rows[nth])) if nth < len(rows) else None, len(rows))


def _nth(trace: Trace, row: int) -> int:
    """The place of an event in what `_alike` has of its name, kind and step: counted, for a report asks of hundreds."""
    events, begin = trace.events, trace.events.ts[row]
    alike = (events.name == events.name[row]) & trace.track_mask(trace.tracks[int(events.track[row])].kind)
    if events.step[row] >= 0:
        alike &= events.step == events.step[row]
    alike[:row] &= events.ts[:row] <= begin
    alike[row:] &= events.ts[row:] < begin
    return int(np.count_nonzero(alike))


def _steps_called(trace: Trace, name: str | None) -> list[int] | None:
    return None if name is None else np.flatnonzero(np.isin(trace.steps.name, name_ids(trace, name))).tolist()


def _alike(trace: Trace, names: list[int], kind: TrackKind, steps: list[int] | None) -> Rows:
    """Rows of names on tracks of a kind, in some steps or anywhere, in the order in which they begin."""
    events = trace.events
    rows = np.flatnonzero(np.isin(events.name, names) & trace.track_mask(kind))
    rows = rows if steps is None else rows[np.isin(events.step[rows], steps)]
    return rows[np.argsort(events.ts[rows], kind="stable")].astype(np.int32)


@cached_on_trace
def _stacks(trace: Trace) -> CallStacks:
    """Made once for all events that are looked at."""
    return CallStacks(trace)


def _argument(trace: Trace, name: str, rows: Rows) -> object:
    value = trace.arg(name, rows)[0].item()
    return trace.strings[int(value)] if trace.args[name].text else value
