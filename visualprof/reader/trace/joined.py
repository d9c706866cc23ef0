"""Traces with captured graphs: what is inside their launches becomes events when somebody asks for events."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from visualprof.reader.trace import TRACE_FIELDS, Trace
from visualprof.reader.trace.expansion import Expansion, JoinedArguments, add_owner_links, expand_graphs
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.pyramid import Pyramid, build_pyramid

_LOCK = threading.RLock()  # views ask at the same moment


class JoinedTrace(Trace, frozen=True, dict=True):
    """A trace whose events, tracks, arguments, links and pyramid are those of its file and what is inside launches.

    It is made of, and kept as, what the file has and `graphs`: `file_trace` gives that; the rest is worked out when asked for.
    To change a column, use `with_columns`: msgspec's `replace` sees what the file has.
    """

    graphs: Graphs

    @cached_property
    def file_trace(self) -> Trace:
        """What the file has."""
        return Trace(**{name: Trace.__dict__[name].__get__(self) for name in TRACE_FIELDS})

    def joined_column(self, name: str) -> Any:
        """Events, tracks, args, links or pyramid; made once."""
        with _LOCK:
            if name not in self.derived:
                self.derived[name] = _JOINED_COLUMNS[name](self)
        return self.derived[name]

    @cached_property
    def expansion(self) -> Expansion:
        """Events and tracks with all that is inside the launches."""
        return expand_graphs(self.file_trace, self.graphs)


def build_event_pyramid(trace: Trace) -> Pyramid:
    """Levels of detail of all events of a trace."""
    events = trace.events
    slices = np.array([*(track.first for track in trace.tracks), len(events)])
    return build_pyramid(events.ts, events.end, events.dur, events.depth, slices)


def _joined_property(name: str) -> property:
    return property(lambda trace: trace.joined_column(name), doc=getattr(Trace, name).__doc__)


# What is made in place of a field of the file's trace.
_JOINED_COLUMNS: dict[str, Callable[[JoinedTrace], object]] = {
    "events": lambda trace: trace.expansion.events,
    "tracks": lambda trace: trace.expansion.tracks,
    "args": lambda trace: JoinedArguments(trace.file_trace.args, trace.graphs, trace.expansion),
    "links": lambda trace: add_owner_links(trace.file_trace.links, trace.expansion.owner, trace.graphs.work),
    "pyramid": build_event_pyramid,
}
for _name in _JOINED_COLUMNS:
    setattr(JoinedTrace, _name, _joined_property(_name))  # the fields themselves, which these hide, `file_trace` reads
