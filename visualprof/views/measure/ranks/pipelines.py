"""Bubbles of pipelines: how long ranks wait for other stages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.call_matching import MatchedCalls
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.rank_summary import RankSteps
from visualprof.views.measure.ranks.transfer_stats import WaitTotals


class PipelineBubbles(msgspec.Struct, frozen=True, kw_only=True):
    """The r ranks of pipelines, with means over their steps.

    Attributes:
        rank_row: (r,) index among the ranks of the run.
        stage: (r,) stage number.
        step_ns: (r,) duration of a step.
        computation_ns: (r,) computation per step.
        bubble_ns: (r,) bubble time per step.
        microbatches: Microbatches per step, `None` if they cannot be counted.
        ideal_ratio: Share of a step that 1F1B leaves idle at best, `None` if it is unknown.
    """

    rank_row: Ints
    stage: Ints
    step_ns: Floats
    computation_ns: Floats
    bubble_ns: Floats
    microbatches: int | None
    ideal_ratio: float | None


def pipeline_bubbles(
    ranks: Sequence[RankSteps],
    waits: WaitTotals,
    steps: Sequence[str],
    process_groups: ProcessGroups,
    microbatch_count: int | None,
    step: str,
) -> PipelineBubbles:
    """Return the bubbles of all pipelines.

    A rank is in a bubble while messages are transferred and nothing computes, and while it waits in
    a collective with ranks of other stages. A rank whose own host is late has not yet made such a
    call. The transfer time of messages counts as bubble.

    At best, 1F1B idles for (p - 1) / (m + p - 1) of the time of m microbatches in p stages. Source:
    Narayanan et al., Megatron-LM, SC 2021.

    Args:
        ranks: The ranks of the run.
        waits: Their wait times.
        steps: Names of the steps of `waits`.
        process_groups: The process groups of the run.
        microbatch_count: Microbatches per step.
        step: Name of one step, or "" for all.
    """
    stage = pipeline_stages(process_groups, len(ranks))
    rows = np.flatnonzero(stage >= 0)
    stage_of_rank = dict(zip(process_groups.ranks, stage.tolist(), strict=True))
    crosses_stages = [
        process_group.role != "pipeline"
        and len({stage_of_rank.get(rank, -1) for rank in process_group.profiled_members}) > 1
        for process_group in process_groups.groups
    ]
    is_selected = np.array([step in ("", name) for name in steps] + [False], bool)
    is_counted = is_selected[waits.step] & np.array([*crosses_stages, False], bool)[waits.group] & ~waits.is_message
    wait_ns = np.bincount(waits.rank[is_counted], waits.ns[is_counted], len(ranks))
    sums = np.zeros((3, len(rows)))
    rank_rows: list[int] = rows.tolist()
    for column, row in enumerate(rank_rows):
        rank = ranks[row]
        is_chosen = np.array([step in ("", name) for name in rank.steps], bool)
        if is_chosen.any():
            times = (rank.end - rank.start, rank.computation_ns, rank.message_ns)
            sums[:, column] = [float(values[is_chosen].mean()) for values in times]
            sums[2, column] += wait_ns[row] / is_chosen.sum()
    depth = int(stage.max(initial=-1)) + 1
    ideal_ratio = (depth - 1) / (microbatch_count + depth - 1) if microbatch_count and depth > 1 else None
    return PipelineBubbles(
        rank_row=rows,
        stage=stage[rows],
        step_ns=sums[0],
        computation_ns=sums[1],
        bubble_ns=sums[2],
        microbatches=microbatch_count,
        ideal_ratio=ideal_ratio,
    )


def count_microbatches(
    calls: MatchedCalls, step: Ints, ranks: Sequence[RankSteps], process_groups: ProcessGroups
) -> int | None:
    """Return the messages per step from the first stage to the second.

    `None` if messages also go from the last stage to the first.

    Args:
        calls: The calls of all ranks.
        step: (n,) index of the step of each call, -1 for none.
        ranks: The ranks of the run.
        process_groups: The process groups of the run.
    """
    stage = pipeline_stages(process_groups, len(ranks))
    depth = int(stage.max(initial=-1)) + 1
    stage_of_rank = dict(zip(process_groups.ranks, stage.tolist(), strict=True))
    send_calls = np.flatnonzero((step >= 0) & (calls.source == np.array(process_groups.ranks, np.int64)[calls.rank]))
    rank_pairs = group(calls.rank[send_calls], calls.destination[send_calls])
    rank, receivers = calls.rank[send_calls[rank_pairs.first]], calls.destination[send_calls[rank_pairs.first]].tolist()
    receiver_stage = np.array([stage_of_rank.get(receiver, -1) for receiver in receivers], np.int64)
    if depth > 2 and ((stage[rank] == depth - 1) & (receiver_stage == 0)).any():
        return None
    to_second_stage = np.bincount(rank, np.where(receiver_stage == 1, rank_pairs.count, 0), len(ranks))
    step_counts = np.array([len(rank_steps.steps) for rank_steps in ranks], np.int64)
    per_step = (to_second_stage / np.maximum(step_counts, 1))[(stage == 0) & (step_counts > 0)]
    typical = float(np.median(per_step)) if len(per_step) else 0.0
    return round(typical) if typical >= 1 and abs(typical - round(typical)) < 0.01 else None


def pipeline_stages(process_groups: ProcessGroups, count: int) -> Ints:
    """Return the stage of each rank, -1 for ranks outside of pipelines."""
    return process_groups.axis_position.get("pipeline", np.full(count, -1, np.int64))
