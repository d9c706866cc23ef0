"""Traces with captured graphs: what is inside their launches becomes events when somebody asks for events."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from visualprof.reader.trace import FIELDS, ArgColumn, Events, Links, Trace
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
        """Events, tracks, args, links or pyramid."""
        with _LOCK:
            if name not in self.shared:
                self.shared[name] = getattr(self, f"_{name}")()
        return self.shared[name]

    @cached_property
    def _inside(self) -> Expansion:
        return expansion(self.own, self.graphs)

    def _events(self) -> Events:
        return self._inside.events

    def _tracks(self) -> object:
        return self._inside.tracks

    def _args(self) -> Mapping[str, ArgColumn]:
        return Arguments(self.own.args, self.graphs, self._inside)

    def _links(self) -> Links:
        return with_owners(self.own.links, self._inside.owner, self.graphs.work)

    def _pyramid(self) -> Pyramid:
        return pyramid_of(self)


def pyramid_of(trace: Trace) -> Pyramid:
    """Levels of detail of all events of a trace."""
    events = trace.events
    slices = np.array([*(track.first for track in trace.tracks), len(events)])
    return build_pyramid(events.ts, events.end, events.dur, events.depth, slices)


def _lazy(name: str) -> property:
    return property(lambda trace: trace.part(name), doc=getattr(Trace, name).__doc__)


for _name in ("events", "tracks", "args", "links", "pyramid"):
    setattr(JoinedTrace, _name, _lazy(_name))  # in place of the fields of a trace, which `own` reads
