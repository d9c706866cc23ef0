"""Distributed: computation, communication and their overlap on every rank, collectives, stragglers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views import Params, RunView
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, columns_of, from_rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.launches.device_work import HOST_DEVICE
from visualprof.views.measure.ranks.processes import (
    NO_COMMUNICATION_HINT,
    has_several_ranks,
    summary_takes_part,
    takes_part,
)
from visualprof.views.measure.ranks.rank_collectives import (
    CollectiveColumns,
    RankLinkColumns,
    rank_collectives,
    rank_links,
)
from visualprof.views.measure.ranks.rank_summary import RankSteps, rank_summary
from visualprof.views.measure.ranks.rank_transfers import TransferColumns, rank_transfers
from visualprof.views.measure.ranks.run_analysis import RunAnalysis, analyze_run
from visualprof.views.measure.ranks.straggler_report import Straggler, straggler_report


class RankColumns(Columns):
    """Time by rank and step on one device. Overlap is part of computation and of communication.

    Attributes:
        device: The device: the main device of the rank, or each device in `by_device`; None if nothing runs on a
            device.
    """

    rank: kinds.IdentifierColumn
    worker: kinds.WordColumn
    device: kinds.IdentifierColumn
    step: kinds.WordColumn
    total_ns: kinds.DurationColumn
    computation_ns: kinds.DurationColumn
    communication_ns: kinds.DurationColumn
    overlap_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn


class RankMeanColumns(Columns):
    """Means of each rank over its steps, on its main device.

    Attributes:
        exposed_ns: Communication that does not overlap with computation.
        exposed_wait_ns: The part of it in which the rank waits for others; None without matched collectives.
    """

    rank: kinds.IdentifierColumn
    worker: kinds.WordColumn
    steps: kinds.CountColumn
    total_ns: kinds.DurationColumn
    computation_ns: kinds.DurationColumn
    communication_ns: kinds.DurationColumn
    exposed_ns: kinds.DurationColumn
    exposed_wait_ns: kinds.DurationColumn


class WaitColumns(Columns):
    """Transfer and wait time in matched collectives, by rank and step."""

    rank: kinds.IdentifierColumn
    step: kinds.WordColumn
    transfer_ns: kinds.DurationColumn
    wait_ns: kinds.DurationColumn


class RankDeviceColumns(Columns):
    """The devices of the ranks, with the same columns as in the overview."""

    rank: kinds.IdentifierColumn
    worker: kinds.WordColumn
    host: kinds.WordColumn
    id: kinds.IdentifierColumn
    name: kinds.WordColumn
    memory_bytes: kinds.SizeColumn
    compute_capability: kinds.WordColumn
    utilization: kinds.RatioColumn
    sm_efficiency: kinds.RatioColumn
    occupancy: kinds.RatioColumn
    tensor_core_ratio: kinds.RatioColumn
    tensor_core_unknown_ratio: kinds.RatioColumn
    kernel_ns: kinds.DurationColumn


class DeviceKind(msgspec.Struct):
    """Number of devices with a name."""

    name: str
    count: kinds.Count


class RunSummary(msgspec.Struct):
    """Summary of all ranks. Times are means over the ranks of the means over their steps.

    Attributes:
        hosts: 0 if no device reports its host.
        devices: Devices by name, the most frequent first.
        longest_rank: Rank with the most computation per step; None without steps.
        longest_ns: Its computation per step.
        shortest_rank: Rank with the least computation per step; None without steps.
        shortest_ns: Its computation per step.
    """

    ranks: kinds.Count
    hosts: kinds.Count
    devices: list[DeviceKind]
    total_ns: kinds.Duration | None
    computation_ns: kinds.Duration | None
    exposed_ns: kinds.Duration | None
    longest_rank: kinds.Identifier | None
    longest_ns: kinds.Duration | None
    shortest_rank: kinds.Identifier | None
    shortest_ns: kinds.Duration | None


class DistributedAnswer(Table[RankColumns]):
    """All ranks of a run.

    Attributes:
        by_device: Times of all devices of the ranks that compute or communicate.
        notes: Ids of notes about the run that the page explains.
    """

    ranks: Table[RankMeanColumns]
    by_device: Table[RankColumns]
    collectives: Table[CollectiveColumns]
    links: Table[RankLinkColumns]
    transfers: Table[TransferColumns]
    waits: Table[WaitColumns]
    devices: Table[RankDeviceColumns]
    summary: RunSummary
    stragglers: list[Straggler]
    missing_ranks: list[kinds.Identifier]
    notes: list[str]


def compute(run: RunAnalysis, params: Params) -> DistributedAnswer:
    """Return the time of every rank, device and step, its collectives, and the stragglers.

    Computation is the union of other kernels (of operators if nothing runs on a device). Communication is the union of
    collectives' kernels, and of host operators without recorded kernels. Overlap counts in both, and is never
    between different devices.

    Source: torch-tb-profiler, VisualDL; docs/views/distributed.md
    """
    steps = _steps(run, params.step)
    means = _rank_means(run, steps, params.step)
    return DistributedAnswer(
        columns=steps,
        ranks=Table(columns=means),
        by_device=Table(columns=_steps_by_device(run, params.step)),
        collectives=Table(columns=rank_collectives(run)),
        links=Table(columns=rank_links(run)),
        transfers=Table(columns=rank_transfers(run)),
        waits=Table(columns=_waits(run, params.step)),
        devices=Table(columns=_devices(run)),
        summary=_summary(run, means),
        stragglers=straggler_report(run),
        missing_ranks=_missing(run),
        notes=_notes(run),
    )


def make_charts(result: DistributedAnswer, params: Params, top: int) -> dict[str, charts.Option]:
    """Return the charts `overlap` and `waits`: stacked bars over ranks, means over the steps."""
    parts = {
        "computation": ("computation_ns", "overlap_ns"),
        "overlap": ("overlap_ns", None),
        "communication": ("communication_ns", "overlap_ns"),
        "other": ("other_ns", None),
    }
    labels, means = _means(result.columns)
    series = [(f"@t:distributed.{n}", means[a] - (means[b] if b else 0)) for n, (a, b) in parts.items()]
    out = {"overlap": charts.bars(labels, series)}
    if len(result.waits):
        labels, means = _means(result.waits.columns)
        out["waits"] = charts.bars(labels, [(f"@t:distributed.{n}", means[f"{n}_ns"]) for n in ("transfer", "wait")])
    return out


def _means(columns: RankColumns | WaitColumns) -> tuple[list[str], dict[str, Floats]]:
    """Return the labels of the ranks and the means of the numeric columns over their steps."""
    rank = np.asarray(columns.rank, np.int64)
    groups = group(rank)
    once = np.ones(len(rank))
    means: dict[str, Floats] = {
        k: groups.mean(np.asarray(v, np.float64), once) for k, v in columns_of(columns).items() if k.endswith("_ns")
    }
    return [str(r) for r in rank[groups.first].tolist()], means


def _steps(run: RunAnalysis, step: str) -> RankColumns:
    """Return the time of each rank in each step, or in one step."""
    rows: list[tuple[int | str | None, ...]] = []
    for number, worker, rank in zip(run.process_groups.ranks, run.workers, run.ranks, strict=True):
        times = (rank.computation_ns, rank.communication_ns, rank.overlap_ns)
        rows += _step_rows((number, worker, _device_id(rank.device)), rank, times, step)
    return from_rows(RankColumns, rows)


def _steps_by_device(run: RunAnalysis, step: str) -> RankColumns:
    """Return the time of each device of each rank in each step, or in one step."""
    rows: list[tuple[int | str | None, ...]] = []
    for number, worker, rank in zip(run.process_groups.ranks, run.workers, run.ranks, strict=True):
        for device, times in zip(rank.busy_devices, _device_times(rank), strict=True):
            rows += _step_rows((number, worker, _device_id(device)), rank, times, step)
    return from_rows(RankColumns, rows)


def _device_times(rank: RankSteps) -> Ints:
    """Return (devices, 3, steps) ns of computation, communication and both at once."""
    return rank.device_times_ns.reshape(len(rank.busy_devices), 3, len(rank.steps))


def _device_id(device: int) -> int | None:
    return None if device == HOST_DEVICE else device


def _step_rows(
    labels: tuple[int, str, int | None], rank: RankSteps, times: Iterable[Ints], step: str
) -> Iterator[tuple[int | str | None, ...]]:
    """Yield the rows of a device, given its times of computation, communication and both at once."""
    total = rank.end - rank.start
    a, b, c = times
    columns: list[list[int]] = np.stack((total, a, b, c, total - a - b + c), axis=1).tolist()
    for name, values in zip(rank.steps, columns, strict=True):
        if step in ("", name):
            yield (*labels, name, *values)


def _rank_means(run: RunAnalysis, steps: RankColumns, step: str) -> RankMeanColumns:
    rank = np.asarray(steps.rank, np.int64)
    workers = {worker: number for number, worker in enumerate(dict.fromkeys(steps.worker))}
    groups = group(rank, np.array([workers[worker] for worker in steps.worker], np.int64))  # two files may be of a rank
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
        exposed_wait_ns=_exposed_waits(run, step),
    )


def _exposed_waits(run: RunAnalysis, step: str) -> list[float | None]:
    """Return, per rank with steps, the mean exposed communication in which it waits for others; `None` if unknown."""
    out: list[float | None] = []
    for rank, waits in zip(run.ranks, run.exposed_wait, strict=True):
        chosen = [step in ("", name) for name in rank.steps]
        if any(chosen):
            out.append(None if waits is None else float(waits[chosen].mean()))
    return out


def _devices(run: RunAnalysis) -> RankDeviceColumns:
    placed = zip(run.process_groups.ranks, run.workers, run.ranks, strict=True)
    rows = [
        (number, worker, rank.host, *msgspec.structs.astuple(device))
        for number, worker, rank in placed
        for device in rank.devices
    ]
    return from_rows(RankDeviceColumns, rows)


def _summary(run: RunAnalysis, means: RankMeanColumns) -> RunSummary:
    devices = [(rank.host, device.name) for rank in run.ranks for device in rank.devices]
    rank, computation = np.asarray(means.rank, np.int64), np.asarray(means.computation_ns, np.float64)
    has_ranks = len(rank) > 0

    def mean(values: kinds.DurationColumn) -> int | None:
        return round(float(np.mean(np.asarray(values, np.float64)))) if has_ranks else None

    return RunSummary(
        ranks=len(run.ranks),
        hosts=len({host for host, _ in devices if host}),
        devices=[DeviceKind(name, n) for name, n in Counter(name for _, name in devices if name).most_common()],
        total_ns=mean(means.total_ns),
        computation_ns=mean(means.computation_ns),
        exposed_ns=mean(means.exposed_ns),
        longest_rank=int(rank[computation.argmax()]) if has_ranks else None,
        longest_ns=round(float(computation.max())) if has_ranks else None,
        shortest_rank=int(rank[computation.argmin()]) if has_ranks else None,
        shortest_ns=round(float(computation.min())) if has_ranks else None,
    )


def _waits(run: RunAnalysis, step: str) -> WaitColumns:
    """Return transfer and wait time in matched collectives by step."""
    rows: list[tuple[int, str, int, int]] = []
    for number, rank, spent in zip(run.process_groups.ranks, run.ranks, run.transfer_and_wait, strict=True):
        if spent:
            named = zip(rank.steps, *(column.tolist() for column in spent), strict=True)
            rows += [(number, name, a, b) for name, a, b in named if step in ("", name)]
    return from_rows(WaitColumns, rows)


def _missing(run: RunAnalysis) -> list[int]:
    """Return the ranks that are missing according to the world size; at most 1,024."""
    size = max((rank.location.world_size for rank in run.ranks), default=-1)
    return sorted(set(range(min(size, 1024))) - set(run.process_groups.ranks)) if size > 0 else []


def _notes(run: RunAnalysis) -> list[str]:
    """Return the ids of notes that the page explains."""
    several = len(run.ranks) > 1
    notes = {
        "different_steps": len({rank.steps for rank in run.ranks}) > 1,
        "unmatched": several and not run.comparable_steps,
    }
    return [name for name, holds in notes.items() if holds]


VIEW = RunView(
    "distributed",
    55,
    takes_part,
    Params,
    compute,
    make_charts,
    map=rank_summary,
    has_data=summary_takes_part,
    has_run_data=has_several_ranks,
    reduce=analyze_run,
    empty_hint=NO_COMMUNICATION_HINT,
)
