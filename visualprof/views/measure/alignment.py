"""Clocks of several ranks on one axis: recorded origins, and collectives as a cross-check."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Trace, TrackKind
from visualprof.views.measure.groups import group


class Offset(msgspec.Struct, frozen=True):
    """What to add to a trace's times to stand on the first trace's axis.

    clock_ns: by the recorded clock origins, None when one is unknown. residual_ns: how much later this trace's
    collectives end than the first one's after that, the median; None without matching collectives. collectives:
    pairs compared.
    """

    clock_ns: int | None
    residual_ns: int | None
    collectives: int


class Clock(msgspec.Struct, frozen=True):
    """What tells the time of a trace. origin_ns: Unix ns of its time 0, None unknown. first_ns: of its first event.

    ends: of its collectives by name, ascending.
    """

    origin_ns: int | None
    first_ns: int
    ends: dict[str, Ints]


def clock_of(trace: Trace) -> Clock:
    """The clock of a trace."""
    return Clock(epoch_ns(trace), trace.span_ns[0], _ends(trace))


def offsets(clocks: Sequence[Clock]) -> list[Offset]:
    """Offset of every trace to the first.

    A collective ends on all its ranks at nearly the same time, so the i-th end of the same collective on the
    same kind of track is compared.
    """
    return [Offset(0, 0, 0), *(_offset(clocks[0], other) for other in clocks[1:])]


def epoch_ns(trace: Trace) -> int | None:
    """Unix ns of the trace's time 0; None when the file does not say."""
    return trace.meta.clock_origin_ns if trace.meta.clock_origin_ns >= 0 else None


def _offset(first: Clock, other: Clock) -> Offset:
    clock = None if first.origin_ns is None or other.origin_ns is None else other.origin_ns - first.origin_ns
    pairs = [(first.ends[name], other.ends[name]) for name in first.ends.keys() & other.ends.keys()]
    gaps = np.concatenate([b - a for a, b in pairs if len(a) == len(b)] or [np.zeros(0, np.int64)])
    if not len(gaps):
        return Offset(clock, None, 0)
    return Offset(clock, round(float(np.median(gaps))) + (clock or 0), len(gaps))


def _ends(trace: Trace) -> dict[str, Ints]:
    """Ends of the collectives by name: of their kernels, or of the host operators where there are no kernels."""
    comm = trace.events.category == Category.COMM
    on_device = comm & trace.track_mask(TrackKind.STREAM)
    rows = np.flatnonzero(on_device if on_device.any() else comm & trace.track_mask(TrackKind.THREAD))
    name, end = trace.events.name[rows], trace.events.end[rows]
    groups = group(name)
    ids: list[int] = name[groups.first].tolist()
    return {trace.strings[i]: np.sort(end[of]) for i, of in zip(ids, groups.members(), strict=True)}
