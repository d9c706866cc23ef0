"""The timeline of a span: tracks and events as JSON, and drawable contents as small binary tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from urllib.parse import quote

import numpy as np
from flask import Response

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.listing import Span
from visualprof.reader.trace import Trace, TrackKind
from visualprof.server.api.chrome_export import chrome_json, read_arguments
from visualprof.server.api.spans import check_range, worker_spans
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.api.table_rows import sort_order
from visualprof.server.api.timeline_schema import (
    Alignment,
    AlignmentAnswer,
    AlignmentQuery,
    CounterQuery,
    EventQuery,
    LongestQuery,
    MetaQuery,
    OccurrenceQuery,
    PathQuery,
    SearchQuery,
    StringsQuery,
    TileQuery,
    TimelineHits,
    TimelineStrings,
    TimelineWindow,
    WindowQuery,
    WindowTableQuery,
)
from visualprof.server.api.trace_requests import Work, compute_from_trace, load_or_compute_parts
from visualprof.server.responses import TSV_TYPE, bytes_response, csv_response
from visualprof.server.routes import SPAN_ERRORS, Resource, SpanQuery, get
from visualprof.server.services import Services
from visualprof.views import run_view
from visualprof.views.answers.table import Selection, select_rows
from visualprof.views.measure.launches.answer_names import add_short_names, trace_short_names
from visualprof.views.measure.ranks.alignment import ClockOffset, clock_offsets
from visualprof.views.measure.ranks.call_matching import match_calls
from visualprof.views.measure.ranks.rank_summary import RankSummary
from visualprof.views.measure.replay.path_pieces import path_pieces, slack_ns
from visualprof.views.measure.timeline.counter_tracks import counter_tracks
from visualprof.views.measure.timeline.metadata import (
    EventLocation,
    Occurrence,
    TimelineEvent,
    TimelineMeta,
    event_details,
    event_location,
    find_occurrence,
    timeline_counters,
    timeline_meta,
)
from visualprof.views.measure.timeline.tiles import (
    counter_bytes,
    path_tile_bytes,
    tile_bytes,
    timeline_tracks,
    track_groups,
)
from visualprof.views.measure.timeline.window import (
    busy_profile,
    longest_event_named,
    search_events,
    window_table,
    window_utilization,
)

T = TypeVar("T")
BINARY_TYPE = ("application/octet-stream",)


class Timeline(Resource):
    """The routes for the timeline."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._traces = services.get(SteppedTraces)

    def _find_span(self, query: SpanQuery) -> Span:
        return self._visible.listing().find(query.run, query.worker, query.span)

    def _load_span(self, query: SpanQuery) -> tuple[Span, Trace]:
        span = self._find_span(query)
        return span, self._traces.load(span, query.step_range)

    def _compute(self, query: SpanQuery, function: Callable[..., T], *arguments: Any, work: Work = "pass") -> T:
        return compute_from_trace(
            self._traces,
            self._find_span(query),
            "timeline",
            function,
            *arguments,
            step_range=query.step_range,
            work=work,
        )

    @get("/timeline/meta", errors=SPAN_ERRORS, needs="link")
    def meta(self, query: MetaQuery) -> TimelineMeta:
        """Return the tracks and the properties of the timeline."""
        version = quote(self._traces.version(self._find_span(query), query.step_range), safe="")
        return self._compute(query, compute_meta, version, query.minimap != "0", query.counters != "0")

    @get("/timeline/tile", media=BINARY_TYPE, errors=SPAN_ERRORS, needs="link")
    def tile(self, query: TileQuery) -> Response:
        """Return a tile of a group of tracks."""
        return _tile_response(self._compute(query, compute_tile, query.group, query.level, query.index), query)

    @get("/timeline/counter", media=BINARY_TYPE, errors=SPAN_ERRORS, needs="link")
    def counter(self, query: CounterQuery) -> Response:
        """Return a tile of a counter."""
        trace = self._load_span(query)[1]
        counter = counter_tracks(trace).get(query.track)
        if counter is None:
            raise BadParameter(
                msg("server.track_no_counter_trace", f"track={query.track} is not a counter of this trace")
            )
        return _tile_response(counter_bytes(trace.span_ns[0], counter, query.level, query.index), query)

    @get("/timeline/path", media=BINARY_TYPE, errors=SPAN_ERRORS, needs="link")
    def path(self, query: PathQuery) -> Response:
        """Return a tile of the critical path. Its lanes are tracks."""
        body = self._compute(query, compute_path_tile, query.level, query.index, work="view")
        return _tile_response(body, query)

    @get("/timeline/strings", errors=SPAN_ERRORS, needs="link")
    def strings(self, query: StringsQuery) -> TimelineStrings:
        """Return a part of the dictionary. Tiles refer to its indices."""
        trace = self._load_span(query)[1]
        part = list(trace.strings[query.offset : query.offset + query.limit])
        short = trace_short_names(trace)
        return TimelineStrings(part, len(trace.strings), {name: short[name] for name in part if name in short})

    @get("/timeline/event", errors=SPAN_ERRORS, needs="link")
    def event(self, query: EventQuery) -> TimelineEvent:
        """Return the details of an event."""
        span, trace = self._load_span(query)
        row = check_range("event", query.event, len(trace.events) - 1)
        event = self._compute(query, event_details, row)
        if query.arguments != "0":  # reading them from the file takes longest
            self._logdir.ensure_local(span.log_file.path)
            event.arguments = read_arguments(span.log_file.path, int(trace.events.row[row]))
            event.slack_ns = self._compute(query, slack_ns, row, work="view")
        return event

    @get("/timeline/search", errors=SPAN_ERRORS, needs="link")
    def search(self, query: SearchQuery) -> TimelineHits:
        """Search for events by name."""
        trace = self._load_span(query)[1]
        hits = search_events(trace, query.text, query.exact)
        rows: list[int] = hits.rows[: query.limit].tolist()
        return TimelineHits(hits.total, [event_location(trace, row) for row in rows], hits.ticks.tolist())

    @get("/timeline/longest", errors=SPAN_ERRORS, needs="link")
    def longest(self, query: LongestQuery) -> EventLocation:
        """Return the longest event of a name."""
        trace = self._load_span(query)[1]
        row = longest_event_named(trace, query.name, query.where == "device" if query.where else None)
        if row < 0:
            raise NotFound(
                msg("server.there_no_event_called", f"there is no event called {query.name!r} in this trace"),
                msg("server.search_part_name", "search for a part of its name"),
            )
        return event_location(trace, row)

    @get("/timeline/occurrence", errors=SPAN_ERRORS, needs="link")
    def occurrence(self, query: OccurrenceQuery) -> Occurrence:
        """Return the same event in another trace: same name and same position in the step."""
        trace = self._load_span(query)[1]
        return find_occurrence(trace, query.name, TrackKind[query.kind.upper()], query.step or None, query.nth)

    @get("/timeline/window", media=("application/json", "text/csv", TSV_TYPE), errors=SPAN_ERRORS, needs="link")
    def window(self, query: WindowTableQuery) -> TimelineWindow | Response:
        """Return the events in a time window."""
        answer = self._compute(query, compute_window, query)
        limit = 200 if query.limit is None and query.format == "json" else query.limit
        table = select_rows(answer, Selection(sort=sort_order(query.sort, query.order), limit=limit))
        if query.format == "tsv":
            return bytes_response(table.to_csv("\t").encode("utf-8", "replace"), TSV_TYPE)
        return csv_response(table.to_csv(), "area") if query.format == "csv" else table

    @get("/timeline/export", errors=SPAN_ERRORS, needs="link")
    def export(self, query: WindowQuery) -> Response:
        """Export a time window as Chrome JSON."""
        span, trace = self._load_span(query)
        self._logdir.ensure_local(span.log_file.path)
        response = bytes_response(chrome_json(trace, *_window(trace, query), span.log_file.path), "application/json")
        response.headers["Content-Disposition"] = 'attachment; filename="window.trace.json"'
        return response

    @get("/timeline/alignment", errors=SPAN_ERRORS, needs="link")
    def alignment(self, query: AlignmentQuery) -> AlignmentAnswer:
        """Return the clock offsets of the workers of a run."""
        listing = self._visible.listing()
        names = [name for name in query.workers.split(",") if name]
        spans = worker_spans(self._logdir, listing, query.run, query.span, names)
        workers, distributed = [span for _, span in spans], run_view("distributed")
        parts = cast(
            "list[RankSummary]",
            load_or_compute_parts(self._traces, distributed, workers, step_range=query.step_range),
        )
        calls = match_calls([part.collectives for part in parts])
        in_step = np.concatenate([part.is_in_step(query.step) for part in parts]) if query.step else None
        clocks = [part.clock for part in parts]
        offsets = clock_offsets(clocks, calls, in_step)
        delays_ns = [clock.first_ns - clocks[0].first_ns for clock in clocks]
        rows = zip(spans, offsets, delays_ns, strict=True)
        return AlignmentAnswer([_alignment_row(name, offset, ns) for (name, _), offset, ns in rows])


