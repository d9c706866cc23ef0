"""Match the calls of all ranks of a run: which calls are one collective or message, and how long it transferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask
from visualprof.reader.trace.process_group import ProcessGroup
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import span_lengths_by_group
from visualprof.views.measure.ranks.collectives import Collectives


class MatchedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of r ranks in one table, and which of them are the same: n calls with m parts.

    Attributes:
        rank_count: Number of ranks.
        names: Distinct names of all ranks.
        groups: Distinct groups of all ranks, identified by name and, if known, by members.
        rank: (n,) index of the rank, ascending.
        name: (n,) index into `names`.
        group: (n,) index into `groups`.
        first_part: (n,) first part of each call.
        source: (n,) as in `Collectives`.
        destination: (n,) as in `Collectives`.
        part_call: (m,) as in `Collectives`.
        part_end: (m,) as in `Collectives`.
        is_transfer: (m,) as in `Collectives`.
        call_id: (n,) a number that the call has on all ranks of its group; -1 if the call is
            missing on a rank, -2 if no other rank of the group has a profile.
        call_id_count: Number of call ids.
        part_id: (m,) a number like `call_id`, per part.
        part_id_count: Number of part ids.
        is_unambiguous: (n,) whether all ranks have equally many calls of this kind, so that calls
            without sequence numbers match reliably.
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
        """Return the slice of each rank's calls, or of their parts."""
        ranks = self.rank[self.part_call] if parts else self.rank
        bounds: list[int] = np.searchsorted(ranks, np.arange(self.rank_count + 1)).tolist()
        return [slice(start, stop) for start, stop in pairwise(bounds)]


