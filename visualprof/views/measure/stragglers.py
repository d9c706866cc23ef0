"""Whom a run waits for: ranks, hosts and groups with more to do than those in the same place elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.groups import group
from visualprof.views.measure.process_groups import ProcessGroups
from visualprof.views.measure.rank_summary import RankSteps

Cause = Literal["input", "host", "device", "work", "computation", "link", "unknown"]
Unit = Literal["rank", "host", "tensor", "replica", "stage", "link", "group"]

MIN_EXCESS_SHARE, MIN_EXCESS_SHARE_SMALL = (
    0.01,
    0.02,
)  # of a step: by how much more an own time is long; of a few ranks the spread is not known
SMALL_COHORT = 8
SIGMAS = 5
STANDARD_ERRORS = 3
MIN_LATE_SHARE = 0.15  # of the steps
MAX_CHANCE = 0.005  # that anybody of a run is late in so many steps by accident
MIN_STAGE_EXCESS_SHARE = 0.05  # of a step: stages differ by their layers
MIN_LATE_MEMBERS = 0.75  # of the ranks of a host or group, for it to be the outlier
MIN_EXPLAINED_SHARE = 0.8  # of an excess, which the cause makes up for; as traceml has it
MIN_EXTRA_BLOCKS = 0.02  # blocks of kernels than the others have: more work
SIGMA_PER_MAD = 1.4826  # standard deviations of a normal distribution in its median absolute deviation


class Outlier(msgspec.Struct, frozen=True):
    """Ranks that others wait for.

    members: (k,) rows of ranks. late: (s,) in which steps. excess: (s,) ns by which most of them are late.
    parts: ns of computation, data loading and the rest that they have more of in a late step.
    kernel: what takes longer on them by the most, and by kernel_ns; "" unknown. exchange: of a link, the collective
    that takes so many times as long (slower) as on others.
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


class RankTimes(msgspec.Struct, frozen=True):
    """ns of n ranks in s comparable steps; blocks of kernels, NaN unknown; cohort: (n,) who is compared with whom."""

    steps: tuple[str, ...]
    total: Floats
    computation: Floats
    loading: Floats
    other: Floats
    kernel_blocks: Floats
    cohort: Ints

    @property
    def self_time(self) -> Floats:
        """What is not communication alone."""
        return self.computation + self.loading + self.other


def rank_times(parts: Sequence[RankSteps], steps: Sequence[str], where: ProcessGroups) -> RankTimes | None:
    """The times of all ranks in some steps that all of them have; None where there is nothing to compare."""
    if len(parts) < 2 or not steps:
        return None
    place = [[part.steps.index(step) for step in steps] for part in parts]

    def of(name: str) -> Floats:
        return np.array([getattr(part, name)[at] for part, at in zip(parts, place, strict=True)], np.float64)

    total, computation, loading = of("end") - of("start"), of("computation_ns"), of("loading_ns")
    other = total - computation - of("communication_ns") + of("overlap_ns") - loading
    return RankTimes(tuple(steps), total, computation, loading, other, of("kernel_blocks"), _cohorts(where, len(parts)))


def _cohorts(where: ProcessGroups, count: int) -> Ints:
    """Who is compared with whom: ranks in the same place but for the data that they work on.

    Where that leaves nobody to compare with, ranks of one stage; of a run without groups all.
    """
    none = np.full(count, -1, np.int64)
    stage = where.axis_position.get("pipeline", none)
    same = group(stage, where.axis_position.get("tensor", none)) if "data" in where.axis_position else group(stage)
    return same.ids if same.count.min() > 1 else group(stage).ids


def excesses(values: Floats, cohort: Ints) -> Floats:
    """By how much each rank (first axis) exceeds the median of the others of its cohort; 0 of one that has none."""
    out = np.zeros(values.shape)
    for rows in group(cohort).members():
        if len(rows) > 1:
            out[rows] = _excess(values[rows])
    return out


