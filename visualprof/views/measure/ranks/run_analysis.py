"""Analysis of all ranks of a run: matched calls and what is derived from them. The views of a run share it.

It keeps no calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Ints
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import covered_ns, union
from visualprof.views.measure.ranks.call_matching import CallTransfers, call_transfers
from visualprof.views.measure.ranks.communication_events import CommunicationEvents, communication_events
from visualprof.views.measure.ranks.pipelines import count_microbatches
from visualprof.views.measure.ranks.process_groups import ProcessGroups, find_process_groups
from visualprof.views.measure.ranks.processes import ordered_ranks
from visualprof.views.measure.ranks.rank_metrics import RankMetrics, TransferAndWait, rank_metrics
from visualprof.views.measure.ranks.rank_summary import RankSteps, RankSummary
from visualprof.views.measure.ranks.transfer_stats import CollectiveTotals, WaitTotals, collective_totals, wait_totals


class RunAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """The r ranks of a run, in the order of their numbers.

    Attributes:
        workers: (r,) names.
        ranks: (r,) steps of each rank.
        process_groups: The process groups.
        comparable_steps: Steps in which all ranks share collectives, and each rank has all of its
            own.
        transfer_and_wait: (r,) ns per step in which matched collectives transfer, and in which they
            only wait; `None` without matched collectives.
        exposed_wait: (r,) ns per step of exposed communication in which a rank waits for others;
            `None` without matched collectives.
        collective_names: Names used by `collective_totals` and `wait_totals`.
        collective_totals: Sums of the calls.
        wait_totals: Wait times; their steps are those of `communication_events`.
        communication_events: Matched calls.
        microbatches: Microbatches per step, `None` if they cannot be counted.
        metrics: Metrics per rank and step.
    """

    workers: tuple[str, ...]
    ranks: tuple[RankSteps, ...]
    process_groups: ProcessGroups
    comparable_steps: tuple[str, ...]
    transfer_and_wait: tuple[TransferAndWait | None, ...]
    exposed_wait: tuple[Ints | None, ...]
    collective_names: tuple[str, ...]
    collective_totals: CollectiveTotals
    wait_totals: WaitTotals
    communication_events: CommunicationEvents
    microbatches: int | None
    metrics: RankMetrics

    def waiting_share(self, worker: str) -> float | None:
        """Return the share of waiting in the exposed communication of a rank, `None` if unknown."""
        if len(self.ranks) < 2 or self.workers.count(worker) != 1:
            return None
        row = self.workers.index(worker)
        rank, waits = self.ranks[row], self.exposed_wait[row]
        exposed = float((rank.communication_ns - rank.overlap_ns).sum())
        return None if waits is None or not exposed else float(waits.sum()) / exposed


def analyze_run(ranks: Sequence[tuple[str, RankSummary]]) -> RunAnalysis:
    """Return the analysis of the workers of a run and their summaries."""
    ordered, numbers = ordered_ranks(ranks, lambda summary: summary.location)
    workers, summaries = tuple(worker for worker, _ in ordered), [summary for _, summary in ordered]
    transfers = call_transfers([summary.collectives for summary in summaries])
    calls = transfers.calls
    groups = find_process_groups(ordered, numbers, calls)
    names, part_step = _run_steps(summaries)
    call_step = part_step[calls.first_part]
    times = tuple(
        transfer_and_wait(summary, transfers.part_transfer_ns[part_slice])
        for summary, part_slice in zip(summaries, calls.rank_slices(parts=True), strict=True)
    )
    rank_steps = tuple(summary.without_collectives() for summary in summaries)
    return RunAnalysis(
        workers=workers,
        ranks=rank_steps,
        process_groups=groups,
        comparable_steps=_comparable_steps(summaries, names, part_step, transfers),
        transfer_and_wait=times,
        exposed_wait=tuple(
            exposed_wait_ns(summary, transfers.part_transfer_ns[part_slice])
            for summary, part_slice in zip(summaries, calls.rank_slices(parts=True), strict=True)
        ),
        collective_names=calls.names,
        collective_totals=collective_totals(transfers),
        wait_totals=wait_totals(transfers, call_step, groups.group_indices(calls.groups)),
        communication_events=communication_events(transfers, names, call_step, groups),
        microbatches=count_microbatches(calls, call_step, rank_steps, groups),
        metrics=rank_metrics(workers, rank_steps, times, groups),
    )


def transfer_and_wait(summary: RankSummary, part_transfer: Ints) -> TransferAndWait | None:
    """Return the time per step in which matched collectives transfer, and in which they only wait; `None` without any.

    Each part of a call transfers at its end, for as long as the fastest rank took; before that it
    waits.
    """
    is_matched = part_transfer >= 0
    if not is_matched.any():
        return None
    start, end = summary.collectives.part_start[is_matched], summary.collectives.part_end[is_matched]
    total, transferring = (
        covered_ns(union(part_start, end), summary.start, summary.end)
        for part_start in (start, end - part_transfer[is_matched])
    )
    return transferring, total - transferring


def exposed_wait_ns(summary: RankSummary, part_transfer: Ints) -> Ints | None:
    """Return the exposed communication per step (n,) in which a rank waits for others; `None` if nothing matched.

    A part of a call waits first and transfers at its end. Computation that overlaps with the part is taken to cover its
    beginning, as when the backward pass continues during a reduction: so the last of the exposed time is the transfer.
    """
    rows = np.flatnonzero((part_transfer >= 0) & (summary.part_step >= 0))
    if not len(rows):
        return None
    step, exposed, count = summary.part_step[rows], summary.part_exposed_ns[rows], len(summary.steps)
    waiting = np.bincount(step, np.maximum(exposed - part_transfer[rows], 0), count)
    share = waiting / np.maximum(np.bincount(step, exposed, count), 1)  # parts of several streams may overlap
    return np.rint(share * (summary.communication_ns - summary.overlap_ns)).astype(np.int64)


def _run_steps(summaries: Sequence[RankSummary]) -> tuple[tuple[str, ...], Ints]:
    """Return the names of the steps of all ranks, and the index of the step of each part of a call, -1 for none."""
    steps = {
        name: index for index, name in enumerate(dict.fromkeys(name for summary in summaries for name in summary.steps))
    }
    step_columns = [
        np.array([*(steps[name] for name in summary.steps), -1], np.int64)[summary.part_step] for summary in summaries
    ]
    return tuple(steps), np.concatenate([np.zeros(0, np.int64), *step_columns])


def _comparable_steps(
    summaries: Sequence[RankSummary], names: Sequence[str], step: Ints, transfers: CallTransfers
) -> tuple[str, ...]:
    """Return the steps that can be compared between all ranks."""
    if len(summaries) < 2:
        return ()
    calls = transfers.calls
    rows = np.flatnonzero(calls.is_transfer & (step >= 0) & (calls.part_id >= -1))
    by_rank_and_step = group(calls.rank[calls.part_call[rows]], step[rows])
    all_matched = by_rank_and_step.min(calls.part_id[rows]) >= 0
    complete_ranks = np.bincount(step[rows[by_rank_and_step.first]], all_matched, len(names))
    index_of = {name: i for i, name in enumerate(names)}
    return tuple(name for name in summaries[0].steps if complete_ranks[index_of[name]] == len(summaries))
