"""Timeline: the tracks of a trace. Their events are served as tiles (measure/timeline/tiles.py), not as a table."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Trace, TrackKind
from visualprof.views import Params, View
from visualprof.views.answers.kinds import CountColumn, DurationColumn, IdentifierColumn, NameColumn, WordColumn
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.timeline.tiles import timeline_tracks


class TrackColumns(Columns):
    """Tracks with events."""

    track: IdentifierColumn
    name: NameColumn
    process: WordColumn
    kind: WordColumn
    device: IdentifierColumn
    stream: IdentifierColumn
    calls: CountColumn
    start_ns: DurationColumn
    duration_ns: DurationColumn


def needs(trace: Trace) -> bool:
    """Whether the trace has any event other than memory instants."""
    return bool((trace.events.category != Category.MEMORY).any())


def compute(trace: Trace, params: Params) -> Table[TrackColumns]:
    """Return the tracks with events."""
    shown = timeline_tracks(trace)
    tracks = [trace.tracks[i] for i in shown]
    ends = [trace.events.end[t.first : t.first + t.count].max() for t in tracks]
    starts = [trace.events.ts[t.first] for t in tracks]
    on_device = [t.kind != TrackKind.THREAD for t in tracks]
    return Table(
        columns=TrackColumns(
            track=shown,
            name=[t.name for t in tracks],
            process=[t.process or t.pid for t in tracks],
            kind=[t.kind.name.lower() for t in tracks],
            device=[t.device if d else None for t, d in zip(tracks, on_device, strict=True)],
            stream=[t.stream if d else None for t, d in zip(tracks, on_device, strict=True)],
            calls=[t.count for t in tracks],
            start_ns=np.array(starts, np.int64) - trace.span_ns[0],
            duration_ns=np.array(ends, np.int64) - np.array(starts, np.int64),
        )
    )


VIEW = View("trace", 50, needs, Params, compute)