def _excess(values: Floats) -> Floats:
    order = np.argsort(values, axis=0)
    place = np.argsort(order, axis=0)
    rising, others = np.take_along_axis(values, order, axis=0), len(values) - 1
    low, high = (  # of the others in their order: a rank itself is passed over
        np.take_along_axis(rising, middle + (place <= middle), axis=0) for middle in ((others - 1) // 2, others // 2)
    )
    return values - (low + high) / 2


class _Limits(msgspec.Struct, frozen=True):
    """What is more than chance. step: ns. often: of a rank in most steps. once: of a rank in one step. few: (n,)."""

    step: float
    often: float
    once: float
    few: Mask

    def most_steps(self, members: Ints) -> float:
        """By how many ns the ranks have to be late in most steps."""
        return max(self.often, (MIN_EXCESS_SHARE_SMALL if self.few[members].any() else MIN_EXCESS_SHARE) * self.step)

    def one_step(self, members: Ints) -> float:
        """By how many ns in one: by more than ranks differ for good, and than steps of one rank do."""
        return max(self.once, self.most_steps(members))


def _limits(times: RankTimes, excess: Floats) -> _Limits:
    usual = np.median(excess, axis=1)
    once = SIGMA_PER_MAD * float(np.median(np.abs(excess - usual[:, None])))
    size = group(times.cohort)
    few = size.count[size.ids] < SMALL_COHORT
    spread = usual[~few]
    often = SIGMAS * SIGMA_PER_MAD * float(np.median(np.abs(spread - np.median(spread)))) if len(spread) else 0.0
    error = STANDARD_ERRORS * 1.2533 * once / np.sqrt(excess.shape[1])
    return _Limits(float(np.median(times.total)), max(often, error), SIGMAS * once, few)


def find_outliers(parts: Sequence[RankSteps], times: RankTimes, where: ProcessGroups) -> list[Outlier]:
    """The units that are late, that which costs most first; none of a run whose ranks differ by chance alone.

    A unit is late in a step if three of four of its ranks are. It counts if it is in most steps, by more than ranks
    differ from each other, or in so many that this is no chance. Ranks of a unit that counts are not named themselves.
    """
    excess = excesses(times.self_time, times.cohort)
    limits = _limits(times, excess)
    found: list[Outlier] = []
    for level in _levels(where, excess.shape[0]):
        late = [_lateness(excess, limits, members) for _, _, members in level]
        named = beyond_chance(np.array([steps for _, steps, _ in late]), [always for _, _, always in late])
        for (unit, name, members), (by, steps, _), counts in zip(level, late, named, strict=True):
            if counts:
                found.append(_outlier(parts, times, unit, name, members, by, steps))
    stages = list(_stages(parts, times, where, limits))
    return sorted([*_largest(found), *stages], key=lambda one: -float(one.excess_ns.sum()) * one.is_late.mean())


def _levels(where: ProcessGroups, count: int) -> Iterator[list[tuple[Unit, str, Ints]]]:
    """Units by kind, those that may be the largest first."""
    if "data" in where.axis_position:
        replicas = [rows for place, rows in _by(where.axis_position["data"]) if place >= 0]
        yield [("replica", "", rows) for rows in replicas if len(rows) > 1]
    known = {host: i for i, host in enumerate(dict.fromkeys(where.hosts))}
    hosts = [(i, rows) for i, rows in _by(np.array([known[host] for host in where.hosts], np.int64))]
    names = list(known)
    yield [("host", names[i], rows) for i, rows in hosts if names[i] and 1 < len(rows) < count]
    if "tensor" in where.axis_group:
        tensors = [(i, rows) for i, rows in _by(where.axis_group["tensor"]) if i >= 0]
        yield [("tensor", where.groups[i].name, rows) for i, rows in tensors if 1 < len(rows) < count]
    yield [("rank", "", np.array([i])) for i in range(count)]


def _by(keys: Ints) -> list[tuple[int, Ints]]:
    same = group(keys)
    return list(zip(keys[same.first].tolist(), same.members(), strict=True))


def _lateness(excess: Floats, limits: _Limits, members: Ints) -> tuple[Floats, Mask, bool]:
    """By how much most of the members are late in each step, in which steps they are, and whether in most."""
    by = np.sort(excess[members], axis=0)[int((1 - MIN_LATE_MEMBERS) * len(members))]
    always = bool((by > limits.most_steps(members)).mean() > 0.5)
    return by, by > (limits.most_steps(members) if always else limits.one_step(members)), always


def beyond_chance(late: Mask, always: Sequence[bool]) -> list[bool]:
    """Which units of a level count, as they are late in most steps, or in so many that chance does not explain it.

    Args: late: (u, s) in which steps each is late. always: which are in most.
    """
    if not len(late):
        return []
    units, steps = late.shape
    often = late.sum(axis=1)
    limit = max(2, MIN_LATE_SHARE * steps)
    enough: dict[int, bool] = {}
    for k in np.unique(often).tolist():
        less = often[often < k]  # those that are late as often may all be outliers
        chance = (less.sum() + 0.5) / (len(less) * steps + 1)
        tail = sum(comb(steps, i) * chance**i * (1 - chance) ** (steps - i) for i in range(k, steps + 1))
        enough[k] = k >= limit and units * tail < MAX_CHANCE
    return [one or enough[k] for one, k in zip(always, often.tolist(), strict=True)]


def _outlier(
    parts: Sequence[RankSteps], times: RankTimes, unit: Unit, name: str, members: Ints, by: Floats, late: Mask
) -> Outlier:
    compared = [
        float(excesses(values, times.cohort)[members][:, late].mean())
        for values in (times.computation, times.loading, times.other)
    ]
    blocks = (
        excesses(times.kernel_blocks, times.cohort)[members][:, late].mean()
        / times.kernel_blocks[members][:, late].mean()
    )
    cause = _cause(float(by[late].mean()), (compared[0], compared[1], compared[2]), float(blocks))
    own = Outlier(unit, name, members, late, by, (compared[0], compared[1], compared[2]), cause)
    if cause not in ("device", "work", "computation"):
        return own
    kernel, longer = _kernel(parts, times, members, late)
    return msgspec.structs.replace(own, kernel=kernel, kernel_ns=longer)


def _cause(own: float, excess: tuple[float, float, float], more: float) -> Cause:
    """What ranks do longer than the others, if that makes up for their own time's excess.

    Args: own, excess: ns of all, and of computation, data loading, and neither. more: share of their kernels' blocks
    beyond the others'.
    """
    most = int(np.argmax(excess))
    if excess[most] < MIN_EXPLAINED_SHARE * own:
        return (
            "host" if excess[1] + excess[2] >= MIN_EXPLAINED_SHARE * own else "unknown"
        )  # a slow host loads slowly, too
    if most:
        return "input" if most == 1 else "host"
    return "computation" if np.isnan(more) else "work" if more > MIN_EXTRA_BLOCKS else "device"


def _kernel(parts: Sequence[RankSteps], times: RankTimes, members: Ints, late: Mask) -> tuple[str, float]:
    """The kernel that takes longer by the most on the first of the members than on the others of its cohort."""
    first = int(members[0])
    rest = np.setdiff1d(np.flatnonzero(times.cohort == times.cohort[first]), members)
    steps = [step for step, is_late in zip(times.steps, late.tolist(), strict=True) if is_late]
    rows: list[int] = rest.tolist()
    own, others = _by_name(parts[first], steps), [_by_name(parts[row], steps) for row in rows]
    longer = {
        name: ns - float(np.median(known))
        for name, ns in own.items()
        if (known := [other[name] for other in others if name in other])
    }
    name = max(longer, key=lambda name: longer[name], default="")
    return (name, longer[name]) if name and longer[name] > 0 else ("", 0.0)


def _by_name(part: RankSteps, steps: Sequence[str]) -> dict[str, float]:
    """Mean ns of the kernels of a rank in some steps."""
    at = [part.steps.index(step) for step in steps]
    mean: list[float] = part.kernel_ns.reshape(len(part.kernel_names), len(part.steps))[:, at].mean(axis=1).tolist()
    return dict(zip(part.kernel_names, mean, strict=True))


def _largest(found: list[Outlier]) -> Iterator[Outlier]:
    """Each rank's outlier once, by the largest unit; groups only where it is their work, not where their ranks are."""
    shared = ("work", "computation", "input")
    chosen = [one for one in found if one.unit not in ("replica", "tensor") or one.cause in shared]
    hosts = {tuple(one.members) for one in chosen if one.unit == "host" and one.cause not in ("work", "input")}
    chosen = [one for one in chosen if one.unit == "host" or tuple(one.members) not in hosts]
    claimed: set[int] = set()
    for one in sorted(chosen, key=lambda one: (-len(one.members), one.unit == "host")):
        own = set(one.members.tolist())
        if not own <= claimed:
            claimed |= own
            yield one


def _stages(parts: Sequence[RankSteps], times: RankTimes, where: ProcessGroups, limits: _Limits) -> Iterator[Outlier]:
    """Stages of a pipeline with more to do than the others have, in most steps."""
    stage = where.axis_position.get("pipeline")
    if stage is None or (stage < 0).any():
        return
    rows = group(stage).members()
    if len(rows) < 2:
        return
    values = (times.total, times.computation, times.loading, times.other, times.kernel_blocks)
    means = [np.stack([np.median(one[members], axis=0) for members in rows]) for one in values]
    typical = RankTimes(times.steps, *means, cohort=np.zeros(len(rows), np.int64))
    first = [parts[int(members[0])] for members in rows]
    by = excesses(typical.self_time, typical.cohort)
    for i, members in enumerate(rows):
        if np.median(by[i]) > max(MIN_STAGE_EXCESS_SHARE * limits.step, limits.often):
            one = _outlier(first, typical, "stage", str(int(stage[members[0]])), np.array([i]), by[i], by[i] > 0)
            yield msgspec.structs.replace(one, members=members)
