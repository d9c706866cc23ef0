"""Times of ranks in comparable steps, and by how much ranks exceed their cohort."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.rank_summary import RankSteps


class RankTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of n ranks in s comparable steps, (n, s) ns.

    Attributes:
        steps: (s,) names.
        total: Duration of the step.
        computation: Computation.
        loading: Data loading.
        other: Neither of these nor communication.
        kernel_blocks: (n, s) blocks of kernels, NaN unknown.
        cohort: (n,) ranks with the same number are compared with each other.
    """

    steps: tuple[str, ...]
    total: Floats
    computation: Floats
    loading: Floats
    other: Floats
    kernel_blocks: Floats
    cohort: Ints

    @property
    def self_time(self) -> Floats:
        """Return all time that is not exposed communication, (n, s) ns."""
        return self.computation + self.loading + self.other


def rank_times(ranks: Sequence[RankSteps], steps: Sequence[str], process_groups: ProcessGroups) -> RankTimes | None:
    """Return the times of all ranks in some steps that all ranks have; `None` if there is nothing to compare."""
    if len(ranks) < 2 or not steps:
        return None
    step_indices = [[rank.steps.index(step) for step in steps] for rank in ranks]

    def columns(name: str) -> Floats:
        return np.array(
            [getattr(rank, name)[indices] for rank, indices in zip(ranks, step_indices, strict=True)], np.float64
        )

    total, computation, loading = columns("end") - columns("start"), columns("computation_ns"), columns("loading_ns")
    other = total - computation - columns("communication_ns") + columns("overlap_ns") - loading
    return RankTimes(
        steps=tuple(steps),
        total=total,
        computation=computation,
        loading=loading,
        other=other,
        kernel_blocks=columns("kernel_blocks"),
        cohort=_cohorts(process_groups, len(ranks)),
    )


def _cohorts(process_groups: ProcessGroups, count: int) -> Ints:
    """Return the cohort of each rank: ranks with the same position in all axes except data parallelism.

    If such cohorts have a single rank, ranks of one stage are compared; in a run without groups,
    all ranks.
    """
    no_position = np.full(count, -1, np.int64)
    stage = process_groups.axis_position.get("pipeline", no_position)
    cohorts = (
        group(stage, process_groups.axis_position.get("tensor", no_position))
        if "data" in process_groups.axis_position
        else group(stage)
    )
    return cohorts.ids if cohorts.count.min() > 1 else group(stage).ids


def excesses(values: Floats, cohort: Ints) -> Floats:
    """Return by how much each rank (first axis) exceeds the median of the others in its cohort; 0 without others."""
    excess = np.zeros(values.shape)
    for rows in group(cohort).members():
        if len(rows) > 1:
            excess[rows] = _excess(values[rows])
    return excess


def _excess(values: Floats) -> Floats:
    """Return by how much each row exceeds the median of the other rows."""
    order = np.argsort(values, axis=0)
    rank = np.argsort(order, axis=0)
    ascending, other_count = np.take_along_axis(values, order, axis=0), len(values) - 1
    low, high = (  # sorted values of the others: the row itself is skipped
        np.take_along_axis(ascending, middle + (rank <= middle), axis=0)
        for middle in ((other_count - 1) // 2, other_count // 2)
    )
    return values - (low + high) / 2
