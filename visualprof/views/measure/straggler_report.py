"""Whom a run waits for, with the evidence: as it is answered."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.views.answers import kinds
from visualprof.views.measure.link_times import links, slow_links
from visualprof.views.measure.run_analysis import WholeRun
from visualprof.views.measure.stragglers import Cause, Outlier, Unit, outliers, times

MOST = 100


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


def stragglers_of(run: WholeRun) -> list[Straggler]:
    """Who is late in the steps that can be compared, that which costs most first."""
    compared = times(run.ranks, run.comparable, run.where)
    if compared is None:
        return []
    slow = links(run.met, run.comparable, float(np.median(compared.total)))
    found = [*outliers(run.ranks, compared, run.where), *slow_links(run.met, slow, run.where)]
    found = sorted(found, key=lambda one: -float(one.excess[one.late].sum()))[:MOST]
    return [_straggler(one, run) for one in found]


def _straggler(one: Outlier, run: WholeRun) -> Straggler:
    rows: list[int] = one.members.tolist()
    ranks, steps = [run.where.numbers[row] for row in rows], run.comparable
    late = [name for name, is_late in zip(steps, one.late.tolist(), strict=True) if is_late]
    collective, waited = _waited(set(ranks), late, run)
    computation, loading, host = (round(ns) for ns in one.parts)
    return Straggler(
        unit=one.unit,
        name=one.name,
        rank=ranks[0],
        ranks=ranks,
        hosts=sorted({run.where.hosts[row] for row in rows} - {""}),
        own_excess_ns=round(float(one.excess.mean())),
        late_excess_ns=round(float(one.excess[one.late].mean())),
        steps_late=len(late),
        steps=len(steps),
        late_steps=late[:100],
        computation_excess_ns=computation,
        input_excess_ns=loading,
        host_excess_ns=host,
        cause=one.cause,
        kernel=one.kernel,
        kernel_excess_ns=round(one.kernel_ns) if one.kernel else None,
        slower=one.slower or None,
        collective=one.exchange or collective,
        waited_ns=waited,
    )


def _waited(ranks: set[int], late: list[str], run: WholeRun) -> tuple[str, int | None]:
    """The collective in which the other ranks of some ranks' groups wait for most, and ns each in a late step."""
    numbers, waits = run.where.numbers, run.waits
    met = [one for one in run.where.groups if not ranks.isdisjoint(one.members) and one.role != "world"]
    others = {rank for one in met for rank in one.present} - ranks or set(numbers) - ranks
    waiting = np.array([number in others for number in numbers], bool)
    in_late = np.array([*(name in late for name in run.met.steps), False], bool)
    rows = waiting[waits.rank] & in_late[waits.step]
    spent = np.bincount(waits.name[rows], waits.ns[rows], len(run.names))
    most = int(spent.argmax()) if len(spent) else 0
    return (run.names[most], round(spent[most] / len(others) / len(late))) if spent.any() else ("", None)
