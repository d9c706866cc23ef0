"""Traces with captured graphs, whose contents become events on demand."""

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

_LOCK = threading.RLock()  # views access it concurrently


class JoinedTrace(Trace, frozen=True, dict=True, kw_only=True):
    """A trace whose events, tracks, arguments, links and pyramid include the contents of captured graphs.

    Only the file's own columns and `graphs` are stored; `file_trace` returns them. The rest is derived on demand. Use
    `with_columns` to change a column: msgspec's `replace` would see the file's columns.
    """

    graphs: Graphs

    @cached_property
    def file_trace(self) -> Trace:
        """The trace without graph contents."""
        return Trace(**{name: Trace.__dict__[name].__get__(self) for name in TRACE_FIELDS})

    def joined_column(self, name: str) -> Any:
        """Return events, tracks, args, links or pyramid with graph contents; each is built once."""
        with _LOCK:
            if name not in self.derived:
                self.derived[name] = _JOINED_COLUMNS[name](self)
        return self.derived[name]

    @cached_property
    def expansion(self) -> Expansion:
        """Events and tracks with graph contents."""
        return expand_graphs(self.file_trace, self.graphs)


def build_event_pyramid(trace: Trace) -> Pyramid:
    """Build the levels of detail of all events of a trace."""
    events = trace.events
    slices = np.array([*(track.first for track in trace.tracks), len(events)])
    return build_pyramid(events.ts, events.end, events.dur, events.depth, slices)


def _joined_property(name: str) -> property:
    """Return a property that replaces a field of the trace by its joined column."""
    return property(lambda trace: trace.joined_column(name), doc=getattr(Trace, name).__doc__)


# Builders of the columns that replace those of the file.
_JOINED_COLUMNS: dict[str, Callable[[JoinedTrace], object]] = {
    "events": lambda trace: trace.expansion.events,
    "tracks": lambda trace: trace.expansion.tracks,
    "args": lambda trace: JoinedArguments(trace.file_trace.args, trace.graphs, trace.expansion),
    "links": lambda trace: add_owner_links(trace.file_trace.links, trace.expansion.owner, trace.graphs.work),
    "pyramid": build_event_pyramid,
}
for _name in _JOINED_COLUMNS:
    setattr(JoinedTrace, _name, _joined_property(_name))  # hides the field itself, which `file_trace` reads
