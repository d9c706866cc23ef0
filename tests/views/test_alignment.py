"""Clocks of ranks small enough to work out by hand; times in the tests are us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.conftest import Write, trace_of
from tests.views.ranks import met, step, told
from visualprof.errors import BadParameter
from visualprof.views.measure.alignment import ClockOffset, TraceClock, axis_shifts, clock_offsets
from visualprof.views.measure.call_matching import match_calls
from visualprof.views.measure.rank_summary import RankSummary, rank_summary

Call = tuple[str, float] | tuple[str, float, dict[str, Any]]  # group, end, and what else torch tells


def part(write: Write, rank: int, calls: Sequence[Call], groups: dict[str, list[int]], **more: Any) -> RankSummary:
    """A rank whose calls take 10 us; `events` besides, `origin` of its clock."""
    events = [*more.pop("events", [])]
    for i, (group, end, *facts) in enumerate(calls):
        kind = "send" if "Dst Rank" in dict(*facts) else "recv" if "Src Rank" in dict(*facts) else "allreduce"
        events += met(kind, end - 10, 10, i + 1, group, **dict(*facts))
    name = f"{rank}-{'numbered' if any('Seq' in dict(*facts) for _, _, *facts in calls) else 'plain'}.json"
    info = told(rank, 8, {name: ("", members) for name, members in groups.items()})
    return rank_summary(trace_of(write(events, name=name, distributedInfo=info, **more)))


def residuals(parts: list[RankSummary], name: str = "") -> list[tuple[float | None, int]]:
    """Of each rank by how many us its calls end later, and how many were compared."""
    chosen = np.concatenate([one.is_in_step(name) for one in parts]) if name else None
    found = clock_offsets([one.clock for one in parts], match_calls([one.collectives for one in parts]), chosen)
    return [(None if one.residual_ns is None else one.residual_ns / 1000, one.collective_count) for one in found]


def test_calls_of_other_groups_are_not_compared(write: Write) -> None:
    """Ranks 0 and 1 meet in a, 2 and 3 in b, all in w; calls of b end 500 us after those of a on the same clock.

    The clocks of ranks 1, 2, 3 are 7, 20 and 30 us ahead. By their names alone, rank 2 would be 520 us late.
    """
    groups = {"a": [0, 1], "b": [2, 3], "w": [0, 1, 2, 3]}
    ahead = {0: 0, 1: 7, 2: 20, 3: 30}
    parts = [
        part(write, rank, [*(("a" if rank < 2 else "b", t + late + 500 * (rank > 1)) for t in (100, 200, 300)),
                           ("w", 900 + late)], groups)
        for rank, late in ahead.items()
    ]  # fmt: skip
    assert residuals(parts) == [(0, 0), (7, 4), (20, 1), (30, 1)]


def test_ranks_that_share_nothing_are_compared_by_way_of_others(write: Write) -> None:
    """0 meets 1 (3 us ahead of it), 1 meets 2 (4 us ahead of 1), 2 meets 3 (5 us behind 2)."""
    groups = {"a": [0, 1], "b": [1, 2], "c": [2, 3]}
    calls = {0: [("a", 100)], 1: [("a", 103), ("b", 203)], 2: [("b", 207), ("c", 307)], 3: [("c", 302)]}
    assert residuals([part(write, rank, own, groups) for rank, own in calls.items()]) == [
        (0, 0),
        (3, 1),
        (7, 1),
        (2, 1),
    ]


def test_a_rank_that_shares_nothing_is_not_placed_without_a_clock(write: Write) -> None:
    groups = {"a": [0, 1], "b": [2, 3]}
    calls = {0: [("a", 100)], 1: [("a", 103)], 2: [("b", 100)], 3: [("b", 109)]}
    parts = [part(write, rank, own, groups) for rank, own in calls.items()]
    assert residuals(parts) == [(0, 0), (3, 1), (None, 0), (None, 0)]
    clocks = [one.clock for one in parts]
    assert axis_shifts(clocks, clock_offsets(clocks, match_calls([one.collectives for one in parts]))) is None


def test_a_rank_that_shares_nothing_stands_where_its_clock_says() -> None:
    """Its time 0 is 50 ns after the first one's, and its first event at 7 ns; the other's at 2 ns."""
    clocks, found = [TraceClock(10, 2), TraceClock(60, 7)], [ClockOffset(0, 0, 0), ClockOffset(50, None, 0)]
    assert axis_shifts(clocks, found) == [0, 55]


def test_one_call_that_ends_late_moves_nothing(write: Write) -> None:
    """Four calls end 5 us later by the clock of rank 1, one of them, which was preempted, 60 us."""
    calls = [100, 200, 300, 400, 500]
    late = [5, 5, 60, 5, 5]
    groups = {"a": [0, 1]}
    parts = [
        part(write, rank, [("a", t + rank * by) for t, by in zip(calls, late, strict=True)], groups) for rank in (0, 1)
    ]
    assert residuals(parts) == [(0, 0), (5, 5)]


def test_a_clock_that_drifts_is_compared_in_the_step_that_is_shown(write: Write) -> None:
    """Rank 1 gains 10 us in each step of 1 ms: 0, 10, 20 us, of all steps the middle one."""
    groups, parts = {"a": [0, 1]}, list[RankSummary]()
    for rank in (0, 1):
        gained = [10 * i * rank for i in range(3)]
        marks = [step(i, 1000 * i + by, 900) for i, by in enumerate(gained)]
        calls: list[Call] = [("a", 1000 * i + 500 + by) for i, by in enumerate(gained)]
        events = [one for _, end, *_ in calls for one in met("allreduce", end - 10, 10, int(end) - 50, "a")]
        parts.append(part(write, rank, [], groups, events=[*marks, *events]))
    assert residuals(parts) == [(0, 0), (10, 3)]
    assert [residuals(parts, str(i))[1] for i in range(3)] == [(0, 1), (10, 1), (20, 1)]
    with pytest.raises(BadParameter, match="no step '9'"):
        residuals(parts, "9")


def test_calls_without_numbers_of_which_one_rank_has_more_do_not_count(write: Write) -> None:
    """Rank 1 was recorded from the second call on: its i-th call is not the i-th of rank 0, 100 us earlier."""
    calls = {0: [100, 200, 300], 1: [203, 303]}
    unnumbered = [part(write, rank, [("a", t) for t in own], {"a": [0, 1]}) for rank, own in calls.items()]
    assert residuals(unnumbered) == [(0, 0), (None, 0)]
    numbered_ones = [
        part(write, rank, [("a", t, {"Seq": t // 100}) for t in own], {"a": [0, 1]}) for rank, own in calls.items()
    ]
    assert residuals(numbered_ones) == [(0, 0), (3, 2)]


def test_messages_count_where_no_collective_leads_on(write: Write) -> None:
    """A message leaves 40 us before it arrives. 0 and 1, whose clock is 3 ahead, share a collective, 1 and 2 none."""
    groups = {"a": [0, 1], "p": [0, 1, 2]}
    to = {"Dst Rank": 1}
    calls: dict[int, list[Call]] = {
        0: [("a", 100), ("p", 200, to), ("p", 300, to)],
        1: [("a", 103), ("p", 243, {"Src Rank": 0}), ("p", 343, {"Src Rank": 0}), ("p", 403, {"Dst Rank": 2})],
        2: [("p", 440, {"Src Rank": 1})],
    }
    assert residuals([part(write, rank, own, groups) for rank, own in calls.items()]) == [(0, 0), (3, 1), (40, 1)]
