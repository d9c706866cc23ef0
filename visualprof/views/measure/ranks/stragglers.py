"""Find stragglers: ranks, hosts and groups with more work than their peers, which the run waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.rank_summary import RankSteps
from visualprof.views.measure.ranks.rank_times import RankTimes, excesses

Cause = Literal["input", "host", "device", "work", "computation", "link", "unknown"]
Unit = Literal["rank", "host", "tensor", "replica", "stage", "link", "group"]

MIN_EXCESS_SHARE = 0.01  # of a step: smallest excess of self time
MIN_EXCESS_SHARE_SMALL = 0.02  # the same in small cohorts, whose spread is not known
SMALL_COHORT = 8  # ranks
SIGMAS = 5  # outliers exceed this many standard deviations
STANDARD_ERRORS = 3  # and this many standard errors
MIN_LATE_SHARE = 0.15  # of the steps
MAX_CHANCE = 0.005  # that any unit of a run is late in that many steps by chance
MIN_STAGE_EXCESS_SHARE = 0.05  # of a step; stages have different layers
MIN_LATE_MEMBERS = 0.75  # share of late ranks for which a host or group is the outlier
MIN_EXPLAINED_SHARE = 0.8  # of an excess that a cause must explain; as in traceml
MIN_EXTRA_BLOCKS = 0.02  # share of additional kernel blocks that counts as more work
SIGMA_PER_MAD = 1.4826  # standard deviation per median absolute deviation of a normal distribution


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that other ranks wait for.

    Attributes:
        unit: What the ranks are together.
        name: Name of the host or group, or number of the stage.
        members: (k,) rows of ranks.
        is_late: (s,) in which steps they are late.
        excess_ns: (s,) excess of most of them.
        part_excess_ns: Excess of computation, data loading and the rest in a late step.
        cause: What explains the excess.
        kernel: Kernel with the largest excess, "" unknown.
        kernel_ns: Its excess.
        collective: For a link, the collective that is slow.
        slowdown: For a link, how many times as long the collective takes as on similar links.
    """

    unit: Unit
    name: str
    members: Ints
    is_late: Mask
    excess_ns: Floats
    part_excess_ns: tuple[float, float, float]
    cause: Cause
    kernel: str = ""
    kernel_ns: float = 0.0
    collective: str = ""
    slowdown: float = 0.0


class _Limits(msgspec.Struct, frozen=True):
    """Smallest significant excesses.

    Attributes:
        step_ns: Duration of a step.
        most_steps_ns: For a rank that is late in most steps.
        one_step_ns: For a rank in a single step.
        is_small: (n,) whether a rank's cohort is small.
    """

    step_ns: float
    most_steps_ns: float
    one_step_ns: float
    is_small: Mask

    def most_steps(self, members: Ints) -> float:
        """Return the excess in ns that ranks must have in most steps."""
        share = MIN_EXCESS_SHARE_SMALL if self.is_small[members].any() else MIN_EXCESS_SHARE
        return max(self.most_steps_ns, share * self.step_ns)

    def one_step(self, members: Ints) -> float:
        """Return the excess in ns that ranks must have in one step.

        It is more than permanent differences and than the noise of one rank.
        """
        return max(self.one_step_ns, self.most_steps(members))


def _limits(times: RankTimes, excess: Floats) -> _Limits:
    """Return the limits of a run."""
    typical_excess = np.median(excess, axis=1)
    step_noise = SIGMA_PER_MAD * float(np.median(np.abs(excess - typical_excess[:, None])))
    cohorts = group(times.cohort)
    is_small = cohorts.count[cohorts.ids] < SMALL_COHORT
    typical_of_large = typical_excess[~is_small]
    rank_limit = (
        SIGMAS * SIGMA_PER_MAD * float(np.median(np.abs(typical_of_large - np.median(typical_of_large))))
        if len(typical_of_large)
        else 0.0
    )
    standard_error = STANDARD_ERRORS * 1.2533 * step_noise / np.sqrt(excess.shape[1])
    return _Limits(float(np.median(times.total)), max(rank_limit, standard_error), SIGMAS * step_noise, is_small)


def find_outliers(ranks: Sequence[RankSteps], times: RankTimes, process_groups: ProcessGroups) -> list[Outlier]:
    """Return the units that are late, the most expensive first; empty if ranks differ only by chance.

    A unit is late in a step if three of four of its ranks are. It is reported if it is late in most
    steps, by more than ranks usually differ, or in more steps than chance explains. Ranks of a
    reported unit are not reported individually.
    """
    excess = excesses(times.self_time, times.cohort)
    limits = _limits(times, excess)
    outliers: list[Outlier] = []
    for level in _levels(process_groups, excess.shape[0]):
        lateness = [_lateness(excess, limits, members) for _, _, members in level]
        is_reported = beyond_chance(
            np.array([steps for _, steps, _ in lateness]), [in_most_steps for _, _, in_most_steps in lateness]
        )
        for (unit, name, members), (excess_ns, steps, _), reported in zip(level, lateness, is_reported, strict=True):
            if reported:
                outliers.append(
                    _make_outlier(
                        ranks, times, unit=unit, name=name, members=members, excess_ns=excess_ns, is_late=steps
                    )
                )
    stages = list(_stage_outliers(ranks, times, process_groups, limits))
    return sorted(
        [*_largest_units(outliers), *stages],
        key=lambda outlier: -float(outlier.excess_ns.sum()) * outlier.is_late.mean(),
    )


