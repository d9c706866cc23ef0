"""Bubbles of pipelines: how long ranks wait for other stages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.collectives import Matched
from visualprof.views.measure.process_groups import ProcessGroups
from visualprof.views.measure.rank_part import RankPart


class Pipelines(msgspec.Struct, frozen=True):
    """Of r ranks that are in a pipeline, means of their steps.

    row: (r,) place among the ranks of the run. stage: (r,). step_ns, computation_ns, bubble_ns: (r,). microbatches: of
    a step; ideal: the share of a step that 1F1B leaves idle at best; None where they cannot be counted.
    """

    row: Ints
    stage: Ints
    step_ns: Floats
    computation_ns: Floats
    bubble_ns: Floats
    microbatches: int | None
    ideal: float | None


def pipelines(
    parts: Sequence[RankPart], matched: Sequence[Matched], numbers: Sequence[int], where: ProcessGroups, step: str = ""
) -> Pipelines:
    """The bubbles of all pipelines.

    A rank is in a bubble while messages are exchanged and nothing computes, and while it waits in a collective with
    ranks of other stages: a rank whose own host is late has no such call yet. Messages take time themselves, which
    counts, too. At best 1F1B idles (p - 1) / (m + p - 1) of the time of m microbatches in p stages.
    Source: Narayanan et al., Megatron-LM, SC 2021.
    """
    stage = where.place.get("pipeline", np.full(len(parts), -1, np.int64))
    rows = np.flatnonzero(stage >= 0)
    of = {number: int(at) for number, at in zip(numbers, stage.tolist(), strict=True)}
    across = {
        (one.name, one.runs): len({of.get(rank, -1) for rank in one.present}) > 1
        for one in where.groups
        if one.role != "pipeline"
    }
    sums = np.zeros((3, len(rows)))
    places: list[int] = rows.tolist()
    for i, row in enumerate(places):
        part, calls = parts[row], matched[row].calls
        chosen = np.array([step in ("", name) for name in part.steps], bool)
        if not chosen.any():
            continue
        first = np.searchsorted(calls.call, np.arange(len(calls)))
        far = np.array([across.get((one.name, one.runs), False) for one in calls.groups], bool)[calls.group]
        far &= (matched[row].transfer >= 0) & (calls.source < 0) & (part.step[first] >= 0)
        wait = matched[row].latency - matched[row].transfer
        waits = np.bincount(part.step[first][far], wait[far], len(part.steps))
        times = (part.end - part.start, part.computation_ns, part.message_ns + waits)
        sums[:, i] = [float(values[chosen].mean()) for values in times]
    micro = _microbatches(parts, numbers, of)
    depth = int(stage.max(initial=-1)) + 1
    ideal = (depth - 1) / (micro + depth - 1) if micro and depth > 1 else None
    return Pipelines(rows, stage[rows], sums[0], sums[1], sums[2], micro, ideal)


def _microbatches(parts: Sequence[RankPart], numbers: Sequence[int], stage: dict[int, int]) -> int | None:
    """Messages of a step from the first stage to the second; None if they go on from the last to the first."""
    depth = max(stage.values(), default=-1) + 1
    counts = list[float]()
    for number, part in zip(numbers, parts, strict=True):
        inside = part.step[np.searchsorted(part.calls.call, np.arange(len(part.calls)))] >= 0
        sent = part.calls.destination[inside & (part.calls.source == number)].tolist()
        to = [stage.get(rank, -1) for rank in sent]
        if depth > 2 and stage[number] == depth - 1 and 0 in to:
            return None
        if stage[number] == 0 and part.steps:
            counts.append(to.count(1) / len(part.steps))
    usual = float(np.median(counts)) if counts else 0.0
    return round(usual) if usual >= 1 and abs(usual - round(usual)) < 0.01 else None
