"""Metrics of every rank and step of a run as matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.rank_summary import RankSteps

# ns per step in which matched collectives transfer, and in which they only wait
TransferAndWait = tuple[Ints, Ints]
MAX_CELLS = 1 << 22  # ranks x steps; larger runs keep the steps that most ranks have


class RankMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of r ranks and s steps; matrices are (r, s) ns, NaN where a rank does not have the step.

    Attributes:
        ranks: (r,) global ranks.
        workers: (r,) names of the workers.
        labels: (r,) names of what each rank belongs to, "" unknown: its `host` and `rack`, its
            data, tensor or expert group by the group's ranks, its pipeline stage by number. Only
            labels that are known for some rank.
        steps: (s,) names of the steps.
        dropped_step_count: Number of steps that are left out.
        total: Duration of the step.
        computation: Computation.
        communication: Communication.
        overlap: Computation and communication at the same time.
        transfer: Transfer of matched collectives; NaN without matched collectives.
        wait: Time in which matched collectives only wait; NaN without matched collectives.
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
        """Return one of the matrices, or one derived from them.

        - `exposed`: communication without computation
        - `own`: all time except exposed communication
        - `other`: neither computation nor communication
        """
        exposed = self.communication - self.overlap
        if name == "exposed":
            return exposed
        if name == "own":
            return self.total - exposed
        return self.total - self.computation - exposed if name == "other" else getattr(self, name)


def rank_metrics(
    workers: tuple[str, ...],
    ranks: Sequence[RankSteps],
    transfer_and_wait: Sequence[TransferAndWait | None],
    process_groups: ProcessGroups,
) -> RankMetrics:
    """Return the metrics of all ranks and steps.

    Args:
        workers: Names of the workers.
        ranks: Steps of each rank.
        transfer_and_wait: Transfer and wait time of each rank, `None` without matched collectives.
        process_groups: The process groups of the run.
    """
    steps, dropped_count = _common_steps(ranks)
    step_index = {name: i for i, name in enumerate(steps)}
    matrices = np.full((6, len(ranks), len(steps)), np.nan)
    for row, (rank, rank_times) in enumerate(zip(ranks, transfer_and_wait, strict=True)):
        columns = np.array([step_index.get(name, -1) for name in rank.steps], np.int64)
        is_kept = columns >= 0
        rank_times = rank_times or (np.full(len(rank.steps), np.nan),) * 2
        rank_columns = (rank.end - rank.start, rank.computation_ns, rank.communication_ns, rank.overlap_ns, *rank_times)
        matrices[:, row, columns[is_kept]] = np.stack(rank_columns)[:, is_kept]
    total, computation, communication, overlap, transfer, wait = matrices
    return RankMetrics(
        ranks=process_groups.ranks,
        workers=workers,
        labels=_labels(process_groups),
        steps=steps,
        dropped_step_count=dropped_count,
        total=total,
        computation=computation,
        communication=communication,
        overlap=overlap,
        transfer=transfer,
        wait=wait,
    )


def _labels(groups: ProcessGroups) -> dict[str, tuple[str, ...]]:
    """Return the labels of the ranks by kind."""
    labels = {"host": groups.hosts, "rack": groups.racks}
    for axis, group_of_rank in groups.axis_group.items():
        is_pipeline = axis == "pipeline"
        names = {
            -1: "",
            **{
                index: "" if is_pipeline else _rank_list(process_group.members)
                for index, process_group in enumerate(groups.groups)
            },
        }
        group_positions: list[tuple[int, int]] = np.stack((group_of_rank, groups.axis_position[axis]), axis=1).tolist()
        labels[axis] = tuple(
            str(position) if is_pipeline and group >= 0 else names[group] for group, position in group_positions
        )
    return {name: texts for name, texts in labels.items() if any(texts)}


def _rank_list(ranks: tuple[int, ...]) -> str:
    """Return ranks as a short text: `0-7`, or `0, 8 ... 56`."""
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ", ".join(map(str, ranks)) if len(ranks) < 4 else f"{ranks[0]}, {ranks[1]} ... {ranks[-1]}"


def _common_steps(ranks: Sequence[RankSteps]) -> tuple[tuple[str, ...], int]:
    """Return the names of the steps of all ranks in order, and how many are left out."""
    rank_counts = Counter(name for rank in ranks for name in dict.fromkeys(rank.steps))
    names = (
        sorted(rank_counts, key=int)
        if all(name.isdecimal() and len(name) < 19 for name in rank_counts)
        else list(rank_counts)
    )
    max_steps = MAX_CELLS // max(len(ranks), 1)
    retained = {name for name, _ in rank_counts.most_common(max_steps)}
    return tuple(name for name in names if name in retained), max(0, len(names) - max_steps)
