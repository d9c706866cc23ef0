"""Collectives of a run by process group and size, relative to the peak of the link; slow pairs; pipeline bubbles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from visualprof.reader.trace import Floats
from visualprof.views import Params, RunView
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.communication_events import CommunicationEvents
from visualprof.views.measure.ranks.communication_sizes import ExchangeColumns, communication_sizes, link_peak
from visualprof.views.measure.ranks.link_matrix import AxisKind, LinkCell, RankLink, link_matrix, rank_pairs
from visualprof.views.measure.ranks.pipelines import PipelineBubbles, pipeline_bubbles
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.processes import NO_COMMUNICATION_HINT, summary_takes_part, takes_part
from visualprof.views.measure.ranks.rank_summary import rank_summary
from visualprof.views.measure.ranks.run_analysis import RunAnalysis, analyze_run

MAX_MEMBERS_LISTED = 8  # ranks in the text of a group


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
    pairs = rank_pairs(met, run.ranks, process_groups, params.step)
    ends_are, ends, cells = link_matrix(pairs, process_groups.ranks, process_groups.hosts)
    return CollectivesAnswer(
        columns=communication_sizes(met, process_groups, link_peak(run.ranks)),
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