def _levels(process_groups: ProcessGroups, count: int) -> Iterator[list[tuple[Unit, str, Ints]]]:
    """Yield the units by kind, the potentially largest first."""
    if "data" in process_groups.axis_position:
        replicas = [rows for position, rows in _by_key(process_groups.axis_position["data"]) if position >= 0]
        yield [("replica", "", rows) for rows in replicas if len(rows) > 1]
    host_ids = {host: unit_id for unit_id, host in enumerate(dict.fromkeys(process_groups.hosts))}
    hosts = [
        (unit_id, rows)
        for unit_id, rows in _by_key(np.array([host_ids[host] for host in process_groups.hosts], np.int64))
    ]
    names = list(host_ids)
    yield [("host", names[unit_id], rows) for unit_id, rows in hosts if names[unit_id] and 1 < len(rows) < count]
    if "tensor" in process_groups.axis_group:
        tensors = [(unit_id, rows) for unit_id, rows in _by_key(process_groups.axis_group["tensor"]) if unit_id >= 0]
        yield [
            ("tensor", process_groups.groups[unit_id].name, rows) for unit_id, rows in tensors if 1 < len(rows) < count
        ]
    yield [("rank", "", np.array([unit_id])) for unit_id in range(count)]


def _by_key(keys: Ints) -> list[tuple[int, Ints]]:
    """Return each distinct key with its rows."""
    groups = group(keys)
    return list(zip(keys[groups.first].tolist(), groups.members(), strict=True))


def _lateness(excess: Floats, limits: _Limits, members: Ints) -> tuple[Floats, Mask, bool]:
    """Return the excess of most members per step, in which steps they are late, and whether in most."""
    excess_ns = np.sort(excess[members], axis=0)[int((1 - MIN_LATE_MEMBERS) * len(members))]
    in_most_steps = bool((excess_ns > limits.most_steps(members)).mean() > 0.5)
    return (
        excess_ns,
        excess_ns > (limits.most_steps(members) if in_most_steps else limits.one_step(members)),
        in_most_steps,
    )


def beyond_chance(is_late: Mask, in_most_steps: Sequence[bool]) -> list[bool]:
    """Return which units of a level are reported: those late in most steps, or in more steps than chance explains.

    Args:
        is_late: (u, s) in which steps each unit is late.
        in_most_steps: Which units are late in most steps.
    """
    if not len(is_late):
        return []
    units, steps = is_late.shape
    late_counts = is_late.sum(axis=1)
    limit = max(2, MIN_LATE_SHARE * steps)
    is_enough: dict[int, bool] = {}
    for late_count in np.unique(late_counts).tolist():
        less_often = late_counts[late_counts < late_count]  # units that are late as often may all be outliers
        chance = (less_often.sum() + 0.5) / (len(less_often) * steps + 1)
        probability = sum(
            comb(steps, count) * chance**count * (1 - chance) ** (steps - count)
            for count in range(late_count, steps + 1)
        )
        is_enough[late_count] = late_count >= limit and units * probability < MAX_CHANCE
    return [
        always or is_enough[late_count] for always, late_count in zip(in_most_steps, late_counts.tolist(), strict=True)
    ]


def _make_outlier(
    ranks: Sequence[RankSteps],
    times: RankTimes,
    *,
    unit: Unit,
    name: str,
    members: Ints,
    excess_ns: Floats,
    is_late: Mask,
) -> Outlier:
    """Return an outlier with its cause."""
    part_excess = [
        float(excesses(values, times.cohort)[members][:, is_late].mean())
        for values in (times.computation, times.loading, times.other)
    ]
    extra_blocks = (
        excesses(times.kernel_blocks, times.cohort)[members][:, is_late].mean()
        / times.kernel_blocks[members][:, is_late].mean()
    )
    cause = _explain(
        float(excess_ns[is_late].mean()), (part_excess[0], part_excess[1], part_excess[2]), float(extra_blocks)
    )
    outlier = Outlier(
        unit=unit,
        name=name,
        members=members,
        is_late=is_late,
        excess_ns=excess_ns,
        part_excess_ns=(part_excess[0], part_excess[1], part_excess[2]),
        cause=cause,
    )
    if cause not in ("device", "work", "computation"):
        return outlier
    kernel, kernel_ns = _slowest_kernel(ranks, times, members, is_late)
    return msgspec.structs.replace(outlier, kernel=kernel, kernel_ns=kernel_ns)


