"""Requests and answers of the timeline's routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from visualprof.server.api.table_rows import Order, Sort
from visualprof.server.routes import Query, SpanQuery, StepRange
from visualprof.views.answers.table import Table
from visualprof.views.measure.timeline.metadata import EventLocation
from visualprof.views.measure.timeline.window import DeviceUse, WindowColumns

MAX_LEVEL = 62
TimeNs = Annotated[int, Meta(ge=-(2**53), le=2**53, description="ns since the first event")]


class MetaQuery(SpanQuery):
    """A span, and whether the minimap and the counters are included. Both need passes over all events."""

    minimap: Annotated[str, Meta(description="0: omit the utilization profile of the whole trace")] = ""
    counters: Annotated[str, Meta(description="0: omit the counters")] = ""


class StringsQuery(SpanQuery):
    """A part of the dictionary."""

    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0
    limit: Annotated[int, Meta(ge=1, le=65_536)] = 4096


class TileQuery(SpanQuery, kw_only=True):
    """A tile of a group of tracks. `v` makes the answer immutable."""

    v: Annotated[str, Meta(description="version from the `meta` answer; makes the answer immutable")] = ""
    group: Annotated[int, Meta(ge=0, description="number of a group of tracks")] = 0
    level: Annotated[int, Meta(ge=0, le=MAX_LEVEL, description="buckets of 2**level ns")]
    index: Annotated[int, Meta(ge=0, le=2**40, description="number of the tile, counted from time 0")]


class PathQuery(SpanQuery, kw_only=True):
    """A tile of the critical path."""

    v: Annotated[str, Meta(description="version from the `meta` answer; makes the answer immutable")] = ""
    level: Annotated[int, Meta(ge=0, le=MAX_LEVEL, description="buckets of 2**level ns")]
    index: Annotated[int, Meta(ge=0, le=2**40, description="number of the tile, counted from time 0")]


class CounterQuery(TileQuery, kw_only=True):
    """A tile of a counter."""

    track: Annotated[int, Meta(ge=0, description="track of a counter")]


class EventQuery(SpanQuery, kw_only=True):
    """One event."""

    event: Annotated[int, Meta(ge=0, description="row of an event")]
    arguments: Annotated[str, Meta(description="0: omit the raw arguments, which have to be read from the file")] = ""


class SearchQuery(SpanQuery, kw_only=True):
    """A search for events by name."""

    text: Annotated[str, Meta(description="part of a name")]
    exact: Annotated[bool, Meta(description="match whole names only")] = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 2000


class LongestQuery(SpanQuery, kw_only=True):
    """The name of an event."""

    name: str
    where: Annotated[Literal["host", "device", ""], Meta(description="side of the event; both sides when absent")] = ""


class OccurrenceQuery(SpanQuery, kw_only=True):
    """The nth occurrence of an event name."""

    name: str
    kind: Annotated[Literal["thread", "stream", "gpu_annotation", "graph"], Meta(description="kind of the track")]
    step: Annotated[str, Meta(description="name of a step; the whole trace when absent")] = ""
    nth: Annotated[int, Meta(ge=0, description="number of occurrences that start earlier")] = 0


class WindowQuery(SpanQuery):
    """A time window on some tracks."""

    start_ns: TimeNs = 0
    end_ns: TimeNs | None = None
    tracks: Annotated[str, Meta(description="ids, comma-separated; all when absent")] = ""


class WindowTableQuery(WindowQuery):
    """A time window on some tracks, with the order of the table."""

    sort: Sort = ""
    order: Order = "desc"
    limit: Annotated[int, Meta(ge=1, le=10_000, description="default 200; all rows in csv and tsv")] | None = None
    format: Literal["json", "csv", "tsv"] = "json"


class AlignmentQuery(Query):
    """Workers of a run. The clocks are compared with that of the first named worker."""

    run: str
    span: str = ""
    workers: Annotated[str, Meta(description="ids, comma-separated; all when absent")] = ""
    step: Annotated[str, Meta(description="step with the collectives to compare; all steps when absent")] = ""
    step_range: StepRange = ""


class TimelineStrings(msgspec.Struct):
    """A part of the dictionary.

    Attributes:
        strings: The part.
        total: Length of the dictionary.
        short_names: Short names of the kernels in the part, by full name.
    """

    strings: list[str]
    total: int
    short_names: dict[str, str]


class TimelineHits(msgspec.Struct):
    """The events that match a search.

    Attributes:
        total: Number of matching events.
        events: The first matching events.
        ticks: Numbers of matching events in 512 equal intervals of the trace.
    """

    total: int
    events: list[EventLocation]
    ticks: list[int]


class TimelineWindow(Table[WindowColumns]):
    """The events in a time window."""

    utilization: list[DeviceUse]
    start_ns: int
    end_ns: int


class Alignment(msgspec.Struct):
    """Clock offset of a worker to the first worker."""

    worker: str
    clock_offset_ns: int | None
    collective_residual_ns: int | None
    collectives: int


class AlignmentAnswer(msgspec.Struct):
    """Clock offsets of the workers of a run."""

    workers: list[Alignment]
