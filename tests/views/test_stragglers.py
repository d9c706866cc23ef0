"""Who is named as slow, and that nobody is where ranks differ by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from visualprof.reader.trace import Floats, Ints
from visualprof.views.measure.groups import group
from visualprof.views.measure.process_groups import ProcessGroups, RunGroup
from visualprof.views.measure.stragglers import Outlier, RankTimes, find_outliers

MS = 1e6
STEPS = 10


def where(tensor: int, data: int, stages: int, per_host: int = 8) -> ProcessGroups:
    """Ranks as Megatron numbers them, the tensor axis fastest."""
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
    place: dict[Any, Ints] = {
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
        axis_position=place,
    )


def run(of: ProcessGroups, seed: int = 0) -> dict[str, Floats]:
    """Healthy ranks: 60 ms of computation that differ by 0.4 % for good and by 0.5 % a step, 5 ms of the rest."""
    rng, shape = np.random.default_rng(seed), (len(of.hosts), STEPS)
    computation = 60 * MS * rng.normal(1, 0.004, (shape[0], 1)) * rng.normal(1, 0.005, shape)
    return {
        "computation": computation,
        "loading": np.abs(rng.normal(0.3, 0.05, shape)) * MS,
        "other": np.abs(rng.normal(5, 0.2, shape)) * MS,
        "kernel_blocks": np.full(shape, 1000.0),
    }


def named(of: ProcessGroups, values: dict[str, Floats]) -> list[Outlier]:
    stage, tensor = of.axis_position["pipeline"], of.axis_position["tensor"]
    shape = values["computation"].shape
    parts: list[Any] = [_NoKernels] * shape[0]
    steps = tuple(map(str, range(STEPS)))
    times = RankTimes(steps=steps, total=np.full(shape, 100 * MS), **values, cohort=group(stage, tensor).ids)
    return find_outliers(parts, times, of)


class _NoKernels:
    steps = tuple(map(str, range(STEPS)))
    kernel_names = ()
    kernel_ns = np.zeros(0, np.int64)


def told(found: Sequence[Outlier]) -> list[tuple[str, list[int], str]]:
    return [(one.unit, one.members.tolist(), one.cause) for one in found]


@pytest.mark.parametrize("shape", [(1, 64, 1), (4, 8, 2), (8, 2, 4), (8, 128, 1)])
def test_nobody_is_named_where_ranks_differ_by_chance(shape: tuple[int, int, int]) -> None:
    of = where(*shape)
    assert [told(named(of, run(of, seed))) for seed in range(20)] == [[]] * 20


def test_nobody_is_named_where_pauses_strike_anybody() -> None:
    """One of 20 steps of any rank has a pause of 10 % of a step: some rank has three of them."""
    of = where(1, 128, 1)
    for seed in range(10):
        values = run(of, seed)
        struck = np.random.default_rng(seed).random(values["other"].shape) < 0.05
        assert struck.sum(axis=1).max() >= 2
        values["other"][struck] += 10 * MS
        assert named(of, values) == []


def test_a_slow_device_is_named_by_its_rank() -> None:
    of = where(4, 8, 2)
    values = run(of)
    values["computation"][37] *= 1.1
    (one,) = named(of, values)
    assert told([one]) == [("rank", [37], "device")]
    assert one.is_late.all()
    assert float(one.excess_ns.mean()) == pytest.approx(6 * MS, rel=0.15)


def test_a_rank_that_is_late_in_some_steps_is_named_with_these() -> None:
    of = where(4, 8, 2)
    values = run(of)
    values["other"][5, [2, 6, 7]] += 8 * MS
    (one,) = named(of, values)
    assert told([one]) == [("rank", [5], "host")]
    assert np.flatnonzero(one.is_late).tolist() == [2, 6, 7]


def test_a_slow_host_is_named_as_one() -> None:
    of = where(4, 8, 2)
    values = run(of)
    values["computation"][16:24] *= 1.1
    assert told(named(of, values)) == [("host", list(range(16, 24)), "device")]


def test_ranks_that_share_a_longer_batch_are_named_as_a_copy() -> None:
    """Copy 3 of 8: its four tensor ranks in both stages compute longer, with more blocks."""
    of = where(4, 8, 2)
    values = run(of)
    copy = [*range(12, 16), *range(44, 48)]
    values["computation"][copy] *= 1.2
    values["kernel_blocks"][copy] *= 1.2
    assert told(named(of, values)) == [("replica", copy, "work")]


def test_a_stage_with_more_layers_is_named() -> None:
    of = where(4, 8, 2)
    values = run(of)
    values["computation"][32:] *= 1.2
    values["kernel_blocks"][32:] *= 1.2
    assert told(named(of, values)) == [("stage", list(range(32, 64)), "work")]


def test_several_are_named_by_what_they_cost() -> None:
    of = where(1, 64, 1)
    values = run(of)
    values["computation"][3] *= 1.1
    values["loading"][40] += 12 * MS
    assert told(named(of, values)) == [("rank", [40], "input"), ("rank", [3], "device")]


def test_a_slow_host_process_loads_slowly_too() -> None:
    of = where(1, 16, 1)
    values = run(of)
    values["loading"][7] += 4 * MS
    values["other"][7] += 4 * MS
    assert told(named(of, values)) == [("rank", [7], "host")]
