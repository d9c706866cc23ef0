"""Figures of every rank and step of a run as matrices, from the parts of its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.process_groups import ProcessGroups
from visualprof.views.measure.rank_summary import RankSteps

TransferAndWait = tuple[
    Ints, Ints
]  # ns of each step in which matched collectives transfer, and in which they only wait
MAX_CELLS = 1 << 22  # ranks x steps; of a run with more the steps that most ranks have count


class RankMetrics(msgspec.Struct, frozen=True):
    """Ranks r of a run and their steps s.

    labels: (r,) names of what each rank belongs to, "" unknown: its `host` and `rack`, its group of data, tensor or
    expert parallelism by the ranks in that, its stage of a pipeline by its number; only those of which any is known.

    total, computation, communication, overlap, transfer, wait: (r, s) ns, NaN where a rank has no such step, or, of
    the last two, no matched collectives. steps_left_out: how many do not count.
    """

    ranks: tuple[int, ...]
    workers: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]]
    steps: tuple[str, ...]
    dropped_step_count: int
    total: Floats
    computation: Floats
    communication: Floats
    overlap: Floats
    transfer: Floats
    wait: Floats

    def metric(self, name: str) -> Floats:
        """One of the matrices, or what follows from them.

        `own` is the time in which a rank does not only communicate, `exposed` that in which it does,
        `other` that in which it neither computes nor communicates.
        """
        exposed = self.communication - self.overlap
        if name == "exposed":
            return exposed
        if name == "own":
            return self.total - exposed
        return self.total - self.computation - exposed if name == "other" else getattr(self, name)


def rank_metrics(
    workers: tuple[str, ...], ranks: Sequence[RankSteps], spent: Sequence[TransferAndWait | None], where: ProcessGroups
) -> RankMetrics:
    """The figures of all ranks in their order, and of all steps in theirs. spent: ns of transfer and wait."""
    steps, left_out = _steps(ranks)
    place = {name: i for i, name in enumerate(steps)}
    out = np.full((6, len(ranks), len(steps)), np.nan)
    for row, (rank, times) in enumerate(zip(ranks, spent, strict=True)):
        places = np.array([place.get(name, -1) for name in rank.steps], np.int64)
        known = places >= 0
        times = times or (np.full(len(rank.steps), np.nan),) * 2
        of_rank = (rank.end - rank.start, rank.computation_ns, rank.communication_ns, rank.overlap_ns, *times)
        out[:, row, places[known]] = np.stack(of_rank)[:, known]
    return RankMetrics(where.ranks, workers, _labels(where), steps, left_out, *out)


def _labels(groups: ProcessGroups) -> dict[str, tuple[str, ...]]:
    labels = {"host": groups.hosts, "rack": groups.racks}
    for axis, of in groups.axis_group.items():
        stages = axis == "pipeline"
        names = {-1: "", **{i: "" if stages else _members(one.members) for i, one in enumerate(groups.groups)}}
        places: list[tuple[int, int]] = np.stack((of, groups.axis_position[axis]), axis=1).tolist()
        labels[axis] = tuple(str(place) if stages and group >= 0 else names[group] for group, place in places)
    return {name: of for name, of in labels.items() if any(of)}


def _members(ranks: tuple[int, ...]) -> str:
    """Ranks in few words: `0-7`, or `0, 8 ... 56`."""
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ", ".join(map(str, ranks)) if len(ranks) < 4 else f"{ranks[0]}, {ranks[1]} ... {ranks[-1]}"


def _steps(ranks: Sequence[RankSteps]) -> tuple[tuple[str, ...], int]:
    """Names of the steps of all ranks in order, and how many there are besides."""
    had = Counter(name for rank in ranks for name in dict.fromkeys(rank.steps))
    names = sorted(had, key=int) if all(name.isdecimal() and len(name) < 19 for name in had) else list(had)
    most = MAX_CELLS // max(len(ranks), 1)
    kept = {name for name, _ in had.most_common(most)}
    return tuple(name for name in names if name in kept), max(0, len(names) - most)
