"""Bubbles of pipelines: how long ranks wait for other stages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.call_matching import MatchedCalls
from visualprof.views.measure.groups import group
from visualprof.views.measure.process_groups import ProcessGroups
from visualprof.views.measure.rank_summary import RankSteps
from visualprof.views.measure.transfer_stats import WaitTotals


class PipelineBubbles(msgspec.Struct, frozen=True):
    """Of r ranks that are in a pipeline, means of their steps.

    row: (r,) place among the ranks of the run. stage: (r,). step_ns, computation_ns, bubble_ns: (r,). microbatches: of
    a step; ideal: the share of a step that 1F1B leaves idle at best; None where they cannot be counted.
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
    where: ProcessGroups,
    microbatch_count: int | None,
    step: str,
) -> PipelineBubbles:
    """The bubbles of all pipelines.

    A rank is in a bubble while messages are exchanged and nothing computes, and while it waits in a collective with
    ranks of other stages: a rank whose own host is late has no such call yet. Messages take time themselves, which
    counts, too. At best 1F1B idles (p - 1) / (m + p - 1) of the time of m microbatches in p stages.
    Source: Narayanan et al., Megatron-LM, SC 2021.

    Args: steps: those of `waits`. micro: microbatches of a step. step: by name, or all.
    """
    stage = pipeline_stages(where, len(ranks))
    rows = np.flatnonzero(stage >= 0)
    of = dict(zip(where.ranks, stage.tolist(), strict=True))
    across = [
        one.role != "pipeline" and len({of.get(rank, -1) for rank in one.profiled_members}) > 1 for one in where.groups
    ]
    wanted = np.array([step in ("", name) for name in steps] + [False], bool)
    counts = wanted[waits.step] & np.array([*across, False], bool)[waits.group] & ~waits.is_message
    waited = np.bincount(waits.rank[counts], waits.ns[counts], len(ranks))
    sums = np.zeros((3, len(rows)))
    places: list[int] = rows.tolist()
    for i, row in enumerate(places):
        rank = ranks[row]
        chosen = np.array([step in ("", name) for name in rank.steps], bool)
        if chosen.any():
            times = (rank.end - rank.start, rank.computation_ns, rank.message_ns)
            sums[:, i] = [float(values[chosen].mean()) for values in times]
            sums[2, i] += waited[row] / chosen.sum()
    depth = int(stage.max(initial=-1)) + 1
    ideal = (depth - 1) / (microbatch_count + depth - 1) if microbatch_count and depth > 1 else None
    return PipelineBubbles(rows, stage[rows], sums[0], sums[1], sums[2], microbatch_count, ideal)


def count_microbatches(calls: MatchedCalls, step: Ints, ranks: Sequence[RankSteps], where: ProcessGroups) -> int | None:
    """Messages of a step from the first stage to the second; None if they go on from the last to the first.

    Args: step: (n,) of each call, -1 for none.
    """
    stage = pipeline_stages(where, len(ranks))
    depth = int(stage.max(initial=-1)) + 1
    of = dict(zip(where.ranks, stage.tolist(), strict=True))
    sent = np.flatnonzero((step >= 0) & (calls.source == np.array(where.ranks, np.int64)[calls.rank]))
    ends = group(calls.rank[sent], calls.destination[sent])
    rank, to = calls.rank[sent[ends.first]], calls.destination[sent[ends.first]].tolist()
    there = np.array([of.get(other, -1) for other in to], np.int64)
    if depth > 2 and ((stage[rank] == depth - 1) & (there == 0)).any():
        return None
    second = np.bincount(rank, np.where(there == 1, ends.count, 0), len(ranks))
    lengths = np.array([len(one.steps) for one in ranks], np.int64)
    counts = (second / np.maximum(lengths, 1))[(stage == 0) & (lengths > 0)]
    usual = float(np.median(counts)) if len(counts) else 0.0
    return round(usual) if usual >= 1 and abs(usual - round(usual)) < 0.01 else None


def pipeline_stages(where: ProcessGroups, count: int) -> Ints:
    """The stage of each rank, -1 of one that is in no pipeline."""
    return where.axis_position.get("pipeline", np.full(count, -1, np.int64))
