"""Distributed: computation, communication and their overlap on every rank, collectives, stragglers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from visualprof.reader.trace import Floats
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, columns_of, from_rows
from visualprof.views.measure.collectives import Matched, match
from visualprof.views.measure.devices import DeviceSummary
from visualprof.views.measure.groups import group
from visualprof.views.measure.links import links, slow_links
from visualprof.views.measure.meetings import meetings
from visualprof.views.measure.process_groups import ProcessGroups, process_groups
from visualprof.views.measure.processes import LACKS, part_takes_part, processes, takes_part
from visualprof.views.measure.rank_figures import transfer_and_wait
from visualprof.views.measure.rank_part import RankPart, rank_part
from visualprof.views.measure.stragglers import Cause, Outlier, Unit, outliers, times

MOST_STRAGGLERS = 100


class RankColumns(Columns):
    """Time of each rank and step; overlap is in computation and in communication."""

    rank: kinds.Identifiers
    worker: kinds.Words
    step: kinds.Words
    total_ns: kinds.Durations
    computation_ns: kinds.Durations
    communication_ns: kinds.Durations
    overlap_ns: kinds.Durations
    other_ns: kinds.Durations


class RankMeanColumns(Columns):
    """Means of each rank over its steps. exposed_ns: communication that no computation hides."""

    rank: kinds.Identifiers
    worker: kinds.Words
    steps: kinds.Counts
    total_ns: kinds.Durations
    computation_ns: kinds.Durations
    communication_ns: kinds.Durations
    exposed_ns: kinds.Durations


class CollectiveColumns(Columns):
    """Collectives of each rank by name. Times are sums over the calls. event: the longest call's row."""

    rank: kinds.Identifiers
    name: kinds.Names
    calls: kinds.Counts
    bytes: kinds.Sizes
    mean_bytes: kinds.Sizes
    total_ns: kinds.Durations
    mean_ns: kinds.Durations
    transfer_ns: kinds.Durations
    wait_ns: kinds.Durations
    bus_bandwidth_bytes_per_s: kinds.Bandwidths
    event: kinds.Identifiers


class WaitColumns(Columns):
    """Time of each rank and step in which matched collectives transfer, and in which they only wait."""

    rank: kinds.Identifiers
    step: kinds.Words
    transfer_ns: kinds.Durations
    wait_ns: kinds.Durations


class RankDevice(DeviceSummary, frozen=True, kw_only=True):
    """A device of a rank."""

    rank: kinds.Identifier
    worker: str
    host: str


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


class DistributedAnswer(Table[RankColumns]):
    """All ranks of a run. notes: ids of oddities that the page explains."""

    ranks: Table[RankMeanColumns]
    collectives: Table[CollectiveColumns]
    waits: Table[WaitColumns]
    devices: list[RankDevice]
    stragglers: list[Straggler]
    missing_ranks: list[kinds.Identifier]
    notes: list[str]


def compute(ranks: Sequence[tuple[str, RankPart]], params: Params) -> DistributedAnswer:
    """Time of every rank and step, its collectives, and whom the others wait for.

    Computation is the union of other kernels (of operators where nothing
    runs on a device), communication that of collectives, their host operators included; overlap is counted in both.
    Source: torch-tb-profiler, VisualDL; docs/views.md#distributed.
    """
    ordered, numbers = processes(ranks, lambda part: part.place)
    parts = [part for _, part in ordered]
    matched = match([part.calls for part in parts])
    steps = _steps(ordered, numbers, params.step)
    shared = _comparable(parts, matched)
    return DistributedAnswer(
        columns=steps,
        ranks=Table(columns=_rank_means(steps)),
        collectives=Table(columns=_collectives(parts, numbers, matched)),
        waits=Table(columns=_waits(parts, numbers, matched, params.step)),
        devices=[
            RankDevice(rank=n, worker=worker, host=part.host, **msgspec.structs.asdict(device))
            for n, (worker, part) in zip(numbers, ordered, strict=True)
            for device in part.devices
        ],
        stragglers=_stragglers(parts, numbers, matched, shared, process_groups(ordered, numbers)),
        missing_ranks=_missing(parts, numbers),
        notes=_notes(parts, shared),
    )


def make_charts(result: DistributedAnswer, params: Params, top: int) -> dict[str, charts.Option]:
    """`overlap` and `waits`: stacked bars over ranks, averages over the steps."""
    parts = {
        "computation": ("computation_ns", "overlap_ns"), "overlap": ("overlap_ns", None),
        "communication": ("communication_ns", "overlap_ns"), "other": ("other_ns", None),
    }  # fmt: skip
    labels, means = _means(result.columns)
    series = [(f"@t:distributed.{n}", means[a] - (means[b] if b else 0)) for n, (a, b) in parts.items()]
    out = {"overlap": charts.bars(labels, series)}
    if len(result.waits):
        labels, means = _means(result.waits.columns)
        out["waits"] = charts.bars(labels, [(f"@t:distributed.{n}", means[f"{n}_ns"]) for n in ("transfer", "wait")])
    return out


