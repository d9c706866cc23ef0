"""Find slow links: pairs of ranks and process groups that transfer as much as others but take longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.communication_events import CommunicationEvents
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.stragglers import (
    MIN_EXCESS_SHARE,
    SIGMA_PER_MAD,
    SIGMAS,
    Outlier,
    Unit,
    beyond_chance,
)

MIN_SLOWDOWN = 1.4  # compared with the faster quarter of similar links, because half of them may share one slow link
MIN_SIMILAR_LINKS = 3  # links that transfer the same


class LinkTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Transfer times of links: m rows of a pair of ranks or a group, with a name and a size.

    Attributes:
        event_row: (m,) a communication event of each link.
        calls: (m,) number of calls.
        median_ns: (m,) median time.
        baseline_ns: (m,) lower quartile of the links that transfer the same over as many hosts; NaN
            for fewer than three.
        is_slow: (m,) whether the link is slow in most steps, or in more steps than chance explains.
        is_late: (m, s) in which steps the link is slow.
        excess_ns: (m, s) time above the baseline, summed per step.
    """

    event_row: Ints
    calls: Ints
    median_ns: Floats
    baseline_ns: Floats
    is_slow: Mask
    is_late: Mask
    excess_ns: Floats


def link_times(events: CommunicationEvents, steps: Sequence[str], step_ns: float) -> LinkTimes:
    """Return the times of the links of a run, and which links are slow in some steps.

    Args:
        events: The communication events of the run.
        steps: Names of the steps.
        step_ns: Duration of a step.
    """
    measured = np.flatnonzero((events.rank_count > 1) & (events.data_transfer_ns > 0) & (events.bytes > 0))
    step_index = {step: i for i, step in enumerate(steps)}
    step = np.array([*(step_index.get(text, -1) for text in events.steps), -1], np.int64)[events.step[measured]]
    times = events.data_transfer_ns[measured]
    end_ranks = (events.source[measured], events.destination[measured])
    by_link = group(events.group[measured], *end_ranks, events.name[measured], events.bytes[measured])
    row, median_ns = measured[by_link.first], by_link.median(times)
    similar = group(
        events.is_message[row], events.name[row], events.bytes[row], events.host_count[row], events.member_count[row]
    )
    baseline = np.full(len(row), np.nan)
    limit = np.full(len(row), np.inf)
    for rows in similar.members():
        if len(rows) >= MIN_SIMILAR_LINKS:
            baseline[rows] = low_quartile = float(np.quantile(median_ns[rows], 0.25))
            faster_half = median_ns[rows][median_ns[rows] <= np.median(median_ns[rows])]
            limit[rows] = max(
                MIN_SLOWDOWN * low_quartile,
                low_quartile + SIGMAS * SIGMA_PER_MAD * float(np.median(np.abs(faster_half - low_quartile))),
            )
    in_steps = np.flatnonzero((step >= 0) & ~np.isnan(baseline[by_link.ids]))
    cell = by_link.ids[in_steps] * len(steps) + step[in_steps]
    shape, size = (len(row), len(steps)), len(row) * len(steps)
    count = np.bincount(cell, minlength=size).reshape(shape)
    excess = (
        np.bincount(cell, times[in_steps] - baseline[by_link.ids[in_steps]], size).astype(np.float64).reshape(shape)
    )
    mean = baseline[:, None] + excess / np.maximum(count, 1)
    is_late = (count > 0) & (mean > limit[:, None]) & (excess > MIN_EXCESS_SHARE * step_ns)
    in_most_steps = is_late.mean(axis=1) > 0.5 if len(steps) else np.zeros(len(row), bool)
    is_slow = np.array(beyond_chance(is_late, in_most_steps.tolist()), bool)
    return LinkTimes(
        event_row=row,
        calls=by_link.count,
        median_ns=median_ns,
        baseline_ns=baseline,
        is_slow=is_slow,
        is_late=is_late,
        excess_ns=excess,
    )


