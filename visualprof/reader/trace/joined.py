"""Traces with captured graphs: what is inside their launches becomes events when somebody asks for events."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from visualprof.reader.trace import FIELDS, Trace
from visualprof.reader.trace.expansion import Arguments, Expansion, expansion, with_owners
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.pyramid import Pyramid, build_pyramid

_LOCK = threading.RLock()  # views ask at the same moment


class JoinedTrace(Trace, frozen=True, dict=True):
    """A trace whose events, tracks, arguments, links and pyramid are those of its file and what is inside launches.

    It is made of, and kept as, what the file has and `graphs`: `own` gives that; the rest is worked out when asked for.
    To change a column, use `changed`: msgspec's `replace` sees what the file has.
    """

    graphs: Graphs

    @cached_property
    def own(self) -> Trace:
        """What the file has."""
        return Trace(**{name: Trace.__dict__[name].__get__(self) for name in FIELDS})

    def part(self, name: str) -> Any:
        """Events, tracks, args, links or pyramid; made once."""
        with _LOCK:
            if name not in self.shared:
                self.shared[name] = _PARTS[name](self)
        return self.shared[name]

    @cached_property
    def inside(self) -> Expansion:
        """Events and tracks with all that is inside the launches."""
        return expansion(self.own, self.graphs)


def pyramid_of(trace: Trace) -> Pyramid:
    """Levels of detail of all events of a trace."""
    events = trace.events
    slices = np.array([*(track.first for track in trace.tracks), len(events)])
    return build_pyramid(events.ts, events.end, events.dur, events.depth, slices)


def _property(name: str) -> property:
    return property(lambda trace: trace.part(name), doc=getattr(Trace, name).__doc__)


# What is made in place of a field of the file's trace.
_PARTS: dict[str, Callable[[JoinedTrace], object]] = {
    "events": lambda trace: trace.inside.events,
    "tracks": lambda trace: trace.inside.tracks,
    "args": lambda trace: Arguments(trace.own.args, trace.graphs, trace.inside),
    "links": lambda trace: with_owners(trace.own.links, trace.inside.owner, trace.graphs.work),
    "pyramid": pyramid_of,
}
for _name in _PARTS:
    setattr(JoinedTrace, _name, _property(_name))  # the fields themselves, which these hide, `own` reads
