"""Collectives of a run by process group and size, relative to the peak of the link; slow pairs; pipeline bubbles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from visualprof.peaks import find_link_bandwidth
from visualprof.reader.trace import Floats
from visualprof.views import Params, RunView
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.communication_events import CommunicationEvents, bus_bytes
from visualprof.views.measure.ranks.link_matrix import AxisKind, LinkCell, RankLink, link_matrix
from visualprof.views.measure.ranks.link_times import link_times
from visualprof.views.measure.ranks.pipelines import PipelineBubbles, pipeline_bubbles
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.processes import NO_COMMUNICATION_HINT, summary_takes_part, takes_part
from visualprof.views.measure.ranks.rank_summary import RankSteps, rank_summary
from visualprof.views.measure.ranks.run_analysis import RunAnalysis, analyze_run

SPANS = ("unknown", "host", "hosts")
MAX_MEMBERS_LISTED = 8  # ranks in the text of a group


class ExchangeColumns(Columns):
    """Collectives and messages by role, name, number of members and size (rounded down to a power of two).

    Attributes:
        latency_ns: Median over the calls of the shortest time over the ranks; unknown if only launches are recorded.
        bandwidth_bytes_per_s: Bandwidth at that latency, as in nccl-tests.
        bus_bandwidth_bytes_per_s: Bus bandwidth at that latency, as in nccl-tests.
        peak_bytes_per_s: Peak of the link.
        against: Source of the peak: the device's datasheet, or the best measured value over the same span.
    """

    role: kinds.WordColumn
    name: kinds.NameColumn
    span: kinds.WordColumn
    members: kinds.CountColumn
    calls: kinds.CountColumn
    bytes: kinds.SizeColumn
    latency_ns: kinds.DurationColumn
    wait_ns: kinds.DurationColumn
    bandwidth_bytes_per_s: kinds.BandwidthColumn
    bus_bandwidth_bytes_per_s: kinds.BandwidthColumn
    peak_bytes_per_s: kinds.BandwidthColumn
    against: kinds.WordColumn
    of_peak: kinds.RatioColumn


class ProcessGroupColumns(Columns):
    """Process groups.

    Attributes:
        busy_ns: Mean per member over all steps.
        wait_ns: Mean per member over all steps.
        ranks: The members.
    """

    role: kinds.WordColumn
    told: kinds.WordColumn
    name: kinds.WordColumn
    description: kinds.WordColumn
    members: kinds.CountColumn
    ranks: kinds.WordColumn
    hosts: kinds.CountColumn
    calls: kinds.CountColumn
    bytes: kinds.SizeColumn
    busy_ns: kinds.DurationColumn
    wait_ns: kinds.DurationColumn


class RankPairColumns(Columns):
    """Messages between two ranks, and collectives of two ranks.

    Attributes:
        usual_ns: Latency of the faster quarter of similar pairs.
    """

    source: kinds.IdentifierColumn
    destination: kinds.IdentifierColumn
    source_host: kinds.WordColumn
    destination_host: kinds.WordColumn
    name: kinds.NameColumn
    calls: kinds.CountColumn
    bytes: kinds.SizeColumn
    latency_ns: kinds.DurationColumn
    usual_ns: kinds.DurationColumn
    slower: kinds.RatioColumn
    bandwidth_bytes_per_s: kinds.BandwidthColumn
    slow: kinds.FlagColumn


class LinkColumns(Columns):
    """The links from one of `ends` (row) to another (column), between two ranks or between all ranks of two hosts.

    The columns from `source` to `usual_ns`, and `slower`, describe the link that is slowest relative to similar links,
    as in the table `pairs`.

    Attributes:
        pairs: Number of rank pairs.
        bandwidth_bytes_per_s: All bytes over all time.
        slow: Whether any of the links is slow.
    """

    row: kinds.CountColumn
    column: kinds.CountColumn
    pairs: kinds.CountColumn
    calls: kinds.CountColumn
    source: kinds.IdentifierColumn
    destination: kinds.IdentifierColumn
    source_host: kinds.WordColumn
    destination_host: kinds.WordColumn
    name: kinds.NameColumn
    latency_ns: kinds.DurationColumn
    usual_ns: kinds.DurationColumn
    slower: kinds.RatioColumn
    bandwidth_bytes_per_s: kinds.BandwidthColumn
    slow: kinds.FlagColumn


class BubbleColumns(Columns):
    """Mean computation and pipeline-bubble time per step of each rank of a pipeline."""

    rank: kinds.IdentifierColumn
    stage: kinds.IdentifierColumn
    step_ns: kinds.DurationColumn
    computation_ns: kinds.DurationColumn
    bubble_ns: kinds.DurationColumn
    bubble_ratio: kinds.RatioColumn


class PipelineStageColumns(Columns):
    """Stages of the pipelines: means over their ranks."""

    stage: kinds.IdentifierColumn
    ranks: kinds.CountColumn
    computation_ns: kinds.DurationColumn
    bubble_ns: kinds.DurationColumn
    bubble_ratio: kinds.RatioColumn


class CollectivesAnswer(Table[ExchangeColumns]):
    """All collectives of a run.

    Attributes:
        ends: Names of the rows and columns of `links`.
        ends_are: Whether `ends` are numbers of ranks or names of hosts.
        microbatches: Per step; null if they cannot be counted.
        ideal_bubble_ratio: Per step; null if the microbatches cannot be counted.
    """

    groups: Table[ProcessGroupColumns]
    pairs: Table[RankPairColumns]
    links: Table[LinkColumns]
    ends: list[str]
    ends_are: AxisKind
    stages: Table[PipelineStageColumns]
    bubbles: Table[BubbleColumns]
    microbatches: kinds.Count | None
    ideal_bubble_ratio: kinds.Ratio | None


def compute(run: RunAnalysis, params: Params) -> CollectivesAnswer:
    """Return collectives by group and size, slow pairs and pipeline bubbles.

    Source: nccl-tests, C4D (HPCA 2025), Megatron-LM; docs/views/collectives.md
    """
    process_groups, met = run.process_groups, _select_step(run.communication_events, params.step)
    pipes = pipeline_bubbles(
        run.ranks, run.wait_totals, run.communication_events.steps, process_groups, run.microbatches, params.step
    )
    pairs = _pairs(met, run.ranks, process_groups, params.step)
    ends_are, ends, cells = link_matrix(pairs, process_groups.ranks, process_groups.hosts)
    return CollectivesAnswer(
        columns=_sizes(met, process_groups, _link(run.ranks)),
        groups=Table(columns=_groups(met, process_groups)),
        pairs=Table(columns=from_rows(RankPairColumns, [pair[:-1] for pair in pairs])),
        links=Table(columns=from_rows(LinkColumns, [_cell(cell, pairs[cell.slowest]) for cell in cells])),
        ends=ends,
        ends_are=ends_are,
        stages=Table(columns=_stages(pipes)),
        bubbles=Table(columns=_bubbles(pipes, process_groups.ranks)),
        microbatches=pipes.microbatches,
        ideal_bubble_ratio=pipes.ideal_ratio,
    )


def make_charts(result: CollectivesAnswer, params: Params, top: int) -> dict[str, charts.Option]:
    """Return the chart `sizes`: latency over size, one series per role."""
    rows = result.columns
    series: dict[str, list[charts.Option]] = {}
    columns = zip(rows.role, rows.name, rows.bytes, rows.latency_ns, rows.bus_bandwidth_bytes_per_s, strict=True)
    for role, name, size, latency, bandwidth in columns:
        if size and latency:
            value = [size, latency, bandwidth or 0]
            series.setdefault(f"@t:exchange.role.{role}", []).append({"name": name, "symbolSize": 9, "value": value})
    fields = tuple(
        (f"@t:column.in_collectives.{name}", unit)
        for name, unit in (("bytes", "bytes"), ("latency_ns", "ns"), ("bus_bandwidth_bytes_per_s", "rate"))
    )
    return {"sizes": charts.scatter(list(series.items()), fields, scales=("log2", "log"))} if series else {}


def _select_step(met: CommunicationEvents, step: str) -> CommunicationEvents:
    """Return the communication events of one step by name, or all."""
    if not step:
        return met
    keep = met.step == (met.steps.index(step) if step in met.steps else len(met.steps))
    columns = [name for name in met.__struct_fields__ if name not in ("names", "steps")]
    return msgspec.structs.replace(met, **{name: getattr(met, name)[keep] for name in columns})


def _link(ranks: Sequence[RankSteps]) -> float | None:
    """Return bytes/s of the links within a host if all devices are of one known kind."""
    names = {device.name for rank in ranks for device in rank.devices}
    return find_link_bandwidth(names.pop()) if len(names) == 1 else None


def _role(met: CommunicationEvents, row: int, process_groups: ProcessGroups) -> str:
    role = process_groups.groups[int(met.group[row])].role if met.group[row] >= 0 else "unknown"
    return "pipeline" if met.source[row] >= 0 and role in ("world", "unknown") else role


def _sizes(met: CommunicationEvents, process_groups: ProcessGroups, link: float | None) -> ExchangeColumns:
    """Return rows by role, name and size. A measured peak is the best over the same span."""
    bucket = np.where(met.bytes > 0, np.floor(np.log2(np.maximum(met.bytes, 1))), -1).astype(np.int64)
    roles = {
        role: i
        for i, role in enumerate(
            dict.fromkeys(["unknown", *(process_group.role for process_group in process_groups.groups)])
        )
    }
    of_group = np.array([*(roles[process_group.role] for process_group in process_groups.groups), 0], np.int64)[
        met.group
    ]
    span = np.minimum(met.host_count, 2)
    same = group(of_group, met.name, span, met.member_count, bucket, met.is_message)
    timed = np.flatnonzero(met.data_transfer_ns >= 0)
    by_size = group(same.ids[timed])
    latency = np.full(len(same.first), np.nan)
    latency[same.ids[timed[by_size.first]]] = by_size.median(met.data_transfer_ns[timed])
    once = np.ones(len(met.name))
    size = np.where(same.min(met.bytes) >= 0, same.mean(met.bytes.astype(np.float64), once), np.nan)
    wait_per_rank = np.where(met.wait_ns >= 0, met.wait_ns / np.maximum(met.rank_count, 1), np.nan)
    wait = same.mean(wait_per_rank, once)
    ids: list[int] = met.name[same.first].tolist()
    names = [met.names[i] for i in ids]
    members = met.member_count[same.first]
    moved = np.array([bus_bytes(n, size[i : i + 1], members[i : i + 1])[0] for i, n in enumerate(names)], np.float64)
    bus = np.where(latency > 0, moved / np.maximum(latency, 1) * 1e9, np.nan)
    reach = span[same.first]
    rows = list[tuple[Any, ...]]()
    for i, first in enumerate(same.first.tolist()):
        far = int(reach[i])
        on_datasheet = link is not None and far == 1
        best = np.nanmax(np.where(reach == far, bus, np.nan), initial=0.0) if far else 0.0
        peak = link if on_datasheet else float(best) or None
        rows.append(
            (
                _role(met, first, process_groups),
                names[i],
                SPANS[far],
                int(members[i]) or None,
                int(same.count[i]),
                _none_if_nan(size[i]),
                _none_if_nan(latency[i]),
                _none_if_nan(wait[i]),
                _none_if_nan(size[i] / latency[i] * 1e9) if latency[i] > 0 else None,
                _none_if_nan(bus[i]),
                peak,
                ("datasheet" if on_datasheet else "measured") if peak else None,
                _none_if_nan(bus[i] / peak) if peak else None,
            )
        )
    return from_rows(ExchangeColumns, sorted(rows, key=lambda row: (row[0], row[1], row[3] or 0, row[5] or 0)))


def _none_if_nan(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


def _groups(met: CommunicationEvents, process_groups: ProcessGroups) -> ProcessGroupColumns:
    """Return the groups with communication, those with the longest waits first."""
    events = np.flatnonzero(met.group >= 0)
    count = len(process_groups.groups)
    group_ids = met.group[events]
    calls, sized = np.bincount(group_ids, minlength=count), met.bytes[events] >= 0
    nbytes = np.bincount(group_ids[sized], met.bytes[events][sized], count)
    complete = np.bincount(group_ids[~sized], minlength=count) == 0
    ranks = np.maximum(met.rank_count[events], 1)
    busy, wait = (
        np.bincount(group_ids, np.maximum(values[events], 0) / ranks, count) for values in (met.busy_ns, met.wait_ns)
    )
    waits = np.bincount(group_ids, met.wait_ns[events] >= 0, count) > 0
    is_timed = np.bincount(group_ids, met.busy_ns[events] < 0, count) == 0
    at = {number: i for i, number in enumerate(process_groups.ranks)}
    rows = list[tuple[Any, ...]]()
    for i, process_group in enumerate(process_groups.groups):
        if calls[i]:
            hosts = {process_groups.hosts[at[rank]] if rank in at else "" for rank in process_group.members}
            rows.append(
                (
                    process_group.role,
                    process_group.role_source,
                    process_group.name,
                    process_group.description,
                    len(process_group.members),
                    _listed(process_group.members),
                    None if "" in hosts else len(hosts),
                    int(calls[i]),
                    float(nbytes[i]) if complete[i] else None,
                    float(busy[i]) if is_timed[i] else None,
                    float(wait[i]) if waits[i] else None,
                )
            )
    return from_rows(ProcessGroupColumns, sorted(rows, key=lambda row: -(row[10] or 0)))


def _listed(members: Sequence[int]) -> str:
    shown = [str(rank) for rank in members]
    return ", ".join(shown if len(shown) <= MAX_MEMBERS_LISTED else [*shown[: MAX_MEMBERS_LISTED - 1], "…", shown[-1]])


def _pairs(
    met: CommunicationEvents, ranks: Sequence[RankSteps], process_groups: ProcessGroups, step: str
) -> list[RankLink]:
    """Return pairs of ranks, those that are slower than similar pairs first."""
    shared = [name for name in met.steps if step in ("", name)]
    length = float(np.median(np.concatenate([rank.end - rank.start for rank in ranks]))) if shared else 0.0
    pairs = link_times(met, shared, length)
    at = {number: i for i, number in enumerate(process_groups.ranks)}
    rows = list[RankLink]()
    for i, row in enumerate(pairs.event_row.tolist()):
        sent = bool(met.is_message[row])
        if sent:
            ends = [int(met.source[row]), int(met.destination[row])]
        elif met.group[row] >= 0 and len(process_groups.groups[int(met.group[row])].members) == 2:
            ends = list(process_groups.groups[int(met.group[row])].members)
        else:
            continue
        took, usual, size = float(pairs.median_ns[i]), float(pairs.baseline_ns[i]), int(met.bytes[row])
        hosts = [process_groups.hosts[at[rank]] or None if rank in at else None for rank in ends]
        rows.append(
            RankLink(
                source=ends[0],
                destination=ends[1],
                source_host=hosts[0],
                destination_host=hosts[1],
                name=met.names[int(met.name[row])],
                calls=int(pairs.calls[i]),
                bytes=size,
                latency_ns=took,
                usual_ns=_none_if_nan(usual),
                slower=_none_if_nan(took / usual) if usual > 0 else None,
                bandwidth_bytes_per_s=size / took * 1e9,
                slow=bool(pairs.is_slow[i]),
                bidirectional=not sent,
            )
        )
    return sorted(rows, key=lambda link: (not link.slow, -(link.slower or 0), link.source, link.destination))


def _cell(cell: LinkCell, slowest: RankLink) -> tuple[Any, ...]:
    ends = (slowest.source, slowest.destination, slowest.source_host, slowest.destination_host)
    link = (slowest.name, slowest.latency_ns, slowest.usual_ns, slowest.slower)
    return (cell.row, cell.column, cell.links, cell.calls, *ends, *link, cell.bandwidth, slowest.slow)


def _bubbles(pipes: PipelineBubbles, numbers: Sequence[int]) -> BubbleColumns:
    rank, stage = np.array(numbers, np.int64)[pipes.rank_row], pipes.stage
    return BubbleColumns(
        rank=rank,
        stage=stage,
        step_ns=pipes.step_ns,
        computation_ns=pipes.computation_ns,
        bubble_ns=pipes.bubble_ns,
        bubble_ratio=_ratio(pipes.bubble_ns, pipes.step_ns),
    )


def _stages(pipes: PipelineBubbles) -> PipelineStageColumns:
    same = group(pipes.stage)
    once = np.ones(len(pipes.stage))
    computation, bubble, step = (
        same.mean(values, once) for values in (pipes.computation_ns, pipes.bubble_ns, pipes.step_ns)
    )
    return PipelineStageColumns(
        stage=pipes.stage[same.first],
        ranks=same.count,
        computation_ns=computation,
        bubble_ns=bubble,
        bubble_ratio=_ratio(bubble, step),
    )


def _ratio(values: Floats, totals: Floats) -> Floats:
    return np.where(totals > 0, values / np.where(totals > 0, totals, 1), np.nan)


VIEW = RunView(
    "collectives",
    58,
    takes_part,
    Params,
    compute,
    make_charts,
    map=rank_summary,
    has_data=summary_takes_part,
    reduce=analyze_run,
    empty_hint=NO_COMMUNICATION_HINT,
)
