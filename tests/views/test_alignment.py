"""Clock alignment of ranks that are small enough to compute by hand; times are in us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.conftest import Write, trace_of
from tests.views.rank_events import collective_kernel, distributed_info, step
from visualprof.errors import BadParameter
from visualprof.views.measure.ranks.alignment import ClockOffset, TraceClock, axis_shifts, clock_offsets
from visualprof.views.measure.ranks.call_matching import match_calls
from visualprof.views.measure.ranks.rank_summary import RankSummary, rank_summary

Call = tuple[str, float] | tuple[str, float, dict[str, Any]]  # group, end, further arguments of torch


def summary(write: Write, rank: int, calls: Sequence[Call], groups: dict[str, list[int]], **more: Any) -> RankSummary:
    """Return the summary of a rank whose calls take 10 us; `more` may contain further `events`."""
    events = [*more.pop("events", [])]
    for i, (group, end, *facts) in enumerate(calls):
        kind = "send" if "Dst Rank" in dict(*facts) else "recv" if "Src Rank" in dict(*facts) else "allreduce"
        events += collective_kernel(kind, end - 10, 10, i + 1, group, **dict(*facts))
    name = f"{rank}-{'numbered' if any('Seq' in dict(*facts) for _, _, *facts in calls) else 'plain'}.json"
    info = distributed_info(rank, 8, {name: ("", members) for name, members in groups.items()})
    return rank_summary(trace_of(write(events, name=name, distributedInfo=info, **more)))


def residuals(summaries: list[RankSummary], name: str = "") -> list[tuple[float | None, int]]:
    """Return how many us the calls of each rank end later, and how many calls were compared."""
    part_mask = np.concatenate([entry.is_in_step(name) for entry in summaries]) if name else None
    offsets = clock_offsets(
        [entry.clock for entry in summaries], match_calls([entry.collectives for entry in summaries]), part_mask
    )
    return [
        (None if entry.residual_ns is None else entry.residual_ns / 1000, entry.collective_count) for entry in offsets
    ]


def test_calls_of_different_groups_are_not_compared(write: Write) -> None:
    """Ranks 0 and 1 share calls in a, 2 and 3 in b, all ranks in w; calls of b end 500 us after those of a.

    The clocks of ranks 1, 2, 3 are 7, 20 and 30 us ahead. If calls were matched by name only, rank
    2 would seem 520 us late.
    """
    groups = {"a": [0, 1], "b": [2, 3], "w": [0, 1, 2, 3]}
    clock_lead = {0: 0, 1: 7, 2: 20, 3: 30}
    summaries = [
        summary(
            write,
            rank,
            [
                *(("a" if rank < 2 else "b", end + lead + 500 * (rank > 1)) for end in (100, 200, 300)),
                ("w", 900 + lead),
            ],
            groups,
        )
        for rank, lead in clock_lead.items()
    ]
    assert residuals(summaries) == [(0, 0), (7, 4), (20, 1), (30, 1)]


def test_ranks_without_common_calls_are_aligned_through_other_ranks(write: Write) -> None:
    """Ranks 0 and 1 share calls (3 us ahead), 1 and 2 (4 us ahead of 1), 2 and 3 (5 us behind 2)."""
    groups = {"a": [0, 1], "b": [1, 2], "c": [2, 3]}
    calls = {0: [("a", 100)], 1: [("a", 103), ("b", 203)], 2: [("b", 207), ("c", 307)], 3: [("c", 302)]}
    assert residuals([summary(write, rank, rank_calls, groups) for rank, rank_calls in calls.items()]) == [
        (0, 0),
        (3, 1),
        (7, 1),
        (2, 1),
    ]


def test_a_rank_without_common_calls_and_clock_origin_is_not_aligned(write: Write) -> None:
    groups = {"a": [0, 1], "b": [2, 3]}
    calls = {0: [("a", 100)], 1: [("a", 103)], 2: [("b", 100)], 3: [("b", 109)]}
    summaries = [summary(write, rank, rank_calls, groups) for rank, rank_calls in calls.items()]
    assert residuals(summaries) == [(0, 0), (3, 1), (None, 0), (None, 0)]
    clocks = [entry.clock for entry in summaries]
    assert axis_shifts(clocks, clock_offsets(clocks, match_calls([entry.collectives for entry in summaries]))) is None


def test_a_rank_without_common_calls_is_aligned_by_its_clock_origin() -> None:
    """Its time 0 is 50 ns after the first rank's, and its first event is at 7 ns; the first rank's is at 2 ns."""
    clocks, offsets = [TraceClock(10, 2), TraceClock(60, 7)], [ClockOffset(0, 0, 0), ClockOffset(50, None, 0)]
    assert axis_shifts(clocks, offsets) == [0, 55]


def test_a_single_late_call_does_not_change_the_alignment(write: Write) -> None:
    """Four calls end 5 us later by the clock of rank 1; one call, which was preempted, ends 60 us later."""
    calls = [100, 200, 300, 400, 500]
    delays = [5, 5, 60, 5, 5]
    groups = {"a": [0, 1]}
    summaries = [
        summary(write, rank, [("a", end + rank * delay) for end, delay in zip(calls, delays, strict=True)], groups)
        for rank in (0, 1)
    ]
    assert residuals(summaries) == [(0, 0), (5, 5)]


def test_a_drifting_clock_is_aligned_per_step(write: Write) -> None:
    """Rank 1 gains 10 us in each step of 1 ms: 0, 10, 20 us; over all steps the median is 10 us."""
    groups, summaries = {"a": [0, 1]}, list[RankSummary]()
    for rank in (0, 1):
        drifts = [10 * i * rank for i in range(3)]
        annotations = [step(i, 1000 * i + drift, 900) for i, drift in enumerate(drifts)]
        calls: list[Call] = [("a", 1000 * i + 500 + drift) for i, drift in enumerate(drifts)]
        events = [
            event for _, end, *_ in calls for event in collective_kernel("allreduce", end - 10, 10, int(end) - 50, "a")
        ]
        summaries.append(summary(write, rank, [], groups, events=[*annotations, *events]))
    assert residuals(summaries) == [(0, 0), (10, 3)]
    assert [residuals(summaries, str(i))[1] for i in range(3)] == [(0, 1), (10, 1), (20, 1)]
    with pytest.raises(BadParameter, match="no step '9'"):
        residuals(summaries, "9")


def test_ambiguous_calls_without_sequence_numbers_are_ignored(write: Write) -> None:
    """Rank 1 was recorded from the second call on: its i-th call is not the i-th of rank 0, which is 100 us earlier."""
    calls = {0: [100, 200, 300], 1: [203, 303]}
    unnumbered = [summary(write, rank, [("a", end) for end in ends], {"a": [0, 1]}) for rank, ends in calls.items()]
    assert residuals(unnumbered) == [(0, 0), (None, 0)]
    numbered_ones = [
        summary(write, rank, [("a", end, {"Seq": end // 100}) for end in ends], {"a": [0, 1]})
        for rank, ends in calls.items()
    ]
    assert residuals(numbered_ones) == [(0, 0), (3, 2)]


def test_messages_are_used_where_no_collective_connects_ranks(write: Write) -> None:
    """A message leaves 40 us before it arrives. 0 and 1 (clock 3 ahead) share a collective; 1 and 2 do not."""
    groups = {"a": [0, 1], "p": [0, 1, 2]}
    receiver = {"Dst Rank": 1}
    calls: dict[int, list[Call]] = {
        0: [("a", 100), ("p", 200, receiver), ("p", 300, receiver)],
        1: [("a", 103), ("p", 243, {"Src Rank": 0}), ("p", 343, {"Src Rank": 0}), ("p", 403, {"Dst Rank": 2})],
        2: [("p", 440, {"Src Rank": 1})],
    }
    assert residuals([summary(write, rank, rank_calls, groups) for rank, rank_calls in calls.items()]) == [
        (0, 0),
        (3, 1),
        (40, 1),
    ]
