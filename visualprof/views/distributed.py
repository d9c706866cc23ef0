"""Distributed: computation, communication and their overlap on every rank, collectives, stragglers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.logdir.layout import RECORDINGS
from visualprof.reader.trace import Category, Floats, Ints, Trace, TrackKind
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, columns_of, from_rows
from visualprof.views.measure.alignment import offsets
from visualprof.views.measure.collectives import Matched, collectives, match
from visualprof.views.measure.devices import DeviceSummary, device_summary
from visualprof.views.measure.intervals import covered, intersect, union
from visualprof.views.measure.steps import Windows, step_windows

Ranks = Sequence[tuple[str, Trace]]
LATE_SHARE = 0.02  # a rank that comes later than the others by this share of a step is a straggler


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


class CollectiveColumns(Columns):
    """Collectives of each rank by name. event: the longest call's row."""

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
    """Transfer and wait of the matched collectives of each rank and step."""

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
    """A rank that the others wait for.

    late_ns_per_step: its arrival at the first collective less the median of the others', averaged over the steps.
    steps_last: in how many of them it came last. computation_ratio: its computation over the mean of all ranks.
    """

    rank: kinds.Identifier
    late_ns_per_step: kinds.Duration
    steps_last: kinds.Count
    steps: kinds.Count
    computation_ratio: kinds.Ratio | None


class DistributedAnswer(Table[RankColumns]):
    """All ranks of a run. notes: ids of oddities that the page explains."""

    collectives: Table[CollectiveColumns]
    waits: Table[WaitColumns]
    devices: list[RankDevice]
    stragglers: list[Straggler]
    missing_ranks: list[kinds.Identifier]
    notes: list[str]


def needs(trace: Trace) -> bool:
    """At least one communication event, or a place among several ranks."""
    return bool((trace.events.category == Category.COMM).any()) or trace.meta.world_size > 1


def compute(ranks: Ranks, params: Params) -> DistributedAnswer:
    """Time of every rank and step, its collectives, and who is late.

    Computation is the union of other kernels (of operators where nothing
    runs on a device), communication that of collectives, their host operators included; overlap is counted in both.
    Source: torch-tb-profiler, VisualDL; docs/views.md#distributed.
    """
    ordered = sorted(_processes(ranks), key=lambda r: (r[1].meta.rank if r[1].meta.rank >= 0 else 1 << 30, r[0]))
    numbers = [t.meta.rank if t.meta.rank >= 0 else i for i, (_, t) in enumerate(ordered)]
    windows = [step_windows(t) for _, t in ordered]
    matched = match([collectives(t) for _, t in ordered])
    steps = _steps(ordered, numbers, windows, params.step)
    return DistributedAnswer(
        columns=steps,
        collectives=Table(columns=_collectives(ordered, numbers, matched)),
        waits=Table(columns=_waits(numbers, windows, matched, params.step)),
        devices=[
            RankDevice(rank=n, worker=w, host=t.meta.host, **msgspec.structs.asdict(d))
            for n, (w, t), win in zip(numbers, ordered, windows, strict=True)
            for d in device_summary(t, win)
        ],
        stragglers=_stragglers(ordered, numbers, windows, matched, steps),
        missing_ranks=_missing(ordered, numbers),
        notes=_notes(windows),
    )


def _processes(ranks: Ranks) -> Ranks:
    """The workers that are processes: of the recordings of one process that a remote run leaves, one counts."""
    recordings = [r for r in ranks if r[0] in RECORDINGS and needs(r[1])]
    recordings.sort(key=lambda r: RECORDINGS.index(r[0]))
    return [*(r for r in ranks if r[0] not in RECORDINGS), *recordings[:1]]


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
    known: list[int] = np.unique(rank).tolist()
    means: dict[str, Floats] = {
        k: np.array([np.nanmean(np.asarray(v, np.float64)[rank == r]) for r in known], np.float64)
        for k, v in columns_of(columns).items()
        if k.endswith("_ns")
    }
    return [str(r) for r in known], means


def _spans(trace: Trace) -> tuple[Ints, Ints]:
    """Disjoint intervals of computation and communication."""
    events = trace.events
    stream, thread = trace.track_mask(TrackKind.STREAM), trace.track_mask(TrackKind.THREAD)
    kernel = stream & (events.category == Category.KERNEL)
    if not (stream & np.isin(events.category, (Category.KERNEL, Category.COMM))).any():
        kernel = thread & (events.category == Category.OP)
    comm = (stream | thread) & (events.category == Category.COMM)
    computing, talking = (np.flatnonzero(m & (events.dur > 0)) for m in (kernel, comm))
    return union(events.ts[computing], events.end[computing]), union(events.ts[talking], events.end[talking])


def _steps(ranks: Ranks, numbers: list[int], windows: list[Windows], step: str) -> RankColumns:
    """Time of each rank in each step, or in one."""
    rows: list[tuple[int | str, ...]] = []
    for number, (worker, trace), win in zip(numbers, ranks, windows, strict=True):
        computing, talking = _spans(trace)
        total, both = win.end - win.start, intersect(computing, talking)
        a, b, c = (covered(spans, win.start, win.end) for spans in (computing, talking, both))
        times: list[list[int]] = np.stack((total, a, b, c, total - a - b + c), axis=1).tolist()
        named = zip(win.names, times, strict=True)
        rows += [(number, worker, name, *parts) for name, parts in named if step in ("", name)]
    return from_rows(RankColumns, rows)


