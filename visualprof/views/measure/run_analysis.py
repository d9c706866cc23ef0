"""All ranks of a run: whose calls meet, and what follows. The views of a run share it; it holds no call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Ints
from visualprof.views.measure.call_matching import CallTransfers, call_transfers
from visualprof.views.measure.communication_events import CommunicationEvents, communication_events
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import covered_ns, union
from visualprof.views.measure.pipelines import count_microbatches
from visualprof.views.measure.process_groups import ProcessGroups, find_process_groups
from visualprof.views.measure.processes import ordered_ranks
from visualprof.views.measure.rank_metrics import RankMetrics, TransferAndWait, rank_metrics
from visualprof.views.measure.rank_summary import RankSteps, RankSummary
from visualprof.views.measure.transfer_stats import CollectiveTotals, WaitTotals, collective_totals, wait_totals


class RunAnalysis(msgspec.Struct, frozen=True):
    """Ranks r of a run in the order of their numbers.

    workers, ranks: (r,). comparable: the steps in which the ranks share collectives, and each all of its own.
    spent: (r,) ns of each step in which matched collectives transfer, and in which they only wait; None without any.
    names: of the collectives in `by_name` and `waits`; the steps of `waits` are those of `met`.
    microbatches: of a step; None where they cannot be counted.
    """

    workers: tuple[str, ...]
    ranks: tuple[RankSteps, ...]
    process_groups: ProcessGroups
    comparable_steps: tuple[str, ...]
    transfer_and_wait: tuple[TransferAndWait | None, ...]
    collective_names: tuple[str, ...]
    collective_totals: CollectiveTotals
    wait_totals: WaitTotals
    communication_events: CommunicationEvents
    microbatches: int | None
    metrics: RankMetrics


def analyze_run(ranks: Sequence[tuple[str, RankSummary]]) -> RunAnalysis:
    """The run of some workers and their parts."""
    ordered, numbers = ordered_ranks(ranks, lambda part: part.location)
    workers, parts = tuple(worker for worker, _ in ordered), [part for _, part in ordered]
    matched = call_transfers([part.collectives for part in parts])
    calls = matched.calls
    where = find_process_groups(ordered, numbers, calls)
    names, part_step = _steps(parts)
    step = part_step[calls.first_part]
    spent = tuple(
        transfer_and_wait(part, matched.part_transfer_ns[mine])
        for part, mine in zip(parts, calls.rank_slices(parts=True), strict=True)
    )
    alone = tuple(part.without_collectives() for part in parts)
    return RunAnalysis(
        workers,
        alone,
        where,
        _comparable(parts, names, part_step, matched),
        spent,
        calls.names,
        collective_totals(matched),
        wait_totals(matched, step, where.group_indices(calls.groups)),
        communication_events(matched, names, step, where),
        count_microbatches(calls, step, alone, where),
        rank_metrics(workers, alone, spent, where),
    )


def transfer_and_wait(part: RankSummary, part_transfer: Ints) -> TransferAndWait | None:
    """Time of each step in which matched collectives transfer, and in which they only wait; None where there are none.

    Each part of a call transfers at its end, for as long as the fastest rank took; before that it waits.
    """
    known = part_transfer >= 0
    if not known.any():
        return None
    start, end = part.collectives.part_start[known], part.collectives.part_end[known]
    every, transferring = (
        covered_ns(union(low, end), part.start, part.end) for low in (start, end - part_transfer[known])
    )
    return transferring, every - transferring


def _steps(parts: Sequence[RankSummary]) -> tuple[tuple[str, ...], Ints]:
    """Names of the steps of all ranks, and the place among them of each part of a call, -1 for none."""
    steps = {name: i for i, name in enumerate(dict.fromkeys(name for part in parts for name in part.steps))}
    each = [np.array([*(steps[name] for name in part.steps), -1], np.int64)[part.part_step] for part in parts]
    return tuple(steps), np.concatenate([np.zeros(0, np.int64), *each])


def _comparable(
    parts: Sequence[RankSummary], names: Sequence[str], step: Ints, matched: CallTransfers
) -> tuple[str, ...]:
    if len(parts) < 2:
        return ()
    calls = matched.calls
    rows = np.flatnonzero(calls.is_transfer & (step >= 0) & (calls.part_id >= -1))
    same = group(calls.rank[calls.part_call[rows]], step[rows])
    shared = same.min(calls.part_id[rows]) >= 0
    count = np.bincount(step[rows[same.first]], shared, len(names))
    place = {name: i for i, name in enumerate(names)}
    return tuple(name for name in parts[0].steps if count[place[name]] == len(parts))
