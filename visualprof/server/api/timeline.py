"""The timeline of a span: what is on it as JSON, its contents as small binary tiles."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from flask import Blueprint, Response, request
from numpy.typing import NDArray

from visualprof.errors import BadParameter, NotFound, SourceError
from visualprof.reader.chrome.raw import raw_events
from visualprof.reader.chrome.values import json_object
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Span
from visualprof.reader.trace import Category, Ints, Trace, TrackKind
from visualprof.server.answers import answer, raw
from visualprof.server.api.spans import columns_of, number, required, whole_run
from visualprof.views.measure.alignment import Offset, epoch_ns, offsets
from visualprof.views.measure.stacks import Stacks
from visualprof.views.measure.tiles import TILE_BUCKETS, counter_buckets, groups_of_tracks, on_timeline, tile
from visualprof.views.measure.window import (
    busy_profile,
    linked,
    longest_of,
    longest_of_category,
    rows_in,
    search,
    self_ns,
    window_table,
    window_utilization,
)
from visualprof.views.table import Query, page

MAX_LEVEL = 62
TILE_MAGIC, COUNTER_MAGIC = 0x31545056, 0x31435056  # "VPT1", "VPC1"
MAX_EXPORT = 200_000
Json = dict[str, Any]
Chosen = Callable[[], tuple[Span, Trace]]  # what the request names


def blueprint(logdir: LogDirectory) -> Blueprint:
    """The routes over one log directory."""
    routes = Blueprint("timeline", __name__, url_prefix="/api/v1/timeline")

    def chosen() -> tuple[Span, Trace]:
        span = logdir.listing().find(required("run"), request.args.get("worker", ""), request.args.get("span", ""))
        return span, columns_of(logdir, span)

    _add_tiles(routes, chosen)
    _add_events(routes, chosen)
    _add_windows(routes, chosen)

    @routes.get("/alignment")
    def alignment() -> Response:
        traces = [(name, trace) for name, _, trace in whole_run(logdir, required("run"), request.args.get("span", ""))]
        found = offsets([t for _, t in traces])
        first = traces[0][1].span_ns[0]
        pairs = zip(traces, found, strict=True)
        return answer({"workers": [_offset(name, o, trace.span_ns[0] - first) for (name, trace), o in pairs]})

    return routes


def _add_tiles(routes: Blueprint, chosen: Chosen) -> None:
    """What the timeline is drawn from."""

    @routes.get("/meta")
    def meta() -> Response:
        span, trace = chosen()
        # The profile goes over all events; a page draws without it first.
        profile = {} if request.args.get("minimap") == "0" else busy_profile(trace)
        return answer(_meta(trace, span.summary.fingerprint if span.summary else "", profile))

    @routes.get("/tile")
    def one_tile() -> Response:
        trace = chosen()[1]
        groups = groups_of_tracks(trace)
        group = number("group", request.args.get("group", "0"), 0, len(groups) - 1)
        level, index = _place()
        return _immutable(tile_bytes(trace, groups[group], level, index))

    @routes.get("/counter")
    def counter() -> Response:
        trace = chosen()[1]
        track = number("track", request.args.get("track", ""), 0, len(trace.tracks) - 1)
        level, index = _place()
        return _immutable(counter_bytes(trace, track, level, index))

    @routes.get("/strings")
    def strings() -> Response:
        trace = chosen()[1]
        offset = number("offset", request.args.get("offset", "0"), 0, 2**31)
        limit = number("limit", request.args.get("limit", "4096"), 1, 65_536)
        return answer({"strings": list(trace.strings[offset : offset + limit]), "total": len(trace.strings)})


def _add_events(routes: Blueprint, chosen: Chosen) -> None:
    """Single events: one, those of a name, the longest."""

    @routes.get("/event")
    def event() -> Response:
        span, trace = chosen()
        row = number("event", request.args.get("event", ""), 0, len(trace.events) - 1)
        # The raw arguments stand in the file itself, which takes longer than all the rest.
        return answer(_details(trace, row, None if request.args.get("arguments") == "0" else span.found.path))

    @routes.get("/search")
    def find() -> Response:
        trace = chosen()[1]
        hits = search(trace, required("text"), request.args.get("exact") == "1")
        limit = number("limit", request.args.get("limit", "2000"), 1, 10_000)
        return answer(
            {
                "total": hits.total,
                "events": [_place_of(trace, int(r)) for r in hits.rows[:limit]],
                "ticks": hits.ticks.tolist(),
            }
        )

    @routes.get("/longest")
    def longest() -> Response:
        trace = chosen()[1]
        where = _where(request.args.get("where", ""))
        category = request.args.get("category", "")
        if category:
            row, what = longest_of_category(trace, _category(category)), f"of category {category!r}"
        else:
            name = required("name")
            row, what = longest_of(trace, name, where), f"called {name!r}"
        if row < 0:
            raise NotFound(f"there is no event {what} in this trace", "search for a part of its name")
        return answer(_place_of(trace, row))


def _add_windows(routes: Blueprint, chosen: Chosen) -> None:
    """What ran in a window of time."""

    @routes.get("/window")
    def window() -> Response:
        trace = chosen()[1]
        low, high, tracks = _window(trace)
        table = window_table(trace, low, high, tracks)
        limit = number("limit", request.args.get("limit", "200"), 1, 10_000)
        ascending = request.args.get("order", "desc") == "asc"
        body = page(table, Query(sort=request.args.get("sort", ""), descending=not ascending, limit=limit)).to_json()
        body["utilization"] = window_utilization(trace, low, high)
        body["start_ns"], body["end_ns"] = low - trace.span_ns[0], high - trace.span_ns[0]
        return answer(body)

    @routes.get("/export")
    def export() -> Response:
        span, trace = chosen()
        low, high, tracks = _window(trace)
        response = raw(_chrome_json(trace, low, high, tracks, span.found.path), "application/json")
        response.headers["Content-Disposition"] = 'attachment; filename="window.trace.json"'
        return response


def tile_bytes(trace: Trace, tracks: range, level: int, index: int) -> bytes:
    """A tile for the page, little-endian.

    u32 magic, u32 n, then columns of n: f32 start, f32 end (buckets from the tile's start, clipped to -1 .. 257),
    u32 event, u32 name, u32 count, u16 lane (of the group), u8 category; each column at a multiple of 4 bytes.
    """
    found = tile(trace, tracks, level, index)
    low = index * TILE_BUCKETS << level
    width = float(1 << level)
    start = np.clip((found.start - low) / width, -1, TILE_BUCKETS + 1).astype("<f4")
    end = np.clip((found.end - low) / width, -1, TILE_BUCKETS + 1).astype("<f4")
    lane = found.lane - int(trace.pyramid.lane_of_track[tracks.start])
    columns = (
        start,
        end,
        found.longest.astype("<u4"),
        trace.events.name[found.longest].astype("<u4"),
        found.count.astype("<u4"),
        lane.astype("<u2"),
        trace.events.category[found.longest].astype("u1"),
    )
    return struct.pack("<II", TILE_MAGIC, len(start)) + b"".join(_padded(c.tobytes()) for c in columns)


def counter_bytes(trace: Trace, track: int, level: int, index: int) -> bytes:
    """A tile of a counter, little-endian.

    u32 magic, u32 n, f32 value before the tile (NaN: none), u32 0, then columns of n: f32 bucket, f32 smallest,
    f32 largest, f32 last value.
    """
    counters = trace.counters
    first, last = np.searchsorted(counters.track, [track, track + 1])
    times = counters.ts[first:last]
    low = trace.span_ns[0] + (index * TILE_BUCKETS << level)
    a, b = np.searchsorted(times, [low, low + (TILE_BUCKETS << level)])
    bucket, values = counter_buckets(times[a:b], counters.value[first + a : first + b], low, level)
    before = float(counters.value[first + a - 1]) if a > 0 else float("nan")
    columns = [bucket.astype("<f4"), *(values[:, i].astype("<f4") for i in range(3))]
    return struct.pack("<IIfI", COUNTER_MAGIC, len(bucket), before, 0) + b"".join(c.tobytes() for c in columns)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _immutable(body: bytes) -> Response:
    """A tile: its address holds the file's version, so it never changes."""
    response = raw(body, "application/octet-stream")
    if request.args.get("v"):
        response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
    return response


def _place() -> tuple[int, int]:
    level = number("level", request.args.get("level", ""), 0, MAX_LEVEL)
    return level, number("index", request.args.get("index", ""), 0, 2**40)


def _offset(worker: str, found: Offset, later_ns: int) -> Json:
    """For times that count from a trace's first event, which is `later_ns` after the first trace's own.

    Without clocks the page lets all traces begin together, and the residual tells what that leaves.
    """
    known = found.clock_ns is not None
    return {
        "worker": worker,
        "clock_offset_ns": found.clock_ns + later_ns if found.clock_ns is not None else None,
        "collective_residual_ns": found.residual_ns - (0 if known else later_ns)
        if found.residual_ns is not None
        else None,
        "collectives": found.collectives,
    }


def _meta(trace: Trace, version: str, profile: dict[str, NDArray[np.float64]]) -> Json:
    origin, until = trace.span_ns
    epoch = epoch_ns(trace)
    return {
        "version": version,
        "duration_ns": until - origin,
        "epoch_ns": None if epoch is None else str(epoch + origin),  # text: beyond the whole numbers of JavaScript
        "tile_buckets": TILE_BUCKETS,
        "categories": [c.name.lower() for c in Category],
        "strings": len(trace.strings),
        "tracks": _tracks(trace),
        "counters": _counters(trace),
        "steps": [
            {"name": trace.strings[n], "start_ns": int(ts) - origin, "duration_ns": int(dur)}
            for n, ts, dur in zip(trace.steps.name, trace.steps.ts, trace.steps.dur, strict=True)
        ],
        "minimap": {name: np.round(share, 4).tolist() for name, share in profile.items()},
        "warnings": list(trace.meta.warnings),
    }


def _tracks(trace: Trace) -> list[Json]:
    """The tracks with events; `group_lane` is a track's first lane among those of its group."""
    group_of = {track: (i, group) for i, group in enumerate(groups_of_tracks(trace)) for track in group}
    first_lane = trace.pyramid.lane_of_track
    out: list[Json] = []
    for i in on_timeline(trace):
        track, (number_of_group, group) = trace.tracks[i], group_of[i]
        on_device = track.kind != TrackKind.THREAD
        out.append(
            {
                "id": i,
                "kind": track.kind.name.lower(),
                "name": track.name,
                "process": track.process,
                "pid": track.pid,
                "tid": track.tid,
                "device": track.device if on_device else None,
                "stream": track.stream if on_device else None,
                "lanes": int(first_lane[i + 1] - first_lane[i]),
                "events": track.count,
                "group": number_of_group,
                "group_lane": int(first_lane[i] - first_lane[group.start]),
            }
        )
    return out


def _counters(trace: Trace) -> list[Json]:
    out: list[Json] = []
    for i, track in enumerate(trace.tracks):
        if track.kind == TrackKind.COUNTER:
            first, last = np.searchsorted(trace.counters.track, [i, i + 1])
            values = trace.counters.value[first:last]
            if len(values):
                out.append(
                    {
                        "id": i,
                        "name": track.name,
                        "process": track.process,
                        "samples": len(values),
                        "min": float(values.min()),
                        "max": float(values.max()),
                    }
                )
    return out


def _place_of(trace: Trace, row: int) -> Json:
    """Where an event stands."""
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


def _category(name: str) -> Category:
    try:
        return Category[name.upper()]
    except KeyError:
        known = ", ".join(c.name.lower() for c in Category)
        raise BadParameter(f"there is no category {name[:40]!r}", f"category: {known}") from None


def _details(trace: Trace, row: int, path: str | None) -> Json:
    """Everything about one event; `arguments` come from the file itself, null when it is gone or not asked for."""
    events, rows = trace.events, np.array([row])
    columns = {
        n: _argument(trace, n, rows)
        for n, c in trace.args.items()
        if len(c.events) and c.events[min(np.searchsorted(c.events, row), len(c.events) - 1)] == row
    }
    stacks = Stacks(trace)
    moved = columns.get("bytes")
    duration = int(max(0, events.dur[row]))
    parent = int(events.parent[row])
    return _place_of(trace, row) | {
        "self_ns": self_ns(trace, row),
        "step": trace.strings[trace.steps.name[events.step[row]]] if events.step[row] >= 0 else None,
        "correlation": int(events.corr[row]) or None,
        "columns": columns,
        "bandwidth_bytes_per_s": moved / duration * 1e9 if isinstance(moved, (int, float)) and duration else None,
        "call_stack": stacks.text(int(stacks.of(rows.astype(np.int32))[0])) or None,
        "arguments": None if path is None else _arguments(path, int(events.row[row])),
        "parent": _place_of(trace, parent) if parent >= 0 else None,
        "links": [
            {"kind": kind, "direction": direction, **_place_of(trace, other)}
            for other, kind, direction in linked(trace, row)
        ],
    }


def _argument(trace: Trace, name: str, rows: Ints) -> object:
    value = trace.arg(name, rows)[0].item()
    return trace.strings[int(value)] if trace.args[name].text else value


def _arguments(path: str, row: int) -> object:
    """The raw arguments of an event, None when its file is gone."""
    try:
        return _args_of(raw_events(path, {row}).get(row))
    except SourceError:
        return None


def _args_of(text: str | None) -> object:
    """The arguments in an event's text, None when it is damaged."""
    try:
        entry: object = json.loads(text) if text else None
    except ValueError:
        return None
    return json_object(entry).get("args")


def _window(trace: Trace) -> tuple[int, int, list[int]]:
    """The window that a request names, in the trace's own time, and its tracks (all by default)."""
    origin, until = trace.span_ns
    low = number("start_ns", request.args.get("start_ns", "0"), -(2**53), 2**53)
    high = number("end_ns", request.args.get("end_ns", str(until - origin)), -(2**53), 2**53)
    if high <= low:
        raise BadParameter("the window ends before it starts", "start_ns must be below end_ns")
    given = request.args.get("tracks", "")
    tracks = [number("tracks", t, 0, len(trace.tracks) - 1) for t in given.split(",")] if given else on_timeline(trace)
    return low + origin, high + origin, tracks


def _chrome_json(trace: Trace, low: int, high: int, tracks: list[int], path: str) -> bytes:
    """The events of a window with their arguments, in a form that Perfetto opens."""
    rows = rows_in(trace, low, high, tracks)
    if len(rows) > MAX_EXPORT:
        raise BadParameter(
            f"the window holds {len(rows):,} events, over {MAX_EXPORT:,}", "select a shorter window or fewer tracks"
        )
    texts = raw_events(path, {int(r) for r in trace.events.row[rows]})
    entries = [_chrome_event(trace, row, texts.get(int(trace.events.row[row]))) for row in rows.tolist()]
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": entries}, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _where(text: str) -> bool | None:
    """On a device, on the host, or anywhere."""
    known = {"host": False, "device": True, "": None}
    if text not in known:
        raise BadParameter(f"there is no place {text[:40]!r}", "where: host, device")
    return known[text]


def _chrome_event(trace: Trace, row: int, text: str | None) -> Json:
    events, track = trace.events, trace.tracks[int(trace.events.track[row])]
    entry: Json = {
        "ph": "X",
        "cat": Category(events.category[row]).name.lower(),
        "name": trace.strings[events.name[row]],
        "pid": track.process or track.pid,
        "tid": track.name or track.tid,
        "ts": events.ts[row].item() / 1000,
        "dur": max(0, events.dur[row].item()) / 1000,
    }
    args = _args_of(text)
    return entry | {"args": args} if args else entry