def _waits(numbers: list[int], windows: list[Windows], matched: list[Matched], step: str) -> WaitColumns:
    """Transfer and wait of the matched collectives that start in each step."""
    rows: list[tuple[int, str, int, int]] = []
    for place, (number, win) in enumerate(zip(numbers, windows, strict=True)):
        mine = [m for m in matched if m.rank == place and m.transfer_ns is not None]
        for name, start, end in zip(win.names, win.start, win.end, strict=True):
            inside = [m for m in mine if start <= m.call.ts < end]
            if inside and step in ("", name):
                transfer = sum(m.transfer_ns or 0 for m in inside)
                rows.append((number, name, transfer, sum(m.call.latency for m in inside) - transfer))
    return from_rows(WaitColumns, rows)


def _collectives(ranks: Ranks, numbers: list[int], matched: list[Matched]) -> CollectiveColumns:
    """Collectives of each rank by name; bus bandwidth as nccl-tests defines it, from the transfer time where known."""
    groups: dict[tuple[int, str], list[Matched]] = {}
    for call in matched:
        groups.setdefault((call.rank, call.call.name), []).append(call)
    ordered = sorted(groups.items(), key=lambda item: (item[0][1], numbers[item[0][0]]))
    rows = [
        (numbers[rank], name, *_exchanged(name, calls, ranks[rank][1].meta.world_size))
        for (rank, name), calls in ordered
    ]
    return from_rows(CollectiveColumns, rows)


def _exchanged(name: str, calls: list[Matched], world_size: int) -> tuple[object, ...]:
    """The columns of collectives from `calls` on."""
    count, total = len(calls), sum(m.call.latency for m in calls)
    known = all(m.transfer_ns is not None for m in calls)
    transfer = sum(m.transfer_ns or 0 for m in calls) if known else None
    wait = None if transfer is None else total - transfer
    sizes = [m.call.bytes for m in calls]
    nbytes = sum(sizes) if min(sizes) >= 0 else None
    mean_bytes = None if nbytes is None else nbytes / count
    bandwidth = _bus(name, nbytes, transfer or total, max(world_size, *(m.call.group_size for m in calls)))
    longest = max(calls, key=lambda m: m.call.latency).call.event
    return count, nbytes, mean_bytes, total, total / count, transfer, wait, bandwidth, longest


def _bus(name: str, nbytes: int | None, spent: int, members: int) -> float | None:
    """Bytes per second; None where the size, the time or the group is not known."""
    if not nbytes or not spent or members < 2:
        return None
    factor = 1.0
    if "reduce" in name.replace("_", "") and "all" in name:
        factor = 2 * (members - 1) / members
    elif any(w in name for w in ("gather", "scatter", "to_all")):
        factor = (members - 1) / members
    return nbytes * factor / spent * 1e9


def _stragglers(
    ranks: Ranks, numbers: list[int], windows: list[Windows], matched: list[Matched], steps: RankColumns
) -> list[Straggler]:
    """Ranks that come late to the first collective of most steps, on the common clock."""
    if len(ranks) < 2:
        return []
    shift = [o.clock_ns if o.clock_ns is not None else -(o.residual_ns or 0) for o in offsets([t for _, t in ranks])]
    arrivals = [_first_arrivals([m for m in matched if m.rank == i], win, shift[i]) for i, win in enumerate(windows)]
    shared = [s for s in windows[0].names if all(s in a for a in arrivals)]
    if not shared:
        return []
    times = np.array([[a[s] for s in shared] for a in arrivals], np.float64)
    late = np.array([times[i] - np.median(np.delete(times, i, axis=0), axis=0) for i in range(len(ranks))])
    last = times.argmax(axis=0)
    rank, computation = np.asarray(steps.rank), np.asarray(steps.computation_ns, np.float64)
    mean_step, mean_work = float(np.asarray(steps.total_ns, np.float64).mean()), float(computation.mean())
    by_rank = [round(float(row.mean())) for row in late]
    return [
        Straggler(
            rank=numbers[i],
            late_ns_per_step=by_rank[i],
            steps_last=int((last == i).sum()),
            steps=len(shared),
            computation_ratio=float(computation[rank == numbers[i]].mean()) / mean_work if mean_work else None,
        )
        for i in sorted(range(len(ranks)), key=lambda i: -by_rank[i])
        if late[i].mean() > LATE_SHARE * mean_step and (last == i).mean() >= 0.5
    ]


def _first_arrivals(mine: list[Matched], win: Windows, shift: int) -> dict[str, int]:
    """Arrival at the first collective of each step."""
    inside = {
        name: [m.call.arrival for m in mine if start <= m.call.ts < end]
        for name, start, end in zip(win.names, win.start, win.end, strict=True)
    }
    return {name: min(arrivals) + shift for name, arrivals in inside.items() if arrivals}


def _missing(ranks: Ranks, numbers: list[int]) -> list[int]:
    """Ranks that the files speak of and that are not there; at most 1,024 are named."""
    size = max((t.meta.world_size for _, t in ranks), default=-1)
    return sorted(set(range(min(size, 1024))) - set(numbers)) if size > 0 else []


def _notes(windows: list[Windows]) -> list[str]:
    """Ids of oddities that the page explains."""
    return ["different_steps"] if len({w.names for w in windows}) > 1 else []


VIEW = View("distributed", 55, needs, Params, compute, make_charts, subject="run")