def slow_links(events: CommunicationEvents, times: LinkTimes, groups: ProcessGroups) -> Iterator[Outlier]:
    """Yield the slow links as outliers.

    If all links of a host to other hosts are slow, the host is the outlier; otherwise a pair or a
    group is.

    In a matrix of senders and receivers, a slow row indicates a slow sender and a slow column a
    slow receiver (C4D, HPCA 2025).
    """
    rank_index = {number: i for i, number in enumerate(groups.ranks)}
    host_sets = [_link_hosts(events, int(row), rank_index, groups) for row in times.event_row.tolist()]
    is_remote = [len(hosts) > 1 for hosts in host_sets]
    is_slow_remote = [bool(slow) and remote for slow, remote in zip(times.is_slow.tolist(), is_remote, strict=True)]
    explained_links: set[int] = set()
    for host in sorted({host for hosts, slow in zip(host_sets, is_slow_remote, strict=True) if slow for host in hosts}):
        host_links = [
            i for i, hosts in enumerate(host_sets) if host in hosts and is_remote[i] and times.baseline_ns[i] > 0
        ]
        host_pairs = {frozenset(host_sets[i]) for i in host_links}
        if len(host_pairs) > 1 and all(is_slow_remote[i] for i in host_links):
            explained_links |= set(host_links)
            yield _link_outlier(
                events, times, "host", host, host_links, [i for i, name in enumerate(groups.hosts) if name == host]
            )
    remaining: dict[frozenset[str], list[int]] = {}
    for i, slow in enumerate(times.is_slow.tolist()):
        if slow and i not in explained_links:
            remaining.setdefault(frozenset(host_sets[i]) if is_slow_remote[i] else frozenset((f"{i}",)), []).append(i)
    pairs = [key for key, rows in remaining.items() if any(events.source[times.event_row[i]] >= 0 for i in rows)]
    for key in sorted(pairs, key=sorted):
        rows = remaining[key]
        name = " - ".join(sorted(key)) if is_slow_remote[rows[0]] else ""
        yield _link_outlier(events, times, "link", name, rows, _link_members(events, times, rows, rank_index, groups))
    for key, rows in remaining.items():
        if key not in pairs and not any(other <= key for other in pairs):
            yield _link_outlier(
                events, times, "group", "", rows, _link_members(events, times, rows, rank_index, groups)
            )


def _link_hosts(
    events: CommunicationEvents, row: int, rank_index: Mapping[int, int], groups: ProcessGroups
) -> tuple[str, ...]:
    """Return the hosts of the members of a link, () if one is unknown."""
    ends = [int(events.source[row]), int(events.destination[row])]
    ranks = ends if ends[0] >= 0 else groups.groups[group].members if (group := int(events.group[row])) >= 0 else ()
    hosts = {groups.hosts[rank_index[rank]] if rank in rank_index else "" for rank in ranks}
    return () if "" in hosts else tuple(sorted(hosts))


def _link_members(
    events: CommunicationEvents,
    times: LinkTimes,
    rows: Sequence[int],
    rank_index: Mapping[int, int],
    groups: ProcessGroups,
) -> list[int]:
    """Return the row of each rank that belongs to some links."""
    ranks = set[int]()
    for row in times.event_row[list(rows)].tolist():
        ends = {int(events.source[row]), int(events.destination[row])}
        ranks |= ends if events.source[row] >= 0 else set(groups.groups[int(events.group[row])].members)
    return sorted(rank_index[rank] for rank in ranks if rank in rank_index)


def _link_outlier(
    events: CommunicationEvents, times: LinkTimes, unit: Unit, name: str, rows: Sequence[int], members: Sequence[int]
) -> Outlier:
    """Return some links as one outlier, with the excess of the slowest link: the links are slow at the same time."""
    slowest = max(rows, key=lambda i: float(times.excess_ns[i].sum()))
    is_late = np.asarray(times.is_late[list(rows)].any(axis=0), bool)
    return Outlier(
        unit=unit,
        name=name,
        members=np.array(members, np.int64),
        is_late=is_late,
        excess_ns=np.where(is_late, times.excess_ns[slowest], 0.0),
        part_excess_ns=(0.0, 0.0, 0.0),
        cause="link",
        collective=events.names[int(events.name[times.event_row[slowest]])],
        slowdown=float(times.median_ns[slowest] / times.baseline_ns[slowest]),
    )
