"""Distributed: computation, communication and their overlap on every rank, collectives, stragglers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, columns_of, from_rows
from visualprof.views.measure.collectives import Matched, match
from visualprof.views.measure.devices import DeviceSummary
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import covered, subtract, union
from visualprof.views.measure.processes import processes, takes_part
from visualprof.views.measure.rank_part import RankPart, rank_part

Cause = Literal["input", "host", "device", "work", "computation", "unknown"]
MORE_OWN = 0.02  # of a step: a rank whose own time is longer than the others' by more is a straggler
EXPLAINS = 0.8  # of that, which the cause makes up for; as traceml has it
MORE = 0.02  # blocks of kernels than the others have: more work


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
    """A rank that the others wait for: its own time, that in which it does not only communicate, is longer than theirs.

    own_excess_ns: its own time of a step on average less the median of the others'. steps_most: in how many steps it
    has most. computation_excess_ns, input_excess_ns, host_excess_ns: how much more
    of computation, of data loading beside no other work, and of time with neither of these nor communication its steps
    have than the median of the others. cause: which of them makes up for 80 % of that or more; of computation
    `work` where its kernels have more blocks, `device` where they have as many, itself where that is not recorded.
    """

    rank: kinds.Identifier
    own_excess_ns: kinds.Duration
    steps_most: kinds.Count
    steps: kinds.Count
    computation_excess_ns: kinds.Duration
    input_excess_ns: kinds.Duration
    host_excess_ns: kinds.Duration
    cause: Cause


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
        stragglers=_stragglers(parts, numbers, shared, steps),
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
    """Time of each step in which matched collectives transfer, and in which they only wait.

    Each part of a call transfers at its end, for as long as the fastest rank took; before that it waits.
    """
    rows: list[tuple[int, str, int, int]] = []
    for number, part, mine in zip(numbers, parts, matched, strict=True):
        known = mine.part_transfer >= 0
        if not known.any():
            continue
        start, end = mine.calls.start[known], mine.calls.end[known]
        transferring = union(end - mine.part_transfer[known], end)
        waiting = subtract(union(start, end), transferring)
        times = (covered(spans, part.start, part.end).tolist() for spans in (transferring, waiting))
        named = zip(part.steps, *times, strict=True)
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
    latency, groups = calls.latency(), group(calls.name)
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


def _stragglers(ranks: list[RankPart], numbers: list[int], shared: list[str], steps: RankColumns) -> list[Straggler]:
    """Ranks with most own time in most of the steps that can be compared."""
    rows = {key: row for row, key in enumerate(zip(steps.rank, steps.step, strict=True))}
    place = np.array([[rows[n, s] for s in shared if (n, s) in rows] for n in numbers], np.int64)
    if len(ranks) < 2 or not place.size:
        return []
    computation, other, total = (
        np.asarray(values, np.float64)[place] for values in (steps.computation_ns, steps.other_ns, steps.total_ns)
    )
    own = computation + other
    loading = np.array([part.loading_ns for part in ranks])
    parts = np.stack(
        [_excess(values) for values in (computation.mean(axis=1), loading, other.mean(axis=1) - loading)], axis=1
    )
    blocks = np.array([part.blocks for part in ranks])
    more = _excess(blocks) / np.maximum(blocks, 1e-9)
    most, excess = own.argmax(axis=0), _excess(own.mean(axis=1))
    return [
        Straggler(
            rank=numbers[i],
            own_excess_ns=round(float(excess[i])),
            steps_most=int((most == i).sum()),
            steps=place.shape[1],
            computation_excess_ns=round(float(parts[i, 0])),
            input_excess_ns=round(float(parts[i, 1])),
            host_excess_ns=round(float(parts[i, 2])),
            cause=_cause(float(excess[i]), parts[i], float(more[i])),
        )
        for i in sorted(range(len(ranks)), key=lambda i: -excess[i])
        if excess[i] > MORE_OWN * total.mean() and (most == i).mean() >= 0.5
    ]


def _excess(values: Floats) -> Floats:
    """By how much each rank (first axis) exceeds the median of the others."""
    order = np.argsort(values, axis=0)
    place = np.argsort(order, axis=0)
    rising, others = np.take_along_axis(values, order, axis=0), len(values) - 1
    low, high = (  # of the others in their order: a rank itself is passed over
        np.take_along_axis(rising, middle + (place <= middle), axis=0) for middle in ((others - 1) // 2, others // 2)
    )
    return values - (low + high) / 2


def _cause(own: float, excess: Floats, more: float) -> Cause:
    """What a rank does longer than the others, if that makes up for its own time's excess.

    Args: own, excess: ns of all, and of computation, data loading, and neither. more: share of its kernels' blocks
    beyond the others'.
    """
    most = int(excess.argmax())
    if excess[most] < EXPLAINS * own:
        return "unknown"
    if most:
        return "input" if most == 1 else "host"
    return "computation" if np.isnan(more) else "work" if more > MORE else "device"


def _comparable(parts: list[RankPart], matched: list[Matched]) -> list[str]:
    """The steps in which the ranks share collectives, and each all of its own."""
    names = list[set[str]]()
    for part, mine in zip(parts, matched, strict=True):
        some, alone = (
            np.bincount(part.step[mine.calls.exchanges & chosen] + 1, minlength=len(part.steps) + 1)[1:]
            for chosen in (mine.part >= 0, mine.part < 0)
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


VIEW = View("distributed", 55, takes_part, Params, compute, make_charts, subject="run", part=rank_part)
