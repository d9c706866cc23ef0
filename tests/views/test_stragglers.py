"""Stragglers are named, and no rank is named if ranks differ only by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.process_groups import ProcessGroups, RunGroup
from visualprof.views.measure.ranks.rank_times import RankTimes
from visualprof.views.measure.ranks.stragglers import Outlier, find_outliers

MS = 1e6
STEPS = 10


def megatron_groups(tensor: int, data: int, stages: int, per_host: int = 8) -> ProcessGroups:
    """Return the process groups of ranks as Megatron numbers them, the tensor axis fastest."""
    count = tensor * data * stages
    rank = np.arange(count)
    groups = tuple(
        RunGroup(
            name=f"t{i}",
            description="",
            members=tuple(range(i * tensor, (i + 1) * tensor)),
            profiled_members=(),
            runs=(),
            role="tensor",
            role_source="description",
        )
        for i in range(count // tensor)
    )
    position: dict[Any, Ints] = {
        "tensor": rank % tensor,
        "data": rank // tensor % data,
        "pipeline": rank // (tensor * data),
    }
    hosts = tuple(f"node{i // per_host}" for i in range(count))
    return ProcessGroups(
        ranks=tuple(range(count)),
        groups=groups,
        hosts=hosts,
        racks=("",) * count,
        axis_group={"tensor": rank // tensor},
        axis_position=position,
    )


def healthy_times(process_groups: ProcessGroups, seed: int = 0) -> dict[str, Floats]:
    """Return times of healthy ranks: 60 ms of computation, which differs by 0.4 % between ranks and
    0.5 % between steps, and 5 ms of the rest.
    """
    rng, shape = np.random.default_rng(seed), (len(process_groups.hosts), STEPS)
    computation = 60 * MS * rng.normal(1, 0.004, (shape[0], 1)) * rng.normal(1, 0.005, shape)
    return {
        "computation": computation,
        "loading": np.abs(rng.normal(0.3, 0.05, shape)) * MS,
        "other": np.abs(rng.normal(5, 0.2, shape)) * MS,
        "kernel_blocks": np.full(shape, 1000.0),
    }


def find_stragglers(process_groups: ProcessGroups, values: dict[str, Floats]) -> list[Outlier]:
    stage, tensor = process_groups.axis_position["pipeline"], process_groups.axis_position["tensor"]
    shape = values["computation"].shape
    ranks: list[Any] = [_NoKernels] * shape[0]
    steps = tuple(map(str, range(STEPS)))
    times = RankTimes(steps=steps, total=np.full(shape, 100 * MS), **values, cohort=group(stage, tensor).ids)
    return find_outliers(ranks, times, process_groups)


class _NoKernels:
    steps = tuple(map(str, range(STEPS)))
    kernel_names = ()
    kernel_ns = np.zeros(0, np.int64)


def straggler_summary(outliers: Sequence[Outlier]) -> list[tuple[str, list[int], str]]:
    return [(outlier.unit, outlier.members.tolist(), outlier.cause) for outlier in outliers]


@pytest.mark.parametrize("shape", [(1, 64, 1), (4, 8, 2), (8, 2, 4), (8, 128, 1)])
def test_no_rank_is_named_if_ranks_differ_by_chance(shape: tuple[int, int, int]) -> None:
    process_groups = megatron_groups(*shape)
    assert [
        straggler_summary(find_stragglers(process_groups, healthy_times(process_groups, seed))) for seed in range(20)
    ] == [[]] * 20


def test_no_rank_is_named_if_pauses_affect_random_ranks() -> None:
    """One of 20 steps of any rank has a pause of 10 % of a step, so some rank has three of them."""
    process_groups = megatron_groups(1, 128, 1)
    for seed in range(10):
        values = healthy_times(process_groups, seed)
        has_pause = np.random.default_rng(seed).random(values["other"].shape) < 0.05
        assert has_pause.sum(axis=1).max() >= 2
        values["other"][has_pause] += 10 * MS
        assert find_stragglers(process_groups, values) == []


def test_a_slow_device_is_named_by_its_rank() -> None:
    process_groups = megatron_groups(4, 8, 2)
    values = healthy_times(process_groups)
    values["computation"][37] *= 1.1
    (only_outlier,) = find_stragglers(process_groups, values)
    assert straggler_summary([only_outlier]) == [("rank", [37], "device")]
    assert only_outlier.is_late.all()
    assert float(only_outlier.excess_ns.mean()) == pytest.approx(6 * MS, rel=0.15)


def test_a_rank_that_is_late_in_some_steps_is_named_with_these_steps() -> None:
    process_groups = megatron_groups(4, 8, 2)
    values = healthy_times(process_groups)
    values["other"][5, [2, 6, 7]] += 8 * MS
    (only_outlier,) = find_stragglers(process_groups, values)
    assert straggler_summary([only_outlier]) == [("rank", [5], "host")]
    assert np.flatnonzero(only_outlier.is_late).tolist() == [2, 6, 7]


def test_a_slow_host_is_named_as_one_unit() -> None:
    process_groups = megatron_groups(4, 8, 2)
    values = healthy_times(process_groups)
    values["computation"][16:24] *= 1.1
    assert straggler_summary(find_stragglers(process_groups, values)) == [("host", list(range(16, 24)), "device")]


def test_a_replica_with_a_larger_batch_is_named_as_one_unit() -> None:
    """Replica 3 of 8: its four tensor ranks in both stages compute longer, with more blocks."""
    process_groups = megatron_groups(4, 8, 2)
    values = healthy_times(process_groups)
    replica = [*range(12, 16), *range(44, 48)]
    values["computation"][replica] *= 1.2
    values["kernel_blocks"][replica] *= 1.2
    assert straggler_summary(find_stragglers(process_groups, values)) == [("replica", replica, "work")]


def test_a_stage_with_more_layers_is_named() -> None:
    process_groups = megatron_groups(4, 8, 2)
    values = healthy_times(process_groups)
    values["computation"][32:] *= 1.2
    values["kernel_blocks"][32:] *= 1.2
    assert straggler_summary(find_stragglers(process_groups, values)) == [("stage", list(range(32, 64)), "work")]


def test_several_stragglers_are_sorted_by_cost() -> None:
    process_groups = megatron_groups(1, 64, 1)
    values = healthy_times(process_groups)
    values["computation"][3] *= 1.1
    values["loading"][40] += 12 * MS
    assert straggler_summary(find_stragglers(process_groups, values)) == [
        ("rank", [40], "input"),
        ("rank", [3], "device"),
    ]


def test_a_slow_host_process_also_loads_slowly() -> None:
    process_groups = megatron_groups(1, 16, 1)
    values = healthy_times(process_groups)
    values["loading"][7] += 4 * MS
    values["other"][7] += 4 * MS
    assert straggler_summary(find_stragglers(process_groups, values)) == [("rank", [7], "host")]
