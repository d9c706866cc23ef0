"""Find where in the program an event comes from: its operator, its module, and the line of the user's own source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from visualprof.reader.trace import Category, LinkKind, Trace, TrackKind
from visualprof.views.measure.launches.launch import OPERATOR_CATEGORIES

OriginRole = Literal["operator", "module", "source"]
ROLES: tuple[OriginRole, ...] = get_args(OriginRole)
# Frames of the framework and of Python itself, which are not the user's own source.
LIBRARY_FRAME = re.compile(
    r"^<|(^|/)(torch|paddle|megengine|site-packages|dist-packages|lib/python[\d.]+|threading\.py)(/|\(|$)"
)


def launch_origin(trace: Trace, row: int) -> list[tuple[OriginRole, int]]:
    """Return what an event comes from, as pairs of a role and the row of an event.

    Device work comes from the call that launched it; work of an autograd thread from its forward
    operator.

    - operator: the innermost operator
    - module: the innermost module
    - source: the innermost Python frame outside of libraries
    """
    by_role: dict[OriginRole, int] = {}
    for event in _ancestors(trace, row):
        role = _role(trace, event) if event != row else None
        if role:
            by_role.setdefault(role, event)
    return [(role, by_role[role]) for role in ROLES if role in by_role]


def _role(trace: Trace, event: int) -> OriginRole | None:
    """Return the role of an event, `None` if it has none."""
    category = trace.events.category[event]
    if category in OPERATOR_CATEGORIES and trace.tracks[trace.events.track[event]].kind != TrackKind.STREAM:
        return "operator"
    if category == Category.MODULE:
        return "module"
    is_own_source = category == Category.PYTHON and not LIBRARY_FRAME.search(
        trace.strings[int(trace.events.name[event])]
    )
    return "source" if is_own_source else None


def _ancestors(trace: Trace, row: int) -> Iterator[int]:
    """Yield the event and its ancestors, from the innermost outwards.

    After that, yield the event that issued it and the ancestors of that event, and so on.
    """
    visited: set[int] = set()
    start = row
    while start >= 0 and start not in visited:
        issuer = -1
        current = start
        while current >= 0:
            visited.add(current)
            yield current
            issuer = issuer if issuer >= 0 else _source_event(trace, current)
            current = int(trace.events.parent[current])
        start = issuer


def _source_event(trace: Trace, row: int) -> int:
    """Return the event that launched or queued an event, or its forward operator; -1 for none."""
    links = trace.links
    first, last = np.searchsorted(links.dst, (row, row + 1))
    for link in range(int(first), int(last)):
        if links.kind[link] != LinkKind.FLOW:
            return int(links.src[link])
    return -1
