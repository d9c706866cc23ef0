"""Align the clocks of several ranks: by recorded clock origins, refined by the collectives that the ranks share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask, Trace
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.call_matching import MatchedCalls


class ClockOffset(msgspec.Struct, frozen=True):
    """Offset to add to the times of a trace to place them on the first trace's axis.

    Attributes:
        clock_ns: Offset by the recorded clock origins; `None` when one origin is unknown.
        residual_ns: How much later this trace's collectives end than those of the first trace,
            after `clock_ns` is applied.
            `None` when no shared collective can be compared.
        collective_count: Number of collectives that were compared with another trace.
    """

    clock_ns: int | None
    residual_ns: int | None
    collective_count: int


class TraceClock(msgspec.Struct, frozen=True):
    """Time base of a trace.

    Attributes:
        origin_ns: Unix time of the trace's time 0, in nanoseconds; `None` when unknown.
        first_ns: Time of the trace's first event.
    """

    origin_ns: int | None
    first_ns: int


def trace_clock(trace: Trace) -> TraceClock:
    """Return the time base of a trace."""
    return TraceClock(epoch_ns(trace), trace.span_ns[0])


def epoch_ns(trace: Trace) -> int | None:
    """Return the Unix time in nanoseconds of the trace's time 0; `None` when the file does not record it."""
    return trace.meta.clock_origin_ns if trace.meta.clock_origin_ns >= 0 else None


def clock_offsets(
    clocks: Sequence[TraceClock], calls: MatchedCalls, part_mask: Mask | None = None
) -> list[ClockOffset]:
    """Return the offset of every trace to the first.

    A collective ends on all its ranks at nearly the same time. So the ends of the same call are
    compared, and their median difference is used. Each trace is compared with the first trace. If
    the two share no call, it is compared with the trace that was placed first among those it shares
    calls with.

    A message may leave before it arrives: messages are used only where no collective connects two
    ranks. Calls are ignored when their match is ambiguous: one rank has more of them than another,
    and they carry no sequence numbers.

    Args:
        part_mask: (m,) which parts of the calls to use; all parts by default.
    """
    clock_differences = [_origin_difference(clocks[0], clock) for clock in clocks]
    shifts, counts = _measured_shifts(calls, np.ones(len(calls.part_call), bool) if part_mask is None else part_mask)
    return [
        ClockOffset(clock, None if shift is None else shift + (clock or 0), count)
        for clock, shift, count in zip(clock_differences, shifts, counts, strict=True)
    ]


def axis_shifts(clocks: Sequence[TraceClock], offsets: Iterable[ClockOffset]) -> list[int] | None:
    """Return what to add to times that count from each trace's own first event.

    Returns `None` when one of the traces cannot be placed.
    """
    shifts = list[int]()
    for clock, offset in zip(clocks, offsets, strict=True):
        if offset.clock_ns is None and offset.residual_ns is None:
            return None
        shift = (offset.clock_ns or 0) - (offset.residual_ns or 0)
        shifts.append(shift + clock.first_ns - clocks[0].first_ns)
    return shifts


def _origin_difference(first: TraceClock, other: TraceClock) -> int | None:
    """Return the difference of two recorded clock origins in ns; `None` when one is unknown."""
    if first is other:
        return 0
    return None if first.origin_ns is None or other.origin_ns is None else other.origin_ns - first.origin_ns


def _measured_shifts(calls: MatchedCalls, part_mask: Mask) -> tuple[list[int | None], list[int]]:
    """Return how much later the calls of each rank end than those of the first rank, and how many calls were compared.

    Times are the recorded ones of each rank, without any clock correction.
    """
    part_mask = part_mask & calls.is_transfer & (calls.part_id >= 0) & calls.is_unambiguous[calls.part_call]
    shifts: list[int | None] = [0, *([None] * (calls.rank_count - 1))]
    counts, order = (
        [0] * calls.rank_count,
        np.full(calls.rank_count, calls.rank_count),
    )  # order in which ranks were placed
    order[0] = 0
    number, rank, end = calls.part_id[part_mask], calls.rank[calls.part_call[part_mask]], calls.part_end[part_mask]
    messages = (calls.source >= 0)[calls.part_call[part_mask]]
    while True:
        neighbors = _find_neighbors(number, rank, end, order, ~messages) or _find_neighbors(
            number, rank, end, order, messages
        )
        if not neighbors:
            return shifts, counts
        neighbors.sort(key=lambda neighbor: order[neighbor[1]])
        for neighbor, reference, gap, count in neighbors:
            shifts[neighbor] = (shifts[reference] or 0) + gap
            counts[neighbor] = count
        order[[neighbor for neighbor, *_ in neighbors]] = (
            int(order[order < calls.rank_count].max()) + 1 + np.arange(len(neighbors))
        )


def _find_neighbors(part_id: Ints, rank: Ids, end: Ints, order: Ints, chosen: Mask) -> list[tuple[int, int, int, int]]:
    """Return the unplaced ranks that share calls with placed ranks.

    Each rank is compared with the placed rank that was placed first.

    Args:
        part_id: (m,) part ids.
        rank: (m,) rank of each part.
        end: (m,) ns.
        order: (r,) order in which ranks were placed; r for ranks that are not placed yet.
        chosen: (m,) which parts to compare.

    Returns:
        Tuples of the rank, the reference rank, how many ns later the rank's calls end, and the
            number of calls.
    """
    rows = np.flatnonzero(chosen)
    placed = order[rank[rows]]
    if not len(rows):
        return []
    # Each call is compared on the rank that was placed first; a rank uses the earliest placed of these ranks.
    calls = group(part_id[rows])
    first_placed = calls.min(placed)[calls.ids]
    reference_row = np.full(len(calls.first), -1)
    reference_row[calls.ids[placed == first_placed]] = rows[placed == first_placed]
    new_rows = np.flatnonzero((placed == len(order)) & (first_placed < len(order)))
    if not len(new_rows):
        return []
    ranks = group(rank[rows[new_rows]])
    new_rows = new_rows[first_placed[new_rows] == ranks.min(first_placed[new_rows])[ranks.ids]]
    ranks = group(rank[rows[new_rows]])
    reference_rows = reference_row[calls.ids[new_rows]]
    delay = end[rows[new_rows]] - end[reference_rows]
    references: list[int] = rank[reference_rows[ranks.first]].tolist()
    return list(
        zip(
            rank[rows[new_rows[ranks.first]]].tolist(),
            references,
            np.rint(ranks.median(delay)).astype(np.int64).tolist(),
            ranks.count.tolist(),
            strict=True,
        )
    )
