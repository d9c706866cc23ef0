"""Whom a run waits for, with the evidence: as it is answered."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.views.answers import kinds
from visualprof.views.measure.link_times import link_times, slow_links
from visualprof.views.measure.run_analysis import RunAnalysis
from visualprof.views.measure.stragglers import Cause, Outlier, Unit, find_outliers, rank_times

MAX_STRAGGLERS = 100


class Straggler(msgspec.Struct):
    """Ranks that the others wait for: their own time, that in which they do not only communicate, is longer.

    It is longer than that of the ranks in the same place of other groups, in the steps that are late. unit: what they
    are together; name: of a host or group, the number of a stage. rank: the first of ranks. own_excess_ns: their own
    time of a step on average less the median of the others'; late_excess_ns: that of a late step. steps_late: how many
    are, late_steps: the first 100 of them. computation_excess_ns, input_excess_ns, host_excess_ns: how much more of
    computation, of data loading beside no other work, and of time with neither of these nor communication their late
    steps have. cause: which of them makes up for 80 % of that or more; of computation `work` where the kernels have
    more blocks, `device` where they have as many, itself where that is not recorded. kernel: what takes longer by the
    most, by kernel_excess_ns of a late step. collective: in which the others of their groups wait for most, waited_ns
    each in a late step. Of a slow link (cause `link`) all excess is of its collective, which takes so many times as
    long (slower) as others of the same size. "", null: not known.
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
    kernel: str
    kernel_excess_ns: kinds.Duration | None
    slower: kinds.Ratio | None
    collective: str
    waited_ns: kinds.Duration | None


def straggler_report(run: RunAnalysis) -> list[Straggler]:
    """Who is late in the steps that can be compared, that which costs most first."""
    compared = rank_times(run.ranks, run.comparable_steps, run.process_groups)
    if compared is None:
        return []
    slow = link_times(run.communication_events, run.comparable_steps, float(np.median(compared.total)))
    found = [
        *find_outliers(run.ranks, compared, run.process_groups),
        *slow_links(run.communication_events, slow, run.process_groups),
    ]
    found = sorted(found, key=lambda one: -float(one.excess_ns[one.is_late].sum()))[:MAX_STRAGGLERS]
    return [_straggler(one, run) for one in found]


def _straggler(one: Outlier, run: RunAnalysis) -> Straggler:
    rows: list[int] = one.members.tolist()
    ranks, steps = [run.process_groups.ranks[row] for row in rows], run.comparable_steps
    late = [name for name, is_late in zip(steps, one.is_late.tolist(), strict=True) if is_late]
    collective, waited = _waited(set(ranks), late, run)
    computation, loading, host = (round(ns) for ns in one.part_excess_ns)
    return Straggler(
        unit=one.unit,
        name=one.name,
        rank=ranks[0],
        ranks=ranks,
        hosts=sorted({run.process_groups.hosts[row] for row in rows} - {""}),
        own_excess_ns=round(float(one.excess_ns.mean())),
        late_excess_ns=round(float(one.excess_ns[one.is_late].mean())),
        steps_late=len(late),
        steps=len(steps),
        late_steps=late[:100],
        computation_excess_ns=computation,
        input_excess_ns=loading,
        host_excess_ns=host,
        cause=one.cause,
        kernel=one.kernel,
        kernel_excess_ns=round(one.kernel_ns) if one.kernel else None,
        slower=one.slowdown or None,
        collective=one.collective or collective,
        waited_ns=waited,
    )


def _waited(ranks: set[int], late: list[str], run: RunAnalysis) -> tuple[str, int | None]:
    """The collective in which the other ranks of some ranks' groups wait for most, and ns each in a late step."""
    numbers, waits = run.process_groups.ranks, run.wait_totals
    met = [one for one in run.process_groups.groups if not ranks.isdisjoint(one.members) and one.role != "world"]
    others = {rank for one in met for rank in one.profiled_members} - ranks or set(numbers) - ranks
    waiting = np.array([number in others for number in numbers], bool)
    in_late = np.array([*(name in late for name in run.communication_events.steps), False], bool)
    rows = waiting[waits.rank] & in_late[waits.step]
    spent = np.bincount(waits.name[rows], waits.ns[rows], len(run.collective_names))
    most = int(spent.argmax()) if len(spent) else 0
    return (run.collective_names[most], round(spent[most] / len(others) / len(late))) if spent.any() else ("", None)
