"""The collectives and messages of a run, each once: who met, when, how much was exchanged and how fast."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Mask
from visualprof.views.measure.collectives import Matched
from visualprof.views.measure.groups import group
from visualprof.views.measure.process_groups import ProcessGroups
from visualprof.views.measure.rank_part import RankPart

MESSAGE = "send_recv"  # both ends of a message are one meeting


class Meetings(msgspec.Struct, frozen=True):
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
    ranks: Ints
    exchange: Ints
    busy: Ints
    wait: Ints
    hosts: Ints
    size: Ints

    @property
    def message(self) -> Mask:
        """Which are messages from one rank to another."""
        return self.source >= 0


def meetings(
    parts: Sequence[RankPart], numbers: Sequence[int], matched: Sequence[Matched], where: ProcessGroups
) -> Meetings:
    """Every call of the ranks, those that are one collective or message as one."""
    names: dict[str, int] = {}
    steps = {step: i for i, step in enumerate(dict.fromkeys(step for part in parts for step in part.steps))}
    groups = {(one.name, one.runs): i for i, one in enumerate(where.groups)}
    columns: list[list[Ints]] = []
    alone = 0
    for part, mine in zip(parts, matched, strict=True):
        calls = mine.calls
        if not len(calls):
            continue
        first = np.searchsorted(calls.call, np.arange(len(calls)))
        known = mine.part[first] >= 0
        single = -1 - alone - np.arange(len(calls))  # numbers of calls that nobody else has
        alone += len(calls)
        name = np.array([names.setdefault(text, len(names)) for text in calls.names], np.int64)
        at = np.array([groups.get((one.name, one.runs), -1) for one in calls.groups], np.int64)
        step = np.append([steps[text] for text in part.steps], -1).astype(np.int64)
        took = mine.latency
        columns.append(
            [
                np.where(known, mine.part[first], single),
                np.where(calls.source >= 0, names.setdefault(MESSAGE, len(names)), name[calls.name]),
                at[calls.group],
                calls.source,
                calls.destination,
                calls.bytes,
                step[part.step[first]],
                mine.exchange,
                took,
                np.where(known, took - mine.transfer, 0),
                calls.group_size,
            ]
        )
    if not columns:
        none = np.zeros(0, np.int64)
        return Meetings((), tuple(steps), none.astype(np.int32), *[none] * 11)
    ids, name, of, source, destination, size, step, exchange, took, wait, members = map(
        np.concatenate, zip(*columns, strict=True)
    )
    same = group(ids)
    one = same.first
    matched_ones = ids[one] >= 0
    hosts, counts = _hosts(where, numbers, of[one], source[one], destination[one])
    return Meetings(
        tuple(names),
        tuple(steps),
        name[one].astype(np.int32),
        of[one],
        source[one],
        destination[one],
        same.max(size),
        step[one],
        same.count,
        exchange[one],
        same.sum(took),
        np.where(matched_ones, same.sum(wait), -1),
        hosts,
        np.where(source[one] >= 0, 2, np.where(counts > 0, counts, np.maximum(members[one], 0))),
    )


def _hosts(
    where: ProcessGroups, numbers: Sequence[int], of: Ints, source: Ints, destination: Ints
) -> tuple[Ints, Ints]:
    """On how many hosts those stand that meet, 0 unknown, and how many they are, 0 unknown."""
    names = {host: i for i, host in enumerate(dict.fromkeys(("", *where.hosts)))}
    by_rank = {number: names[host] for number, host in zip(numbers, where.hosts, strict=True)}
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
