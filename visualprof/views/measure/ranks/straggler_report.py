"""Stragglers of a run with their evidence, as the API returns them."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.views.answers import kinds
from visualprof.views.measure.ranks.link_times import link_times, slow_links
from visualprof.views.measure.ranks.rank_times import rank_times
from visualprof.views.measure.ranks.run_analysis import RunAnalysis
from visualprof.views.measure.ranks.stragglers import Cause, Outlier, Unit, find_outliers

MAX_STRAGGLERS = 100


class Straggler(msgspec.Struct):
    """Ranks that the others wait for, because their self time is longer than that of their peers.

    Self time is all time except exposed communication. Peers are the ranks at the same position in
    other groups. "" and null mean unknown.

    Attributes:
        unit: What the ranks are together.
        name: Name of the host or group, or number of the stage.
        rank: The first of `ranks`.
        own_excess_ns: Mean self time per step minus the median of the peers.
        late_excess_ns: The same in a late step.
        steps_late: Number of late steps.
        late_steps: The first 100 late steps.
        computation_excess_ns: Additional computation in a late step.
        input_excess_ns: Additional data loading without other work.
        host_excess_ns: Additional time with neither of these nor communication.
        cause: The one of these that explains at least 80 % of the excess. For computation it is
            `work` if the kernels have more blocks, `device` if they have as many, and `computation`
            if blocks are not recorded. `link` if the excess is that of a slow collective.
        kernel: Kernel with the largest excess.
        kernel_excess_ns: Its excess in a late step.
        slower: For a slow link, how many times as long the collective takes as others of the same
            size.
        collective: Collective in which the other ranks of the groups wait most.
        waited_ns: Wait time of each of them in a late step.
    """

    unit: Unit
    name: str
    rank: kinds.Identifier
    ranks: list[kinds.Identifier]
    hosts: list[str]
    own_excess_ns: kinds.Duration
    late_excess_ns: kinds.Duration
    steps_late: kinds.Count
    steps: kinds.Count
    late_steps: list[str]
    computation_excess_ns: kinds.Duration
    input_excess_ns: kinds.Duration
    host_excess_ns: kinds.Duration
    cause: Cause
    kernel: kinds.Name
    kernel_excess_ns: kinds.Duration | None
    slower: kinds.Ratio | None
    collective: str
    waited_ns: kinds.Duration | None


def straggler_report(run: RunAnalysis) -> list[Straggler]:
    """Return the stragglers in the steps that can be compared, the most expensive first."""
    times = rank_times(run.ranks, run.comparable_steps, run.process_groups)
    if times is None:
        return []
    link_stats = link_times(run.communication_events, run.comparable_steps, float(np.median(times.total)))
    stragglers = [
        *find_outliers(run.ranks, times, run.process_groups),
        *slow_links(run.communication_events, link_stats, run.process_groups),
    ]
    stragglers = sorted(stragglers, key=lambda outlier: -float(outlier.excess_ns[outlier.is_late].sum()))[
        :MAX_STRAGGLERS
    ]
    return [_straggler(outlier, run) for outlier in stragglers]


def _straggler(outlier: Outlier, run: RunAnalysis) -> Straggler:
    """Return one straggler with its evidence."""
    rows: list[int] = outlier.members.tolist()
    ranks, steps = [run.process_groups.ranks[row] for row in rows], run.comparable_steps
    late_steps = [name for name, is_late in zip(steps, outlier.is_late.tolist(), strict=True) if is_late]
    collective, waited = _longest_wait(set(ranks), late_steps, run)
    computation_ns, input_ns, host_ns = (round(ns) for ns in outlier.part_excess_ns)
    return Straggler(
        unit=outlier.unit,
        name=outlier.name,
        rank=ranks[0],
        ranks=ranks,
        hosts=sorted({run.process_groups.hosts[row] for row in rows} - {""}),
        own_excess_ns=round(float(outlier.excess_ns.mean())),
        late_excess_ns=round(float(outlier.excess_ns[outlier.is_late].mean())),
        steps_late=len(late_steps),
        steps=len(steps),
        late_steps=late_steps[:100],
        computation_excess_ns=computation_ns,
        input_excess_ns=input_ns,
        host_excess_ns=host_ns,
        cause=outlier.cause,
        kernel=outlier.kernel,
        kernel_excess_ns=round(outlier.kernel_ns) if outlier.kernel else None,
        slower=outlier.slowdown or None,
        collective=outlier.collective or collective,
        waited_ns=waited,
    )


def _longest_wait(ranks: set[int], late_steps: list[str], run: RunAnalysis) -> tuple[str, int | None]:
    """Return the collective in which the peers of some ranks wait most, and the wait time of each.

    Peers are the other ranks of the groups; the time is in ns per late step.
    """
    all_ranks, waits = run.process_groups.ranks, run.wait_totals
    shared_groups = [
        process_group
        for process_group in run.process_groups.groups
        if not ranks.isdisjoint(process_group.members) and process_group.role != "world"
    ]
    peers = {rank for process_group in shared_groups for rank in process_group.profiled_members} - ranks or set(
        all_ranks
    ) - ranks
    is_peer = np.array([rank in peers for rank in all_ranks], bool)
    is_late_step = np.array([*(name in late_steps for name in run.communication_events.steps), False], bool)
    rows = is_peer[waits.rank] & is_late_step[waits.step]
    total_wait = np.bincount(waits.name[rows], waits.ns[rows], len(run.collective_names))
    longest = int(total_wait.argmax()) if len(total_wait) else 0
    return (
        (run.collective_names[longest], round(total_wait[longest] / len(peers) / len(late_steps)))
        if total_wait.any()
        else ("", None)
    )
