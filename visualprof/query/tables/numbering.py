"""Ids and times that are unique over several open traces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.query.tables.columns import Role
from visualprof.query.tables.source import Source

TRACK_SPACING = 1 << 20  # between the numbers of tracks and processes of two traces


def id_offsets(sources: Sequence[Source]) -> list[dict[Role, int]]:
    """Return, per trace, what to add to the ids of each role so that they are unique over all traces."""
    traces = [source.trace for source in sources]
    events, steps, memory_events = (
        np.cumsum([0, *counts]).tolist()
        for counts in (
            [len(t.events) for t in traces],
            [len(t.steps) for t in traces],
            [len(t.allocs.ts) for t in traces],
        )
    )
    return [
        {
            "event": events[i],
            "step": steps[i],
            "memory": memory_events[i],
            "gap": 2 * events[i],  # at most one gap of its stream and one of its device ends at an event
            "track": i * TRACK_SPACING,
            "process": i * TRACK_SPACING,
        }
        for i in range(len(traces))
    ]


def time_origins(sources: Sequence[Source]) -> list[int]:
    """Return time 0 of the session in each trace's clock.

    It is the first event of all traces if the clocks of all are known, otherwise the first event of each trace.
    """
    starts, clocks = [source.trace.span_ns[0] for source in sources], [s.trace.meta.clock_origin_ns for s in sources]
    if len(sources) < 2 or min(clocks) < 0:
        return starts
    first = min(start + clock for start, clock in zip(starts, clocks, strict=True))
    return [first - clock for clock in clocks]
