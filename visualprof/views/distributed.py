"""Distributed: computation, communication and their overlap on every rank, collectives, stragglers."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, columns_of, from_rows
from visualprof.views.measure.devices import DeviceSummary
from visualprof.views.measure.groups import group
from visualprof.views.measure.links import links, slow_links
from visualprof.views.measure.meetings import bus_bytes
from visualprof.views.measure.processes import LACKS, part_takes_part, takes_part
from visualprof.views.measure.rank_part import rank_part
from visualprof.views.measure.stragglers import Cause, Outlier, Unit, outliers, times
from visualprof.views.measure.whole_run import WholeRun, whole_run

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


def compute(run: WholeRun, params: Params) -> DistributedAnswer:
    """Time of every rank and step, its collectives, and whom the others wait for.

    Computation is the union of other kernels (of operators where nothing
    runs on a device), communication that of collectives, their host operators included; overlap is counted in both.
    Source: torch-tb-profiler, VisualDL; docs/views.md#distributed.
    """
    steps = _steps(run, params.step)
    return DistributedAnswer(
        columns=steps,
        ranks=Table(columns=_rank_means(steps)),
        collectives=Table(columns=_collectives(run)),
        waits=Table(columns=_waits(run, params.step)),
        devices=[
            RankDevice(rank=n, worker=worker, host=rank.host, **msgspec.structs.asdict(device))
            for n, worker, rank in zip(run.where.numbers, run.workers, run.ranks, strict=True)
            for device in rank.devices
        ],
        stragglers=_stragglers(run),
        missing_ranks=_missing(run),
        notes=_notes(run),
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


def _steps(run: WholeRun, step: str) -> RankColumns:
    """Time of each rank in each step, or in one."""
    rows: list[tuple[int | str, ...]] = []
    for number, worker, rank in zip(run.where.numbers, run.workers, run.ranks, strict=True):
        total, a, b, c = rank.end - rank.start, rank.computation_ns, rank.communication_ns, rank.overlap_ns
        times: list[list[int]] = np.stack((total, a, b, c, total - a - b + c), axis=1).tolist()
        named = zip(rank.steps, times, strict=True)
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


def _waits(run: WholeRun, step: str) -> WaitColumns:
    """Time of each step in which matched collectives transfer, and in which they only wait."""
    rows: list[tuple[int, str, int, int]] = []
    for number, rank, spent in zip(run.where.numbers, run.ranks, run.spent, strict=True):
        if spent:
            named = zip(rank.steps, *(each.tolist() for each in spent), strict=True)
            rows += [(number, name, a, b) for name, a, b in named if step in ("", name)]
    return from_rows(WaitColumns, rows)


def _collectives(run: WholeRun) -> CollectiveColumns:
    """Collectives of each rank by name."""
    sums, numbers = run.by_name, np.array(run.where.numbers, np.int64)
    ids: list[int] = sums.name.tolist()
    texts = [run.names[i] for i in ids]
    order = np.lexsort((numbers[sums.rank], np.argsort(np.argsort(run.names))[sums.name]))
    sizes = np.array([rank.place.world_size for rank in run.ranks], np.int64)[sums.rank]
    members = np.where(sums.members > 0, sums.members, sizes)
    sized, known = sums.bytes >= 0, sums.transfer >= 0
    bandwidth = np.full(len(texts), np.nan)
    for i, name in enumerate(run.names):
        rows = np.flatnonzero((sums.name == i) & (sums.exchange > 0))
        moved = bus_bytes(name, sums.bytes[rows].astype(np.float64), members[rows])
        bandwidth[rows] = moved / sums.exchange[rows] * 1e9
    return CollectiveColumns(
        rank=numbers[sums.rank][order],
        name=[texts[i] for i in order.tolist()],
        calls=sums.calls[order],
        bytes=_where(sized, sums.bytes, order),
        mean_bytes=np.where(sized, sums.bytes / sums.calls, np.nan)[order],
        total_ns=sums.latency[order],
        mean_ns=(sums.latency / sums.calls)[order],
        transfer_ns=_where(known, sums.transfer, order),
        wait_ns=_where(known, sums.latency - sums.transfer, order),
        bus_bandwidth_bytes_per_s=bandwidth[order],
        event=sums.event[order],
    )


def _where(known: Mask, values: Ints, order: Ints) -> Ints | list[int | None]:
    """Whole numbers in an order, None of what is not known."""
    if known.all():
        return values[order]
    return [value if here else None for value, here in zip(values[order].tolist(), known[order].tolist(), strict=True)]


def _stragglers(run: WholeRun) -> list[Straggler]:
    """Who is late in the steps that can be compared, that which costs most first."""
    compared = times(run.ranks, run.comparable, run.where)
    if compared is None:
        return []
    slow = links(run.met, run.comparable, float(np.median(compared.total)))
    found = [*outliers(run.ranks, compared, run.where), *slow_links(run.met, slow, run.where)]
    found = sorted(found, key=lambda one: -float(one.excess[one.late].sum()))[:MOST_STRAGGLERS]
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


def _missing(run: WholeRun) -> list[int]:
    """Ranks that the files speak of and that are not there; at most 1,024 are named."""
    size = max((rank.place.world_size for rank in run.ranks), default=-1)
    return sorted(set(range(min(size, 1024))) - set(run.where.numbers)) if size > 0 else []


def _notes(run: WholeRun) -> list[str]:
    """Ids of oddities that the page explains."""
    several = len(run.ranks) > 1
    notes = {
        "different_steps": len({rank.steps for rank in run.ranks}) > 1,
        "unmatched": several and not run.comparable,
    }
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
    merge=whole_run,
    lacks=LACKS,
)
