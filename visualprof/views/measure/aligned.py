"""Ranks on one axis to the microsecond: by the ends of the collectives that they share."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.views.measure.alignment import Offset, epoch_ns
from visualprof.views.measure.collectives import Matched, collectives, match
from visualprof.views.measure.steps import in_step


def aligned(traces: list[Trace], step: str = "") -> list[Offset]:
    """Offset of every trace to the first, by the collectives of one step or of all.

    A collective ends on all its ranks at nearly the same time, so the ends of the same call are compared: with the
    first trace, or, where a trace shares none with it, with the first one known that it shares some with.
    """
    ends = [_ends(*pair, step) for pair in zip(traces, match([collectives(trace) for trace in traces]), strict=True)]
    shifts: list[int | None] = [0, *([None] * (len(traces) - 1))]
    counts, settled = [0] * len(traces), [0]
    for known in settled:
        for i, own in enumerate(ends):
            if shifts[i] is None and len(gaps := _gaps(ends[known], own)):
                shifts[i] = (shifts[known] or 0) + round(float(np.median(gaps)))
                counts[i] = len(gaps)
                settled.append(i)
    clocks = [_clock(traces[0], trace) for trace in traces]
    return [
        Offset(clock, None if shift is None else shift + (clock or 0), count)
        for clock, shift, count in zip(clocks, shifts, counts, strict=True)
    ]


def _clock(first: Trace, other: Trace) -> int | None:
    origin, own = epoch_ns(first), epoch_ns(other)
    return (0 if first is other else None) if origin is None or own is None else own - origin


def _ends(trace: Trace, mine: Matched, step: str) -> tuple[Ints, Ints]:
    """Numbers of the matched parts in which data is exchanged, and when they end."""
    calls = mine.calls
    chosen = (mine.part >= 0) & calls.exchanges & in_step(trace, step)[calls.row]
    return mine.part[chosen], calls.end[chosen]


def _gaps(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> Ints:
    """By how much later each part that both have ends on the other."""
    _, a, b = np.intersect1d(one[0], other[0], return_indices=True)
    return other[1][b] - one[1][a]
