"""The collectives and messages of a run, once per run instead of once per rank: members, time, size and speed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Mask
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.call_matching import CallTransfers
from visualprof.views.measure.ranks.process_groups import ProcessGroups

MESSAGE_NAME = "send_recv"  # both ends of a message are one communication event


class CommunicationEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The m communication events of a run, each of a process group or a pair of ranks.

    Attributes:
        names: Distinct names.
        steps: Names of the steps.
        name: (m,) index into `names`.
        group: (m,) index among the groups of the run, -1 unknown.
        source: (m,) sending rank of a message, -1 for collectives.
        destination: (m,) receiving rank of a message, -1 for collectives.
        bytes: (m,) -1 unknown.
        step: (m,) index into `steps`, -1 for none.
        rank_count: (m,) number of ranks that recorded the event.
        data_transfer_ns: (m,) shortest time over these ranks in which data was transferred; -1
            unknown.
        busy_ns: (m,) latency, summed over these ranks; -1 unknown.
        wait_ns: (m,) wait time, summed over these ranks; -1 unknown.
        host_count: (m,) number of hosts of the members, 0 unknown.
        member_count: (m,) number of members, 0 unknown.
    """

    names: tuple[str, ...]
    steps: tuple[str, ...]
    name: Ids
    group: Ints
    source: Ints
    destination: Ints
    bytes: Ints
    step: Ints
    rank_count: Ints
    data_transfer_ns: Ints
    busy_ns: Ints
    wait_ns: Ints
    host_count: Ints
    member_count: Ints

    @property
    def is_message(self) -> Mask:
        """Return which events are messages from one rank to another."""
        return self.source >= 0


def communication_events(
    matched: CallTransfers, steps: Sequence[str], step: Ints, process_groups: ProcessGroups
) -> CommunicationEvents:
    """Return the calls of all ranks, with matched calls merged into one event.

    Args:
        matched: The calls of all ranks.
        steps: Names of the steps of all ranks.
        step: (n,) index of the step of each call, -1 for none.
        process_groups: The process groups of the run.
    """
    calls = matched.calls
    unmatched_ids = -1 - np.arange(len(calls.call_id))  # ids of unmatched calls
    by_event = group(np.where(calls.call_id >= 0, calls.call_id, unmatched_ids))
    first_calls = by_event.first
    source, destination = calls.source[first_calls], calls.destination[first_calls]
    group_ids = process_groups.group_indices(calls.groups)[calls.group[first_calls]]
    host_counts, member_counts = _host_counts(process_groups, group_ids, source, destination)
    group_size = np.maximum(matched.group_size[first_calls], 0)
    return CommunicationEvents(
        names=(*calls.names, MESSAGE_NAME),
        steps=tuple(steps),
        name=np.where(source >= 0, len(calls.names), calls.name[first_calls]).astype(np.int32),
        group=group_ids,
        source=source,
        destination=destination,
        bytes=by_event.max(matched.bytes),
        step=step[first_calls],
        rank_count=by_event.count,
        data_transfer_ns=matched.data_transfer_ns[first_calls],
        busy_ns=np.where(by_event.min(matched.latency_ns) >= 0, by_event.sum(matched.latency_ns), -1),
        wait_ns=np.where(
            (calls.call_id[first_calls] >= 0) & (matched.transfer_ns[first_calls] >= 0),
            by_event.sum(matched.wait_ns),
            -1,
        ),
        host_count=host_counts,
        member_count=np.where(source >= 0, 2, np.where(member_counts > 0, member_counts, group_size)),
    )


def _host_counts(process_groups: ProcessGroups, group_ids: Ints, source: Ints, destination: Ints) -> tuple[Ints, Ints]:
    """Return the number of hosts of each event's members, and the number of members; 0 unknown."""
    host_ids = {host: i for i, host in enumerate(dict.fromkeys(("", *process_groups.hosts)))}
    host_of_rank = {
        number: host_ids[host] for number, host in zip(process_groups.ranks, process_groups.hosts, strict=True)
    }
    group_host_counts = list[int]()
    for process_group in process_groups.groups:
        member_hosts = {host_of_rank.get(rank, 0) for rank in process_group.members}
        group_host_counts.append(0 if 0 in member_hosts else len(member_hosts))
    event_hosts = np.array([*group_host_counts, 0], np.int64)[group_ids]
    event_members = np.array([*(len(process_group.members) for process_group in process_groups.groups), 0], np.int64)[
        group_ids
    ]
    ranks = np.array(sorted(host_of_rank), np.int64)
    hosts = np.array([host_of_rank[rank] for rank in ranks.tolist()], np.int64)
    source_host, destination_host = (_lookup(ranks, hosts, end_ranks) for end_ranks in (source, destination))
    return np.where(
        source >= 0,
        np.where((source_host > 0) & (destination_host > 0), 1 + (source_host != destination_host), 0),
        event_hosts,
    ), event_members


def _lookup(keys: Ints, values: Ints, queries: Ints) -> Ints:
    """Return the values of ascending keys; 0 for a key that is missing."""
    position = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[position] == queries, values[position], 0)


def bus_bytes(name: str, size: Floats, members: Ints) -> Floats:
    """Return the bytes over the link of each member, as nccl-tests counts them for its bus bandwidth; NaN unknown.

    Args:
        name: Name of the collective.
        size: (n,) bytes of messages.
        members: (n,) number of members of the groups.
    """
    word = name.replace("_", "").lower()
    factor = np.ones(len(size))
    if "allreduce" in word:
        factor = 2 * (members - 1) / np.maximum(members, 1)
    elif any(kind in word for kind in ("gather", "scatter", "toall")):
        factor = (members - 1) / np.maximum(members, 1)
    return np.where((size > 0) & (members > 1), size * factor, np.nan)