class CallTransfers(msgspec.Struct, frozen=True, kw_only=True):
    """Matched calls with their transfer times; -1 for a call that is missing on a rank.

    Attributes:
        calls: The matched calls.
        bytes: (n,) as in `Collectives`.
        group_size: (n,) as in `Collectives`.
        event: (n,) as in `Collectives`.
        latency_ns: (n,) duration on its own rank, -1 if only the launch of the transfer is recorded.
        transfer_ns: (n,) time without waiting for other ranks.
        part_transfer_ns: (m,) shortest duration of the part over the ranks.
        data_transfer_ns: (n,) shortest time over the ranks in which data was transferred; for
            unmatched calls, the time on its own rank; -1 unknown.
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
        """Return the wait time (n,) of each call, 0 where it is unknown."""
        return np.where(self.transfer_ns >= 0, self.latency_ns - self.transfer_ns, 0)


class _Labels(NamedTuple):
    """Names and groups of the calls of all ranks.

    Attributes:
        names: Distinct names.
        groups: Distinct groups.
        name: (n,) index into `names`.
        group: (n,) index into `groups`.
        expected_ranks: (groups,) number of ranks that are expected to take part in a call of each group.
    """

    names: tuple[str, ...]
    groups: tuple[ProcessGroup, ...]
    name: Ids
    group: Ids
    expected_ranks: Ints


def match_calls(ranks: Sequence[Collectives]) -> MatchedCalls:
    """Match the calls of every rank with those on the other ranks of the process group.

    - A message is the i-th from its source to its destination.
    - Any other call is identified by its sequence number in the group and its name.
    - If numbers or members are unknown, it is the i-th call of its name and group.

    The ranks of the group must have equally many parts of the call. A group of one rank has no
    other rank to match.
    """
    labels = _number_labels(ranks)
    counts = [len(calls) for calls in ranks]
    rank = np.repeat(np.arange(len(ranks), dtype=np.int32), counts)
    sequence, source, destination, end = (
        _column(ranks, field) for field in ("sequence", "source", "destination", "part_end")
    )
    offsets = accumulate(counts, initial=0)
    part_call = _concatenate(calls.part_call + offset for calls, offset in zip(ranks, offsets, strict=False))
    part_counts = np.bincount(part_call, minlength=len(rank))
    first_part = np.cumsum(part_counts) - part_counts
    has_sequence = np.array([bool(process_group.runs) for process_group in labels.groups], bool)[labels.group]
    message = source >= 0
    kind = np.where(message, -1, labels.name.astype(np.int64) * len(labels.groups) + labels.group)
    expected = np.where(message, 2, labels.expected_ranks[labels.group])
    by_kind = group(kind, np.where(has_sequence & ~message, sequence, -1), source, destination)
    by_call = group(by_kind.ids, _occurrence_index(by_kind.ids * len(ranks) + rank))
    is_complete = (by_call.count == expected[by_call.first]) & (by_call.count > 1)
    is_unambiguous = np.bincount(by_kind.ids[by_call.first], ~is_complete, len(by_kind.first)) == 0
    is_complete &= by_call.min(part_counts) == by_call.max(part_counts)
    rank_numbers = np.array([calls.rank for calls in ranks], np.int64)
    is_profiled = np.isin(destination, rank_numbers) & np.isin(source, rank_numbers)
    has_no_peer = np.where(message, ~is_profiled, expected < 2)
    call_id = np.where(is_complete[by_call.ids], by_call.ids, np.where(has_no_peer, -2, -1))
    # A part is identified by its call and its position in the call.
    parts_per_id = np.where(is_complete, part_counts[by_call.first], 0)
    part_offset = (np.cumsum(parts_per_id) - parts_per_id)[by_call.ids] - first_part
    part_id = np.where(call_id[part_call] >= 0, part_offset[part_call] + np.arange(len(part_call)), call_id[part_call])
    return MatchedCalls(
        rank_count=len(ranks),
        names=labels.names,
        groups=labels.groups,
        rank=rank,
        name=labels.name,
        group=labels.group,
        first_part=first_part,
        source=source,
        destination=destination,
        part_call=part_call,
        part_end=end,
        is_transfer=np.concatenate([np.zeros(0, bool), *(calls.is_transfer for calls in ranks)]),
        call_id=call_id,
        call_id_count=len(is_complete),
        part_id=part_id,
        part_id_count=int(parts_per_id.sum()),
        is_unambiguous=is_unambiguous[by_kind.ids],
    )


def _number_labels(ranks: Sequence[Collectives]) -> _Labels:
    """Return the names and groups of the calls of all ranks, numbered in order of appearance."""
    name_index = {text: i for i, text in enumerate(dict.fromkeys(text for calls in ranks for text in calls.names))}
    groups = dict[ProcessGroup, int]()
    name_indices = [[name_index[text] for text in calls.names] for calls in ranks]
    group_indices = [
        [groups.setdefault(_group_identity(process_group), len(groups)) for process_group in calls.groups]
        for calls in ranks
    ]
    # If the members of a group are unknown, all ranks that have the group are expected to take part.
    rank_counts = Counter(i for rank_indices in group_indices for i in rank_indices)
    expected = [
        len(ranks) if process_group == _UNKNOWN_GROUP else rank_counts[i] for process_group, i in groups.items()
    ]
    return _Labels(
        names=tuple(name_index),
        groups=tuple(groups),
        name=_map_ids(name_indices, [calls.name for calls in ranks]),
        group=_map_ids(group_indices, [calls.group for calls in ranks]),
        expected_ranks=np.array(expected, np.int64),
    )


def call_transfers(ranks: Sequence[Collectives]) -> CallTransfers:
    """Return the matched calls of every rank with their transfer times.

    For each part of a call (host operator, kernels), the transfer time is the shortest duration
    over the ranks: the fastest rank did not wait. A call that is missing on a rank, or has
    different parts there, has no transfer time; neither has a call of a single rank. Source:
    torch-tb-profiler's wait graph.
    """
    calls = match_calls(ranks)
    is_matched, is_transfer, start = calls.call_id >= 0, calls.is_transfer, _column(ranks, "part_start")
    latency_ns = transfer_latency = span_lengths_by_group(calls.part_call, start, calls.part_end, len(is_matched))
    if not is_transfer.all():
        transfer_latency = span_lengths_by_group(
            calls.part_call[is_transfer], start[is_transfer], calls.part_end[is_transfer], len(is_matched)
        )
    is_timed = np.bincount(calls.part_call, is_transfer, len(is_matched)) > 0
    part_transfer_ns = _shortest_by_id(calls.part_id, calls.part_end - start, calls.part_id_count)
    # Parts of a call may overlap, so the transfer is limited to the latency of the fastest rank.
    total_transfer = np.bincount(calls.part_call, part_transfer_ns, len(is_matched)).astype(np.int64)
    transfer_ns = np.where(
        is_matched, np.minimum(total_transfer, _shortest_by_id(calls.call_id, latency_ns, calls.call_id_count)), -1
    )
    data_transfer_ns = np.where(
        is_matched, _shortest_by_id(calls.call_id, transfer_latency, calls.call_id_count), transfer_latency
    )
    untimed_ids = calls.call_id[is_matched & ~is_timed]  # one rank without times is enough
    is_timed &= ~(is_matched & np.isin(calls.call_id, untimed_ids))
    size, group_size, event = (_column(ranks, field) for field in ("bytes", "group_size", "event"))
    return CallTransfers(
        calls=calls,
        bytes=size,
        group_size=group_size,
        event=event,
        latency_ns=np.where(is_timed, latency_ns, -1),
        transfer_ns=np.where(is_timed, transfer_ns, -1),
        part_transfer_ns=np.where(is_timed[calls.part_call], part_transfer_ns, -1),
        data_transfer_ns=np.where(is_timed, data_transfer_ns, -1),
    )


_UNKNOWN_GROUP = ProcessGroup("")


def _group_identity(process_group: ProcessGroup) -> ProcessGroup:
    """Return a group without what may differ between its ranks."""
    return ProcessGroup(process_group.name, runs=process_group.runs)


def _column(ranks: Sequence[Collectives], field: str) -> Ints:
    """Return a column of all ranks, one after the other."""
    return _concatenate(getattr(calls, field) for calls in ranks)


def _concatenate(columns: Iterable[Ints]) -> Ints:
    """Return columns one after the other, as int64."""
    return np.concatenate([np.zeros(0, np.int64), *columns])


def _map_ids(run_ids: Sequence[Sequence[int]], ids: Sequence[Ids]) -> Ids:
    """Return the ids of each rank as ids of the run.

    Args:
        run_ids: For each rank, the run's id per id of the rank.
        ids: For each rank, a column of its ids.
    """
    flat_ids = np.array([i for rank_ids in run_ids for i in rank_ids], np.int32)
    offsets = accumulate(map(len, run_ids), initial=0)
    return flat_ids[
        _concatenate(rank_ids.astype(np.int64) + offset for rank_ids, offset in zip(ids, offsets, strict=False))
    ]


def _occurrence_index(values: Ints) -> Ints:
    """Return the index of each value among the equal values before it."""
    order = np.argsort(values, kind="stable")
    ordered, position = values[order], np.arange(len(values))
    first = np.maximum.accumulate(np.where(np.append(True, ordered[1:] != ordered[:-1])[: len(order)], position, 0))
    index = np.empty(len(values), np.int64)
    index[order] = position - first
    return index


def _shortest_by_id(ids: Ints, times: Ints, count: int) -> Ints:
    """Return the shortest time of those with the same id, -1 for those without an id."""
    shortest = np.full(count + 1, np.iinfo(np.int64).max)
    has_id = ids >= 0
    np.minimum.at(shortest, ids[has_id], times[has_id])
    shortest[-1] = -1
    return shortest[np.maximum(ids, -1)]