def compute_meta(trace: Trace, version: str, with_minimap: bool, with_counters: bool) -> TimelineMeta:
    """Return the tracks and the properties of the timeline.

    The minimap and the counters read all events. The web UI first draws the timeline without them.
    """
    profile = busy_profile(trace) if with_minimap else {}
    minimap = {name: np.round(share, 4).tolist() for name, share in profile.items()}
    return timeline_meta(trace, version, minimap, timeline_counters(trace) if with_counters else [])


def compute_tile(trace: Trace, group: int, level: int, index: int) -> bytes:
    """Return a tile of a group of tracks."""
    groups = track_groups(trace)
    return tile_bytes(trace, groups[check_range("group", group, len(groups) - 1)], level, index)


def compute_path_tile(trace: Trace, level: int, index: int) -> bytes:
    """Return a tile of the critical path."""
    return path_tile_bytes(trace, path_pieces(trace), level, index)


def compute_window(trace: Trace, query: WindowQuery) -> TimelineWindow:
    """Return all events in a time window."""
    low, high, tracks = _window(trace, query)
    answer = TimelineWindow(
        columns=window_table(trace, low, high, tracks),
        utilization=window_utilization(trace, low, high),
        start_ns=low - trace.span_ns[0],
        end_ns=high - trace.span_ns[0],
    )
    add_short_names(answer, trace)
    return answer


