"""Where in the program an event comes from: its operator, its module and the line of the user's own source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from visualprof.reader.trace import Category, LinkKind, Trace, TrackKind
from visualprof.views.measure.launch import OPERATOR_CATEGORIES

OriginRole = Literal["operator", "module", "source"]
ROLES: tuple[OriginRole, ...] = get_args(OriginRole)
# Frames of the framework and of Python itself: whoever asks where a kernel comes from means none of these.
LIBRARY_FRAME = re.compile(
    r"^<|(^|/)(torch|paddle|megengine|site-packages|dist-packages|lib/python[\d.]+|threading\.py)(/|\(|$)"
)


def launch_origin(trace: Trace, row: int) -> list[tuple[OriginRole, int]]:
    """What an event comes from, as (`operator`, `module` or `source`, row of the event).

    Device work comes from the call that launched it, what an autograd thread does from its forward operator.
    operator: the innermost one. module: the innermost. source: the innermost Python frame outside of libraries.
    """
    found: dict[OriginRole, int] = {}
    for event in _above(trace, row):
        role = _role(trace, event) if event != row else None
        if role:
            found.setdefault(role, event)
    return [(role, found[role]) for role in ROLES if role in found]


def _role(trace: Trace, event: int) -> OriginRole | None:
    category = trace.events.category[event]
    if category in OPERATOR_CATEGORIES and trace.tracks[trace.events.track[event]].kind != TrackKind.STREAM:
        return "operator"
    if category == Category.MODULE:
        return "module"
    own = category == Category.PYTHON and not LIBRARY_FRAME.search(trace.strings[int(trace.events.name[event])])
    return "source" if own else None


def _above(trace: Trace, row: int) -> Iterator[int]:
    """The event and all around it, inside out; behind that those around what asked for it."""
    seen: set[int] = set()
    start = row
    while start >= 0 and start not in seen:
        asked_by = -1
        at = start
        while at >= 0:
            seen.add(at)
            yield at
            asked_by = asked_by if asked_by >= 0 else _source(trace, at)
            at = int(trace.events.parent[at])
        start = asked_by


def _source(trace: Trace, row: int) -> int:
    """What launched, queued or led forward to an event, -1 for nothing."""
    links = trace.links
    first, last = np.searchsorted(links.dst, (row, row + 1))
    for place in range(int(first), int(last)):
        if links.kind[place] != LinkKind.FLOW:
            return int(links.src[place])
    return -1
