"""Links that are slow: pairs of ranks and process groups that exchange as much as others, and take longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.communication_events import CommunicationEvents
from visualprof.views.measure.groups import group
from visualprof.views.measure.process_groups import ProcessGroups
from visualprof.views.measure.stragglers import MIN_EXCESS_SHARE, SIGMA_PER_MAD, SIGMAS, Outlier, Unit, beyond_chance

SLOW = 1.4  # times as long as the faster quarter of the others: half of them may share one slow link
ALIKE = 3  # pairs or groups at least that exchange the same


class LinkTimes(msgspec.Struct, frozen=True):
    """Who exchanges how fast, m rows of who (a pair of ranks, or a group) and what (a name, bytes).

    row: (m,) a meeting of each. calls: (m,). took: (m,) ns, median. usual: (m,) ns, the lower quartile of those
    that exchange the same over as many hosts, NaN of less than three. slow: (m,) is it one that takes longer in most
    steps, or in so many that it is no chance? late: (m, s) in which steps; excess: (m, s) ns over the usual, summed.
    """

    event_row: Ints
    calls: Ints
    median_ns: Floats
    baseline_ns: Floats
    is_slow: Mask
    is_late: Mask
    excess_ns: Floats


def link_times(met: CommunicationEvents, steps: Sequence[str], step_ns: float) -> LinkTimes:
    """The links of a run, and which are slow in some steps that last so long."""
    known = np.flatnonzero((met.rank_count > 1) & (met.data_transfer_ns > 0) & (met.bytes > 0))
    place = {step: i for i, step in enumerate(steps)}
    step = np.array([*(place.get(text, -1) for text in met.steps), -1], np.int64)[met.step[known]]
    took = met.data_transfer_ns[known]
    ends = (met.source[known], met.destination[known])
    who = group(met.group[known], *ends, met.name[known], met.bytes[known])
    row, median = known[who.first], who.median(took)
    alike = group(met.is_message[row], met.name[row], met.bytes[row], met.host_count[row], met.member_count[row])
    usual = np.full(len(row), np.nan)
    limit = np.full(len(row), np.inf)
    for rows in alike.members():
        if len(rows) >= ALIKE:
            usual[rows] = quick = float(np.quantile(median[rows], 0.25))
            faster = median[rows][median[rows] <= np.median(median[rows])]
            limit[rows] = max(SLOW * quick, quick + SIGMAS * SIGMA_PER_MAD * float(np.median(np.abs(faster - quick))))
    inside = np.flatnonzero((step >= 0) & ~np.isnan(usual[who.ids]))
    cell = who.ids[inside] * len(steps) + step[inside]
    shape, size = (len(row), len(steps)), len(row) * len(steps)
    count = np.bincount(cell, minlength=size).reshape(shape)
    excess = np.bincount(cell, took[inside] - usual[who.ids[inside]], size).astype(np.float64).reshape(shape)
    mean = usual[:, None] + excess / np.maximum(count, 1)
    late = (count > 0) & (mean > limit[:, None]) & (excess > MIN_EXCESS_SHARE * step_ns)
    always = late.mean(axis=1) > 0.5 if len(steps) else np.zeros(len(row), bool)
    slow = np.array(beyond_chance(late, always.tolist()), bool)
    return LinkTimes(row, who.count, median, usual, slow, late, excess)


def slow_links(met: CommunicationEvents, found: LinkTimes, where: ProcessGroups) -> Iterator[Outlier]:
    """The slow links as outliers: of a host all of whose ways to others are slow, else of a pair, else of a group.

    In a matrix of senders and receivers a slow row is a sender's, a slow column a receiver's (C4D, HPCA 2025).
    """
    at = {number: i for i, number in enumerate(where.ranks)}
    ways = [_hosts(met, int(row), at, where) for row in found.event_row.tolist()]
    between = [len(way) > 1 for way in ways]
    slow = [bool(is_slow) and far for is_slow, far in zip(found.is_slow.tolist(), between, strict=True)]
    explained: set[int] = set()
    for host in sorted({host for way, is_slow in zip(ways, slow, strict=True) if is_slow for host in way}):
        mine = [i for i, way in enumerate(ways) if host in way and between[i] and found.baseline_ns[i] > 0]
        kinds = {frozenset(ways[i]) for i in mine}
        if len(kinds) > 1 and all(slow[i] for i in mine):
            explained |= set(mine)
            yield _outlier(met, found, "host", host, mine, [i for i, name in enumerate(where.hosts) if name == host])
    rest: dict[frozenset[str], list[int]] = {}
    for i, is_slow in enumerate(found.is_slow.tolist()):
        if is_slow and i not in explained:
            rest.setdefault(frozenset(ways[i]) if slow[i] else frozenset((f"{i}",)), []).append(i)
    pairs = [key for key, rows in rest.items() if any(met.source[found.event_row[i]] >= 0 for i in rows)]
    for key in sorted(pairs, key=sorted):
        rows = rest[key]
        name = " - ".join(sorted(key)) if slow[rows[0]] else ""
        yield _outlier(met, found, "link", name, rows, _members(met, found, rows, at, where))
    for key, rows in rest.items():
        if key not in pairs and not any(other <= key for other in pairs):
            yield _outlier(met, found, "group", "", rows, _members(met, found, rows, at, where))


def _hosts(met: CommunicationEvents, row: int, at: Mapping[int, int], where: ProcessGroups) -> tuple[str, ...]:
    """The hosts of those that meet, () where one is unknown."""
    ends = [int(met.source[row]), int(met.destination[row])]
    ranks = ends if ends[0] >= 0 else where.groups[g].members if (g := int(met.group[row])) >= 0 else ()
    hosts = {where.hosts[at[rank]] if rank in at else "" for rank in ranks}
    return () if "" in hosts else tuple(sorted(hosts))


def _members(
    met: CommunicationEvents, found: LinkTimes, rows: Sequence[int], at: Mapping[int, int], where: ProcessGroups
) -> list[int]:
    ranks = set[int]()
    for row in found.event_row[list(rows)].tolist():
        ends = {int(met.source[row]), int(met.destination[row])}
        ranks |= ends if met.source[row] >= 0 else set(where.groups[int(met.group[row])].members)
    return sorted(at[rank] for rank in ranks if rank in at)


def _outlier(
    met: CommunicationEvents, found: LinkTimes, unit: Unit, name: str, rows: Sequence[int], members: Sequence[int]
) -> Outlier:
    """The excess is that of the one that is slow by the most: others are slow at the same time."""
    worst = max(rows, key=lambda i: float(found.excess_ns[i].sum()))
    late = np.asarray(found.is_late[list(rows)].any(axis=0), bool)
    return Outlier(
        unit,
        name,
        np.array(members, np.int64),
        late,
        np.where(late, found.excess_ns[worst], 0.0),
        (0.0, 0.0, 0.0),
        "link",
        collective=met.names[int(met.name[found.event_row[worst]])],
        slowdown=float(found.median_ns[worst] / found.baseline_ns[worst]),
    )
