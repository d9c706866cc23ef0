"""Clocks of several ranks on one axis: by recorded origins, and to the microsecond by the collectives they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask, Trace
from visualprof.views.measure.call_matching import MatchedCalls
from visualprof.views.measure.groups import group


class ClockOffset(msgspec.Struct, frozen=True):
    """What to add to a trace's times to stand on the first trace's axis.

    clock_ns: by the recorded clock origins, None when one is unknown. residual_ns: how much later this trace's
    collectives end than the first one's after that; None where nothing that they share tells. collectives: those that
    were compared with another trace.
    """

    clock_ns: int | None
    residual_ns: int | None
    collective_count: int


class TraceClock(msgspec.Struct, frozen=True):
    """What tells the time of a trace. origin_ns: Unix ns of its time 0, None unknown. first_ns: of its first event."""

    origin_ns: int | None
    first_ns: int


def trace_clock(trace: Trace) -> TraceClock:
    """The clock of a trace."""
    return TraceClock(epoch_ns(trace), trace.span_ns[0])


def epoch_ns(trace: Trace) -> int | None:
    """Unix ns of the trace's time 0; None when the file does not say."""
    return trace.meta.clock_origin_ns if trace.meta.clock_origin_ns >= 0 else None


def clock_offsets(
    clocks: Sequence[TraceClock], calls: MatchedCalls, part_mask: Mask | None = None
) -> list[ClockOffset]:
    """Offset of every trace to the first.

    A collective ends on all its ranks at nearly the same time, so that the ends of the same call are compared, by their
    median: with those of the first trace, or, where a trace shares none with it, of the first one known that it shares
    some with. A message may leave before it arrives: messages count where no collective leads on. Calls of which it is
    not sure that they are the same, as one rank has more of them and they have no numbers, do not count.

    Args: chosen: (m,) which parts of the calls count, all unless given.
    """
    own = [_clock(clocks[0], clock) for clock in clocks]
    shifts, counts = _shifts(calls, np.ones(len(calls.part_call), bool) if part_mask is None else part_mask)
    return [
        ClockOffset(clock, None if shift is None else shift + (clock or 0), count)
        for clock, shift, count in zip(own, shifts, counts, strict=True)
    ]


def axis_shifts(clocks: Sequence[TraceClock], offsets: Iterable[ClockOffset]) -> list[int] | None:
    """What to add to times that count from each trace's own first event; None where one of the traces is not placed."""
    placed = list[int]()
    for clock, offset in zip(clocks, offsets, strict=True):
        if offset.clock_ns is None and offset.residual_ns is None:
            return None
        shift = (offset.clock_ns or 0) - (offset.residual_ns or 0)
        placed.append(shift + clock.first_ns - clocks[0].first_ns)
    return placed


def _clock(first: TraceClock, other: TraceClock) -> int | None:
    if first is other:
        return 0
    return None if first.origin_ns is None or other.origin_ns is None else other.origin_ns - first.origin_ns


def _shifts(calls: MatchedCalls, chosen: Mask) -> tuple[list[int | None], list[int]]:
    """By how much later the calls of each rank end than those of the first one, by their own times; how many tell."""
    chosen = chosen & calls.is_transfer & (calls.part_id >= 0) & calls.is_unambiguous[calls.part_call]
    shifts: list[int | None] = [0, *([None] * (calls.rank_count - 1))]
    counts, order = (
        [0] * calls.rank_count,
        np.full(calls.rank_count, calls.rank_count),
    )  # order: in which ranks were placed
    order[0] = 0
    number, rank, end = calls.part_id[chosen], calls.rank[calls.part_call[chosen]], calls.part_end[chosen]
    messages = (calls.source >= 0)[calls.part_call[chosen]]
    while True:
        found = _next(number, rank, end, order, ~messages) or _next(number, rank, end, order, messages)
        if not found:
            return shifts, counts
        found.sort(key=lambda one: order[one[1]])
        for one, known, gap, count in found:
            shifts[one] = (shifts[known] or 0) + gap
            counts[one] = count
        order[[one for one, *_ in found]] = int(order[order < calls.rank_count].max()) + 1 + np.arange(len(found))


def _next(number: Ints, rank: Ids, end: Ints, order: Ints, chosen: Mask) -> list[tuple[int, int, int, int]]:
    """Ranks that share calls with ranks that are placed: of each the first of these, by how much its calls end later.

    Args: order: (r,) in which ranks were placed, r of those that are not. Returns: rank, known rank, ns, calls.
    """
    rows = np.flatnonzero(chosen)
    placed = order[rank[rows]]
    if not len(rows):
        return []
    # Of each call the rank that was placed first; a rank compares its calls with the first of all these.
    met = group(number[rows])
    earliest = met.min(placed)[met.ids]
    of_call = np.full(len(met.first), -1)
    of_call[met.ids[placed == earliest]] = rows[placed == earliest]
    new = np.flatnonzero((placed == len(order)) & (earliest < len(order)))
    if not len(new):
        return []
    ranks = group(rank[rows[new]])
    new = new[earliest[new] == ranks.min(earliest[new])[ranks.ids]]
    ranks = group(rank[rows[new]])
    other = of_call[met.ids[new]]
    later = end[rows[new]] - end[other]
    known: list[int] = rank[other[ranks.first]].tolist()
    return list(
        zip(
            rank[rows[new[ranks.first]]].tolist(),
            known,
            np.rint(ranks.median(later)).astype(np.int64).tolist(),
            ranks.count.tolist(),
            strict=True,
        )
    )