def _tile_response(body: bytes, query: TileQuery | PathQuery) -> Response:
    """Return the response of a tile. It is immutable if the URL contains the file's version."""
    response = bytes_response(body, "application/octet-stream")
    if query.v:
        response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
    return response


def _alignment_row(worker: str, offset: ClockOffset, later_ns: int) -> Alignment:
    """Return a worker's offset for times that count from the worker's first event.

    That event is `later_ns` after the first worker's first event. Without clocks, the web UI aligns the starts of all
    traces, and the residual is the remaining difference.
    """
    clock, residual = offset.clock_ns, offset.residual_ns
    return Alignment(
        worker,
        None if clock is None else clock + later_ns,
        None if residual is None else residual - (0 if clock is not None else later_ns),
        offset.collective_count,
    )


def _window(trace: Trace, query: WindowQuery) -> tuple[int, int, list[int]]:
    """Return the requested window in the trace's own time, and its tracks (default: all)."""
    origin, end = trace.span_ns
    low, high = query.start_ns + origin, end if query.end_ns is None else query.end_ns + origin
    if high <= low:
        raise BadParameter(
            msg("server.window_ends_before_starts", "the window ends before it starts"),
            msg("server.start_ns_must_below", "start_ns must be below end_ns"),
        )
    if not query.tracks:
        return low, high, timeline_tracks(trace)
    last = len(trace.tracks) - 1
    return low, high, [check_range("tracks", int(t) if t.isdecimal() else -1, last) for t in query.tracks.split(",")]
