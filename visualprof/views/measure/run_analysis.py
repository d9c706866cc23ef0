"""All ranks of a run: whose calls meet, and what follows. The views of a run share it; it holds no call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Ints
from visualprof.views.measure.call_matching import Matched, match
from visualprof.views.measure.communication_events import Meetings, meetings
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import covered, union
from visualprof.views.measure.pipelines import microbatches
from visualprof.views.measure.process_groups import ProcessGroups, process_groups
from visualprof.views.measure.processes import processes
from visualprof.views.measure.rank_metrics import RankFigures, Spent, rank_figures
from visualprof.views.measure.rank_summary import RankPart, RankSteps
from visualprof.views.measure.transfer_stats import ByName, Waits, by_name, waits


class WholeRun(msgspec.Struct, frozen=True):
    """Ranks r of a run in the order of their numbers.

    workers, ranks: (r,). comparable: the steps in which the ranks share collectives, and each all of its own.
    spent: (r,) ns of each step in which matched collectives transfer, and in which they only wait; None without any.
    names: of the collectives in `by_name` and `waits`; the steps of `waits` are those of `met`.
    microbatches: of a step; None where they cannot be counted.
    """

    workers: tuple[str, ...]
    ranks: tuple[RankSteps, ...]
    where: ProcessGroups
    comparable: tuple[str, ...]
    spent: tuple[Spent | None, ...]
    names: tuple[str, ...]
    by_name: ByName
    waits: Waits
    met: Meetings
    microbatches: int | None
    figures: RankFigures


def whole_run(ranks: Sequence[tuple[str, RankPart]]) -> WholeRun:
    """The run of some workers and their parts."""
    ordered, numbers = processes(ranks, lambda part: part.place)
    workers, parts = tuple(worker for worker, _ in ordered), [part for _, part in ordered]
    matched = match([part.calls for part in parts])
    calls = matched.calls
    where = process_groups(ordered, numbers, calls)
    names, part_step = _steps(parts)
    step = part_step[calls.first]
    spent = tuple(
        transfer_and_wait(part, matched.part_transfer[mine])
        for part, mine in zip(parts, calls.each(parts=True), strict=True)
    )
    alone = tuple(part.steps_alone() for part in parts)
    return WholeRun(
        workers,
        alone,
        where,
        _comparable(parts, names, part_step, matched),
        spent,
        calls.names,
        by_name(matched),
        waits(matched, step, where.of(calls.groups)),
        meetings(matched, names, step, where),
        microbatches(calls, step, alone, where),
        rank_figures(workers, alone, spent, where),
    )


def transfer_and_wait(part: RankPart, part_transfer: Ints) -> Spent | None:
    """Time of each step in which matched collectives transfer, and in which they only wait; None where there are none.

    Each part of a call transfers at its end, for as long as the fastest rank took; before that it waits.
    """
    known = part_transfer >= 0
    if not known.any():
        return None
    start, end = part.calls.start[known], part.calls.end[known]
    every, transferring = (
        covered(union(low, end), part.start, part.end) for low in (start, end - part_transfer[known])
    )
    return transferring, every - transferring


def _steps(parts: Sequence[RankPart]) -> tuple[tuple[str, ...], Ints]:
    """Names of the steps of all ranks, and the place among them of each part of a call, -1 for none."""
    steps = {name: i for i, name in enumerate(dict.fromkeys(name for part in parts for name in part.steps))}
    each = [np.array([*(steps[name] for name in part.steps), -1], np.int64)[part.step] for part in parts]
    return tuple(steps), np.concatenate([np.zeros(0, np.int64), *each])


def _comparable(parts: Sequence[RankPart], names: Sequence[str], step: Ints, matched: Matched) -> tuple[str, ...]:
    if len(parts) < 2:
        return ()
    calls = matched.calls
    rows = np.flatnonzero(calls.exchanges & (step >= 0) & (calls.number >= -1))
    same = group(calls.rank[calls.call[rows]], step[rows])
    shared = same.min(calls.number[rows]) >= 0
    count = np.bincount(step[rows[same.first]], shared, len(names))
    place = {name: i for i, name in enumerate(names)}
    return tuple(name for name in parts[0].steps if count[place[name]] == len(parts))
