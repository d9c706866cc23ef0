"""Which calls of the ranks of a run are one collective or message, and what follows for their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask
from visualprof.reader.trace.process_group import ProcessGroup
from visualprof.views.measure.collectives import Collectives
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import span_lengths_by_group


class MatchedCalls(msgspec.Struct, frozen=True):
    """The calls of r ranks in a row, n of them with m parts, and which are the same.

    names, groups: of all ranks, each once; a group is itself by its name and, where they are known, its members.
    rank: (n,) ascending, place of the rank. name, group: (n,) places in these. first: (n,) the first part of each call.
    source, destination, call, end, exchanges: as of `Collectives`.
    key: (n,) a number of the call that is the same on all ranks of its group, of `keys`; -1 where some rank lacks it,
    -2 where no other rank of the group is there. number: (m,) likewise of each part, of `numbers`.
    even: (n,) have the ranks as many of its kind, so that those without a number of their own surely meet?
    """

    rank_count: int
    names: tuple[str, ...]
    groups: tuple[ProcessGroup, ...]
    rank: Ids
    name: Ids
    group: Ids
    first_part: Ints
    source: Ints
    destination: Ints
    part_call: Ints
    part_end: Ints
    is_transfer: Mask
    call_id: Ints
    call_id_count: int
    part_id: Ints
    part_id_count: int
    is_unambiguous: Mask

    def rank_slices(self, parts: bool = False) -> list[slice]:
        """Where the calls of each rank stand, or their parts."""
        of = self.rank[self.part_call] if parts else self.rank
        edges: list[int] = np.searchsorted(of, np.arange(self.rank_count + 1)).tolist()
        return [slice(low, high) for low, high in pairwise(edges)]


class CallTransfers(msgspec.Struct, frozen=True):
    """Calls with what their ranks share; -1 for a call that some rank lacks.

    bytes, group_size, event: as of `Collectives`. latency: (n,) ns of its own rank. transfer: (n,) ns.
    part_transfer: (m,) ns, the shortest of the part over the ranks. exchange: (n,) ns, the shortest time over the ranks
    in which data was exchanged; that of its rank alone where the call is unmatched.
    """

    calls: MatchedCalls
    bytes: Ints
    group_size: Ints
    event: Ints
    latency_ns: Ints
    transfer_ns: Ints
    part_transfer_ns: Ints
    data_transfer_ns: Ints

    @property
    def wait_ns(self) -> Ints:
        """(n,) ns, 0 where that is unknown."""
        return np.where(self.transfer_ns >= 0, self.latency_ns - self.transfer_ns, 0)


def match_calls(ranks: Sequence[Collectives]) -> MatchedCalls:
    """The calls of every rank with those on the other ranks of the process group.

    A message is the i-th from its source to its destination. Any other call has the number that its group gave it, and
    is the i-th of that and of its name; where numbers or members are unknown, the i-th of its name and group. The ranks
    of the group must have as many parts of it. One of one rank alone meets nobody.
    """
    counts = [len(calls) for calls in ranks]
    rank = np.repeat(np.arange(len(ranks), dtype=np.int32), counts)
    names = {text: i for i, text in enumerate(dict.fromkeys(text for calls in ranks for text in calls.names))}
    groups = dict[ProcessGroup, int]()
    of_groups = [[groups.setdefault(_same(one), len(groups)) for one in calls.groups] for calls in ranks]
    name = _placed([[names[text] for text in calls.names] for calls in ranks], [calls.name for calls in ranks])
    in_group = _placed(of_groups, [calls.group for calls in ranks])
    seq, source, destination, end = (_column(ranks, what) for what in ("sequence", "source", "destination", "part_end"))
    before = accumulate(counts, initial=0)
    call = _row(calls.part_call + low for calls, low in zip(ranks, before, strict=False))
    parts = np.bincount(call, minlength=len(rank))
    first = np.cumsum(parts) - parts
    # A call of a group whose members are not known is one of all ranks that have the group.
    known, has = list(groups), Counter(i for own in of_groups for i in own)
    wanted = np.array([len(ranks) if one == _NONE else has[i] for i, one in enumerate(known)], np.int64)[in_group]
    seq = np.where(np.array([bool(one.runs) for one in known], bool)[in_group], seq, -1)
    message = source >= 0
    kind = np.where(message, -1, name.astype(np.int64) * len(known) + in_group)
    wanted[message] = 2
    same = group(kind, np.where(message, -1, seq), source, destination)
    calls = group(same.ids, _nth(same.ids * len(ranks) + rank))
    whole = (calls.count == wanted[calls.first]) & (calls.count > 1)
    even = np.bincount(same.ids[calls.first], ~whole, len(same.first)) == 0
    whole &= calls.min(parts) == calls.max(parts)
    own = np.array([calls.rank for calls in ranks], np.int64)
    there = np.isin(destination, own) & np.isin(source, own)
    alone = np.where(message, ~there, wanted < 2)
    key = np.where(whole[calls.ids], calls.ids, np.where(alone, -2, -1))
    # A part is known by its call and its place in that.
    numbers = np.where(whole, parts[calls.first], 0)
    place = (np.cumsum(numbers) - numbers)[calls.ids] - first
    number = np.where(key[call] >= 0, place[call] + np.arange(len(call)), key[call])
    return MatchedCalls(
        len(ranks),
        tuple(names),
        tuple(groups),
        rank,
        name,
        in_group,
        first,
        source,
        destination,
        call,
        end,
        np.concatenate([np.zeros(0, bool), *(calls.is_transfer for calls in ranks)]),
        key,
        len(whole),
        number,
        int(numbers.sum()),
        even[same.ids],
    )


def call_transfers(ranks: Sequence[Collectives]) -> CallTransfers:
    """The calls of every rank with how long they transferred.

    Transfer is, for each part of the call (host operator, kernels), the shortest over the ranks: the fastest rank
    waited for nobody. A call that some rank lacks, or of which it has other parts, has no transfer time, and neither
    has one of one rank alone. Source: torch-tb-profiler's wait graph.
    """
    calls = match_calls(ranks)
    known, some, start = calls.call_id >= 0, calls.is_transfer, _column(ranks, "part_start")
    latency = exchanged = span_lengths_by_group(calls.part_call, start, calls.part_end, len(known))
    if not some.all():
        exchanged = span_lengths_by_group(calls.part_call[some], start[some], calls.part_end[some], len(known))
    part_transfer = _shortest(calls.part_id, calls.part_end - start, calls.part_id_count)
    # The parts of a call may run side by side: it cannot transfer for longer than the fastest rank took.
    total = np.bincount(calls.part_call, part_transfer, len(known)).astype(np.int64)
    transfer = np.where(known, np.minimum(total, _shortest(calls.call_id, latency, calls.call_id_count)), -1)
    exchange = np.where(known, _shortest(calls.call_id, exchanged, calls.call_id_count), exchanged)
    size, members, event = (_column(ranks, what) for what in ("bytes", "group_size", "event"))
    return CallTransfers(calls, size, members, event, latency, transfer, part_transfer, exchange)


_NONE = ProcessGroup("")


def _same(one: ProcessGroup) -> ProcessGroup:
    """What is the same of a group on all its ranks."""
    return ProcessGroup(one.name, runs=one.runs)


def _column(ranks: Sequence[Collectives], what: str) -> Ints:
    return _row(getattr(calls, what) for calls in ranks)


def _row(columns: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *columns])


def _placed(places: Sequence[Sequence[int]], ids: Sequence[Ids]) -> Ids:
    """Numbers of each rank's own as those of the run. places: of each rank, what its numbers are there."""
    every = np.array([i for own in places for i in own], np.int32)
    before = accumulate(map(len, places), initial=0)
    return every[_row(own.astype(np.int64) + low for own, low in zip(ids, before, strict=False))]


def _nth(values: Ints) -> Ints:
    """The place of each value among those equal to it."""
    order = np.argsort(values, kind="stable")
    ordered, place = values[order], np.arange(len(values))
    first = np.maximum.accumulate(np.where(np.append(True, ordered[1:] != ordered[:-1])[: len(order)], place, 0))
    nth = np.empty(len(values), np.int64)
    nth[order] = place - first
    return nth


def _shortest(of: Ints, times: Ints, count: int) -> Ints:
    """The shortest time of those with the same number, -1 of those without one."""
    least = np.full(count + 1, np.iinfo(np.int64).max)
    known = of >= 0
    np.minimum.at(least, of[known], times[known])
    least[-1] = -1
    return least[np.maximum(of, -1)]
