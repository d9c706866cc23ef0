"""The collectives and messages of a run, each once: who met, when, how much was exchanged and how fast."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Mask
from visualprof.views.measure.call_matching import CallTransfers
from visualprof.views.measure.groups import group
from visualprof.views.measure.process_groups import ProcessGroups

MESSAGE = "send_recv"  # both ends of a message are one meeting


class CommunicationEvents(msgspec.Struct, frozen=True):
    """m meetings, of n process groups or pairs of ranks.

    name: (m,) ids of names. group: (m,) place among the groups of the run, -1 unknown. source, destination: (m,) ranks
    of a message, or the two members of a group, else -1. bytes: (m,) -1 unknown. step: (m,) place among `steps`, -1.
    ranks: (m,) how many ranks have it. exchange: (m,) ns, the shortest over these in which data was exchanged.
    busy, wait: (m,) ns in which the ranks have it and wait in it, all of them; wait -1 where that is unknown.
    hosts: (m,) on how many hosts those are that meet, size: (m,) how many these are; 0 unknown.
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
        """Which are messages from one rank to another."""
        return self.source >= 0


def communication_events(
    matched: CallTransfers, steps: Sequence[str], step: Ints, where: ProcessGroups
) -> CommunicationEvents:
    """Every call of the ranks, those that are one collective or message as one.

    Args: steps: of all ranks. step: (n,) place among them of each call, -1.
    """
    calls = matched.calls
    alone = -1 - np.arange(len(calls.call_id))  # numbers of calls that nobody else has
    same = group(np.where(calls.call_id >= 0, calls.call_id, alone))
    one = same.first
    source, destination = calls.source[one], calls.destination[one]
    of = where.group_indices(calls.groups)[calls.group[one]]
    hosts, counts = _hosts(where, of, source, destination)
    return CommunicationEvents(
        (*calls.names, MESSAGE),
        tuple(steps),
        np.where(source >= 0, len(calls.names), calls.name[one]).astype(np.int32),
        of,
        source,
        destination,
        same.max(matched.bytes),
        step[one],
        same.count,
        matched.data_transfer_ns[one],
        same.sum(matched.latency_ns),
        np.where(calls.call_id[one] >= 0, same.sum(matched.wait_ns), -1),
        hosts,
        np.where(source >= 0, 2, np.where(counts > 0, counts, np.maximum(matched.group_size[one], 0))),
    )


def _hosts(where: ProcessGroups, of: Ints, source: Ints, destination: Ints) -> tuple[Ints, Ints]:
    """On how many hosts those stand that meet, 0 unknown, and how many they are, 0 unknown."""
    names = {host: i for i, host in enumerate(dict.fromkeys(("", *where.hosts)))}
    by_rank = {number: names[host] for number, host in zip(where.ranks, where.hosts, strict=True)}
    spans = list[int]()
    for one in where.groups:
        there = {by_rank.get(rank, 0) for rank in one.members}
        spans.append(0 if 0 in there else len(there))
    span = np.array([*spans, 0], np.int64)[of]
    count = np.array([*(len(one.members) for one in where.groups), 0], np.int64)[of]
    ranks = np.array(sorted(by_rank), np.int64)
    hosts = np.array([by_rank[rank] for rank in ranks.tolist()], np.int64)
    a, b = (_look_up(ranks, hosts, ends) for ends in (source, destination))
    return np.where(source >= 0, np.where((a > 0) & (b > 0), 1 + (a != b), 0), span), count


def _look_up(keys: Ints, values: Ints, wanted: Ints) -> Ints:
    """The values of keys that ascend, 0 of one that is not there."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)


def bus_bytes(name: str, size: Floats, members: Ints) -> Floats:
    """Bytes over the link of each member, as nccl-tests counts for its bus bandwidth; NaN unknown.

    Args: size: (n,) bytes of messages. members: (n,) of the groups.
    """
    word = name.replace("_", "").lower()
    share = np.ones(len(size))
    if "allreduce" in word:
        share = 2 * (members - 1) / np.maximum(members, 1)
    elif any(kind in word for kind in ("gather", "scatter", "toall")):
        share = (members - 1) / np.maximum(members, 1)
    return np.where((size > 0) & (members > 1), size * share, np.nan)