def _means(columns: RankColumns | WaitColumns) -> tuple[list[str], dict[str, Floats]]:
    """Labels of the ranks and means of the numeric columns over their steps."""
    rank = np.asarray(columns.rank, np.int64)
    groups = group(rank)
    once = np.ones(len(rank))
    means: dict[str, Floats] = {
        k: groups.mean(np.asarray(v, np.float64), once) for k, v in columns_of(columns).items() if k.endswith("_ns")
    }
    return [str(r) for r in rank[groups.first].tolist()], means


def _steps(ranks: Sequence[tuple[str, RankPart]], numbers: list[int], step: str) -> RankColumns:
    """Time of each rank in each step, or in one."""
    rows: list[tuple[int | str, ...]] = []
    for number, (worker, part) in zip(numbers, ranks, strict=True):
        total, a, b, c = part.end - part.start, part.computation_ns, part.communication_ns, part.overlap_ns
        times: list[list[int]] = np.stack((total, a, b, c, total - a - b + c), axis=1).tolist()
        named = zip(part.steps, times, strict=True)
        rows += [(number, worker, name, *of_step) for name, of_step in named if step in ("", name)]
    return from_rows(RankColumns, rows)


def _rank_means(steps: RankColumns) -> RankMeanColumns:
    rank = np.asarray(steps.rank, np.int64)
    groups = group(rank)
    times = (steps.total_ns, steps.computation_ns, steps.communication_ns, steps.overlap_ns)
    once = np.ones(len(rank))
    total, computation, communication, overlap = (groups.mean(np.asarray(time, np.float64), once) for time in times)
    return RankMeanColumns(
        rank=rank[groups.first],
        worker=[steps.worker[row] for row in groups.first.tolist()],
        steps=groups.count,
        total_ns=total,
        computation_ns=computation,
        communication_ns=communication,
        exposed_ns=communication - overlap,
    )


def _waits(parts: list[RankPart], numbers: list[int], matched: list[Matched], step: str) -> WaitColumns:
    """Time of each step in which matched collectives transfer, and in which they only wait."""
    rows: list[tuple[int, str, int, int]] = []
    for number, part, mine in zip(numbers, parts, matched, strict=True):
        spent = transfer_and_wait(part, mine)
        if spent is None:
            continue
        named = zip(part.steps, *(each.tolist() for each in spent), strict=True)
        rows += [(number, name, a, b) for name, a, b in named if step in ("", name)]
    return from_rows(WaitColumns, rows)


def _collectives(parts: list[RankPart], numbers: list[int], matched: list[Matched]) -> CollectiveColumns:
    """Collectives of each rank by name."""
    known = zip(numbers, matched, parts, strict=True)
    rows = [row for number, mine, part in known for row in _of_rank(number, mine, part.place.world_size)]
    return from_rows(CollectiveColumns, sorted(rows, key=lambda row: (row[1], row[0])))


def _of_rank(number: int, mine: Matched, world_size: int) -> Iterator[tuple[Any, ...]]:
    """The rows of one rank. Times are sums over the calls, each over its own span, whatever runs beside it."""
    calls = mine.calls
    latency, groups = mine.latency, group(calls.name)
    longest = groups.largest(latency)
    summed, told = (calls.bytes, latency, mine.transfer, mine.exchange), (calls.bytes, mine.transfer)
    sums: list[list[int]] = [groups.sum(values).tolist() for values in summed]
    complete: list[list[bool]] = [(groups.min(values) >= 0).tolist() for values in told]
    members: list[int] = groups.max(calls.group_size).tolist()
    ids: list[int] = calls.name[groups.first].tolist()
    names = [calls.names[i] for i in ids]
    columns = zip(names, groups.count.tolist(), *sums, *complete, members, calls.event[longest].tolist(), strict=True)
    for name, count, size, total, transfer, exchange, is_sized, is_matched, group_size, event in columns:
        nbytes, moved = size if is_sized else None, transfer if is_matched else None
        bandwidth = _bus(name, nbytes, exchange, group_size if group_size > 0 else world_size)
        wait = None if moved is None else total - moved
        mean_bytes = None if nbytes is None else nbytes / count
        yield number, name, count, nbytes, mean_bytes, total, total / count, moved, wait, bandwidth, event