def _explain(self_excess: float, excess: tuple[float, float, float], extra_blocks: float) -> Cause:
    """Return what the ranks do longer than the others, if that explains their excess.

    Args:
        self_excess: Excess of self time, ns.
        excess: Excess of computation, data loading, and neither, ns.
        extra_blocks: Share of additional kernel blocks.
    """
    largest = int(np.argmax(excess))
    if excess[largest] < MIN_EXPLAINED_SHARE * self_excess:
        return (
            "host" if excess[1] + excess[2] >= MIN_EXPLAINED_SHARE * self_excess else "unknown"
        )  # a slow host also loads slowly
    if largest:
        return "input" if largest == 1 else "host"
    return "computation" if np.isnan(extra_blocks) else "work" if extra_blocks > MIN_EXTRA_BLOCKS else "device"


def _slowest_kernel(ranks: Sequence[RankSteps], times: RankTimes, members: Ints, is_late: Mask) -> tuple[str, float]:
    """Return the kernel with the largest excess on the first member over the others in its cohort, and that excess."""
    member = int(members[0])
    peers = np.setdiff1d(np.flatnonzero(times.cohort == times.cohort[member]), members)
    steps = [step for step, late_step in zip(times.steps, is_late.tolist(), strict=True) if late_step]
    rows: list[int] = peers.tolist()
    times_by_kernel, peer_times = (
        _mean_by_kernel(ranks[member], steps),
        [_mean_by_kernel(ranks[row], steps) for row in rows],
    )
    kernel_excess = {
        name: ns - float(np.median(known_times))
        for name, ns in times_by_kernel.items()
        if (known_times := [peer[name] for peer in peer_times if name in peer])
    }
    name = max(kernel_excess, key=lambda name: kernel_excess[name], default="")
    return (name, kernel_excess[name]) if name and kernel_excess[name] > 0 else ("", 0.0)


def _mean_by_kernel(rank: RankSteps, steps: Sequence[str]) -> dict[str, float]:
    """Return the mean time in ns of a rank's kernels in some steps."""
    indices = [rank.steps.index(step) for step in steps]
    mean: list[float] = (
        rank.kernel_ns.reshape(len(rank.kernel_names), len(rank.steps))[:, indices].mean(axis=1).tolist()
    )
    return dict(zip(rank.kernel_names, mean, strict=True))


def _largest_units(outliers: list[Outlier]) -> Iterator[Outlier]:
    """Yield each rank's outlier once, as part of the largest unit; groups only if the cause is shared work."""
    shared_causes = ("work", "computation", "input")
    candidates = [
        outlier for outlier in outliers if outlier.unit not in ("replica", "tensor") or outlier.cause in shared_causes
    ]
    hosts = {
        tuple(outlier.members)
        for outlier in candidates
        if outlier.unit == "host" and outlier.cause not in ("work", "input")
    }
    candidates = [outlier for outlier in candidates if outlier.unit == "host" or tuple(outlier.members) not in hosts]
    claimed: set[int] = set()
    for outlier in sorted(candidates, key=lambda outlier: (-len(outlier.members), outlier.unit == "host")):
        members = set(outlier.members.tolist())
        if not members <= claimed:
            claimed |= members
            yield outlier


def _stage_outliers(
    ranks: Sequence[RankSteps], times: RankTimes, process_groups: ProcessGroups, limits: _Limits
) -> Iterator[Outlier]:
    """Yield the pipeline stages with more work than the others in most steps."""
    stage = process_groups.axis_position.get("pipeline")
    if stage is None or (stage < 0).any():
        return
    rows = group(stage).members()
    if len(rows) < 2:
        return
    values = (times.total, times.computation, times.loading, times.other, times.kernel_blocks)
    means = [np.stack([np.median(matrix[members], axis=0) for members in rows]) for matrix in values]
    total, computation, loading, other, blocks = means
    typical = RankTimes(
        steps=times.steps,
        total=total,
        computation=computation,
        loading=loading,
        other=other,
        kernel_blocks=blocks,
        cohort=np.zeros(len(rows), np.int64),
    )
    first_ranks = [ranks[int(members[0])] for members in rows]
    excess_ns = excesses(typical.self_time, typical.cohort)
    for stage_row, members in enumerate(rows):
        if np.median(excess_ns[stage_row]) > max(MIN_STAGE_EXCESS_SHARE * limits.step_ns, limits.most_steps_ns):
            matrix = _make_outlier(
                first_ranks,
                typical,
                unit="stage",
                name=str(int(stage[members[0]])),
                members=np.array([stage_row]),
                excess_ns=excess_ns[stage_row],
                is_late=excess_ns[stage_row] > 0,
            )
            yield msgspec.structs.replace(matrix, members=members)
