"""Export events of a time window as Chrome JSON."""

from __future__ import annotations

import json
from typing import Any

from visualprof.errors import BadParameter, SourceError
from visualprof.messages import msg
from visualprof.reader.chrome.raw import raw_events
from visualprof.reader.chrome.values import json_object
from visualprof.reader.trace import Category, Trace, TrackKind
from visualprof.views.measure.timeline.window import events_in_window

MAX_EXPORTED_EVENTS = 200_000


def read_arguments(path: str, row: int) -> object:
    """Return the raw arguments of an event, or `None` if the file was deleted."""
    try:
        return _parse_arguments(raw_events(path, {row}).get(row))
    except SourceError:
        return None


def _parse_arguments(text: str | None) -> object:
    """Return the arguments in an event's text, or `None` if the text is invalid."""
    try:
        entry: object = json.loads(text) if text else None
    except ValueError:
        return None
    return json_object(entry).get("args")


def chrome_json(trace: Trace, low: int, high: int, tracks: list[int], path: str) -> bytes:
    """Return the events of a window with their arguments, as Chrome JSON that Perfetto opens."""
    rows = events_in_window(trace, low, high, tracks)
    if len(rows) > MAX_EXPORTED_EVENTS:
        raise BadParameter(
            msg(
                "server.window_holds_events_over",
                f"the window holds {len(rows):,} events, over {MAX_EXPORTED_EVENTS:,}",
            ),
            msg("server.select_shorter_window_fewer", "select a shorter window or fewer tracks"),
        )
    texts = raw_events(path, {int(r) for r in trace.events.row[rows]})
    entries = (_chrome_event(trace, row, texts.pop(int(trace.events.row[row]), None)) for row in rows.tolist())
    lines = ", ".join(
        json.dumps(entry, ensure_ascii=False) for entry in entries
    )  # a text takes a fifth of the memory of its objects
    return f'{{"displayTimeUnit": "ns", "traceEvents": [{lines}]}}'.encode("utf-8", "surrogatepass")


def _chrome_event(trace: Trace, row: int, text: str | None) -> dict[str, Any]:
    events, track = trace.events, trace.tracks[int(trace.events.track[row])]
    entry: dict[str, Any] = {
        "ph": "X",
        "cat": Category(events.category[row]).name.lower(),
        "name": trace.strings[events.name[row]],
        "pid": track.process or track.pid,
        "tid": track.tid if track.kind is TrackKind.GRAPH else track.name or track.tid,
        "ts": events.ts[row].item() / 1000,
        "dur": max(0, events.dur[row].item()) / 1000,
    }
    args = _parse_arguments(text)
    return entry | {"args": args} if args else entry