def _bus(name: str, nbytes: int | None, spent: int, members: int) -> float | None:
    """Bytes per second as nccl-tests defines it; None where the size, the time or the group is not known."""
    if not nbytes or not spent or members < 2:
        return None
    factor, word = 1.0, name.replace("_", "").lower()
    if "allreduce" in word:
        factor = 2 * (members - 1) / members
    elif any(kind in word for kind in ("gather", "scatter", "toall")):
        factor = (members - 1) / members
    return nbytes * factor / spent * 1e9


def _stragglers(
    parts: list[RankPart], numbers: list[int], matched: list[Matched], steps: list[str], where: ProcessGroups
) -> list[Straggler]:
    """Who is late in the steps that can be compared, that which costs most first."""
    compared = times(parts, steps, where)
    if compared is None:
        return []
    met = meetings(parts, numbers, matched, where)
    slow = links(met, steps, float(np.median(compared.total)))
    found = [*outliers(parts, compared, where), *slow_links(met, slow, numbers, where)]
    found = sorted(found, key=lambda one: -float(one.excess[one.late].sum()))[:MOST_STRAGGLERS]
    return [_straggler(one, parts, numbers, matched, steps, where) for one in found]


def _straggler(
    one: Outlier,
    parts: list[RankPart],
    numbers: list[int],
    matched: list[Matched],
    steps: list[str],
    where: ProcessGroups,
) -> Straggler:
    rows: list[int] = one.members.tolist()
    ranks = [numbers[row] for row in rows]
    late = [name for name, is_late in zip(steps, one.late.tolist(), strict=True) if is_late]
    collective, waited = _waited(set(ranks), parts, numbers, matched, late, where)
    computation, loading, host = (round(ns) for ns in one.parts)
    return Straggler(
        unit=one.unit,
        name=one.name,
        rank=ranks[0],
        ranks=ranks,
        hosts=sorted({where.hosts[row] for row in rows} - {""}),
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


def _waited(
    ranks: set[int],
    parts: list[RankPart],
    numbers: list[int],
    matched: list[Matched],
    late: list[str],
    where: ProcessGroups,
) -> tuple[str, int | None]:
    """The collective in which the other ranks of some ranks' groups wait for most, and ns each in a late step."""
    met = [one for one in where.groups if not ranks.isdisjoint(one.members) and one.role != "world"]
    others = {rank for one in met for rank in one.present} - ranks or set(numbers) - ranks
    waits: Counter[str] = Counter()
    for number, part, mine in zip(numbers, parts, matched, strict=True):
        if number in others:
            calls = mine.calls
            first = np.searchsorted(calls.call, np.arange(len(calls)))
            steps = [part.steps.index(name) for name in late]
            wait = np.where(mine.transfer >= 0, mine.latency - mine.transfer, 0)
            chosen = np.isin(part.step[first], steps)
            spent = np.bincount(calls.name[chosen], wait[chosen], len(calls.names)).tolist()
            for name, ns in zip(calls.names, spent, strict=True):
                waits[name] += ns
    name, ns = max(waits.items(), key=lambda one: one[1], default=("", 0))
    return (name, round(ns / len(others) / len(late))) if ns > 0 else ("", None)


def _comparable(parts: list[RankPart], matched: list[Matched]) -> list[str]:
    """The steps in which the ranks share collectives, and each all of its own."""
    names = list[set[str]]()
    for part, mine in zip(parts, matched, strict=True):
        some, alone = (
            np.bincount(part.step[mine.calls.exchanges & chosen] + 1, minlength=len(part.steps) + 1)[1:]
            for chosen in (mine.part >= 0, mine.part == -1)
        )
        names.append({name for name, a, b in zip(part.steps, some, alone, strict=True) if a and not b})
    return [name for name in parts[0].steps if all(name in own for own in names)] if len(parts) > 1 else []


def _missing(parts: list[RankPart], numbers: list[int]) -> list[int]:
    """Ranks that the files speak of and that are not there; at most 1,024 are named."""
    size = max((part.place.world_size for part in parts), default=-1)
    return sorted(set(range(min(size, 1024))) - set(numbers)) if size > 0 else []


def _notes(parts: list[RankPart], shared: list[str]) -> list[str]:
    """Ids of oddities that the page explains."""
    notes = {"different_steps": len({part.steps for part in parts}) > 1, "unmatched": len(parts) > 1 and not shared}
    return [name for name, holds in notes.items() if holds]


VIEW = View(
    "distributed",
    55,
    takes_part,
    Params,
    compute,
    make_charts,
    subject="run",
    part=rank_part,
    shows=part_takes_part,
    lacks=LACKS,
)
