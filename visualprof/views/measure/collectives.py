"""Collectives of several ranks: which call is which, how long each took, and who waited for whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.process_group import ProcessGroup, listed, ranks_of, strided
from visualprof.views.measure.groups import distinct, group
from visualprof.views.measure.intervals import lengths
from visualprof.views.measure.launch import launches
from visualprof.views.measure.shared import once

SIZES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "c10::half": 2, "bfloat16": 2,
    "c10::bfloat16": 2, "int": 4, "int32": 4, "long": 8, "long int": 8, "int64": 8, "short": 2, "int16": 2,
    "byte": 1, "char": 1, "int8": 1, "uint8": 1, "unsigned char": 1, "signed char": 1, "bool": 1,
}  # fmt: skip
MAX_ELEMENTS = 1 << 40  # of a message
# Parts of a call in their order, and what else is told about it inside the host operator.
HOST, KERNEL, INSIDE = 0, 1, 2


class Collectives(msgspec.Struct, frozen=True):
    """The collectives of one rank in order of time, n calls with m parts: a host operator, its kernels.

    rank: -1 unknown.
    name: (n,) ids of names. group: (n,) ids of groups, whose name is "" where it is unknown. bytes: (n,) of the larger
    of what goes in and what comes out, group_size: (n,), -1 unknown. seq: (n,) the number that the group gave the call,
    -1 unknown. source, destination: (n,) global ranks of a message, -1 of what is none, or where either is unknown.
    event: (n,) row of the last part. call: (m,) ascending, the call of each part; row: of its event.
    start, end: (m,) ns.
    exchanges: (m,) is data exchanged in it? In the kernels, or in the host operator where there are none.
    """

    rank: int
    names: tuple[str, ...]
    name: Ids
    groups: tuple[ProcessGroup, ...]
    group: Ids
    bytes: Ints
    group_size: Ints
    seq: Ints
    source: Ints
    destination: Ints
    event: Ints
    call: Ints
    row: Ints
    start: Ints
    end: Ints
    exchanges: Mask

    def __len__(self) -> int:
        return len(self.name)

    def latency(self, parts: Mask | None = None) -> Ints:
        """Nanoseconds (n,) in which any part of the call ran, or any of the given ones."""
        chosen = np.ones(len(self.call), bool) if parts is None else parts
        call, start, end = self.call[chosen], self.start[chosen], self.end[chosen]
        return lengths(call, start, end, len(self))


class Matched(msgspec.Struct, frozen=True):
    """The collectives of a rank with what its ranks share; -1 for a call that some rank lacks.

    latency: (n,) ns of this rank. transfer: (n,) ns. part_transfer: (m,) ns, the shortest of the part over the ranks.
    exchange: (n,) ns, the shortest time over the ranks in which data was exchanged; that of this rank alone where the
    call is unmatched. part: (m,) a number that is the same on all ranks of the group, -1; -2 where no other rank of the
    group is there.
    """

    calls: Collectives
    latency: Ints
    transfer: Ints
    part_transfer: Ints
    exchange: Ints
    part: Ints


@once
def collectives(trace: Trace) -> Collectives:
    """The collectives of a trace.

    Outermost communication operators with the kernels that they launched, and communication kernels that no operator
    owns. Requests to a background thread count only where that thread records nothing itself.
    """
    events = trace.events
    rows, head, role = _members(trace)
    heads = distinct(head)
    asks = np.array([text.startswith("c10d::") for text in trace.strings], bool)
    asks = asks[events.name[heads]] & ~np.isin(heads, head[role == KERNEL])
    heads = heads if asks.all() else heads[~asks]
    heads = heads[np.argsort(events.ts[heads], kind="stable")]
    place = np.full(len(events), -1, np.int64)
    place[heads] = np.arange(len(heads))
    order = np.lexsort((events.ts[rows], role, place[head]))
    order = order[place[head[order]] >= 0]
    rows, call, role = rows[order], place[head[order]], role[order]
    nbytes = np.full(len(heads), -1, np.int64)
    np.maximum.at(nbytes, call, _bytes(trace, rows))
    with_kernels = np.isin(np.arange(len(heads)), call[role == KERNEL])
    sizes = trace.arg("group_size", rows, -1)
    part = role != INSIDE
    told = _first(call, trace.arg("group", rows, 0), len(heads), 0)
    of_group = group(told)
    groups = _groups(trace, told[of_group.first], rows, of_group.of[call])
    names, name = _names(trace, heads, _first(call, trace.arg("collective", rows, 0), len(heads), 0))
    ends = _messages(trace, groups, of_group.of, np.array([_direction(n) for n in names], np.int64)[name], rows, call)
    return Collectives(
        trace.meta.rank,
        names,
        name,
        groups,
        of_group.of.astype(np.int32),
        nbytes,
        _first(call, sizes, len(heads), -1),
        _first(call, trace.arg("group_seq", rows, -1) + 1, len(heads), 0) - 1,
        *ends,
        rows[part][np.searchsorted(call[part], np.arange(len(heads)), side="right") - 1].astype(np.int64),
        call[part],
        rows[part].astype(np.int64),
        events.ts[rows[part]],
        events.end[rows[part]],
        (role[part] == KERNEL) | ~with_kernels[call[part]],
    )


def match(ranks: Sequence[Collectives]) -> list[Matched]:
    """The calls of every rank with those on the other ranks of the process group.

    A message is the i-th from its source to its destination. Any other call has the number that its group gave it, and
    is the i-th of that and of its name; where numbers or members are unknown, the i-th of its name and group.
    Transfer is, for each part of the call (host operator, kernels), the shortest over the ranks: the fastest rank
    waited for nobody. A call that some rank lacks, or of which it has other parts, has no transfer time, and neither
    has one of one rank alone. Source: torch-tb-profiler's wait graph.
    """
    if not ranks:
        return []
    keys, parts, every, count = _numbered(ranks)
    took, exchanged = _latencies(ranks, exchanges=False), _latencies(ranks, exchanges=True)
    fastest = _shortest(parts, [calls.end - calls.start for calls in ranks], count)
    exchange = _shortest(keys, exchanged, every)
    # The parts of a call may run side by side: it cannot transfer for longer than the fastest rank took.
    limit = _shortest(keys, took, every)
    matched: list[Matched] = []
    for calls, key, part, whole, own in zip(ranks, keys, parts, took, exchanged, strict=True):
        known = key >= 0
        part_transfer = np.where(part >= 0, fastest[np.maximum(part, -1)], -1)
        total = np.bincount(calls.call, part_transfer, len(calls)).astype(np.int64)
        transfer = np.where(known, np.minimum(total, limit[key]), -1)
        matched.append(Matched(calls, whole, transfer, part_transfer, np.where(known, exchange[key], own), part))
    return matched


def shared_parts(ranks: Sequence[Collectives]) -> list[Ints]:
    """`Matched.part` of every rank."""
    return _numbered(ranks)[1]


def _numbered(ranks: Sequence[Collectives]) -> tuple[list[Ints], list[Ints], int, int]:
    """A number of each call and one of each of its parts that are the same on all ranks, and how many there are."""
    shared = _shared(ranks)
    keys = [np.maximum(key, -1) for key in shared]
    every = int(max((key.max(initial=-1) for key in keys), default=-1)) + 1
    count = np.zeros(every + 1, np.int64)  # of parts, the same on all ranks; the last one is nobody's
    for key, calls in zip(keys, ranks, strict=True):
        count[key] = np.bincount(calls.call, minlength=len(calls))
    count[-1] = 0
    # A part is known by its call and its place in that.
    before = np.cumsum(count) - count
    parts = [
        np.where(key[calls.call] >= 0, before[key][calls.call] + _nth(calls.call), one[calls.call])
        for key, one, calls in zip(keys, shared, ranks, strict=True)
    ]
    return keys, parts, every, int(count.sum())


def _latencies(ranks: Sequence[Collectives], *, exchanges: bool) -> list[Ints]:
    """What `latency` gives of each rank, worked out at once; of the parts in which data is exchanged, or all."""
    counts = [len(calls) for calls in ranks]
    ends = np.cumsum(counts)
    call = np.concatenate([calls.call + end - count for calls, end, count in zip(ranks, ends, counts, strict=True)])
    start, end = (np.concatenate([getattr(calls, name) for calls in ranks]) for name in ("start", "end"))
    if exchanges:
        chosen = np.concatenate([calls.exchanges for calls in ranks])
        call, start, end = call[chosen], start[chosen], end[chosen]
    return np.split(lengths(call, start, end, int(ends[-1])), ends[:-1])


def _shared(ranks: Sequence[Collectives]) -> list[Ints]:
    """A number of each call that is the same on its group's ranks, -1 where one lacks it, -2 where it is alone."""
    known: dict[tuple[str, str | ProcessGroup], int] = {}
    kinds: list[Ints] = []
    numbered: list[Ints] = []
    for calls in ranks:
        pairs = group(calls.name, calls.group)
        ids: list[tuple[int, int]] = np.stack((calls.name, calls.group), axis=1)[pairs.first].tolist()
        keys = [_key(one) for one in calls.groups]
        numbers = [known.setdefault((calls.names[i], keys[j]), len(known)) for i, j in ids]
        kinds.append(np.array(numbers, np.int64)[pairs.of])
        exact = np.array([bool(one.runs) for one in calls.groups], bool)[calls.group]
        numbered.append(np.where(exact, calls.seq, -1))
    members = Counter(key for calls in ranks for key in map(_key, calls.groups))
    need = np.array([len(ranks) if group == "" else members[group] for _, group in known], np.int64)
    kind, seq, source, destination, parts = map(
        np.concatenate,
        (
            kinds,
            numbered,
            [calls.source for calls in ranks],
            [calls.destination for calls in ranks],
            [np.bincount(calls.call, minlength=len(calls)) for calls in ranks],
        ),
    )
    message = source >= 0
    own = np.array([calls.rank for calls in ranks], np.int64)
    kind, seq, wanted = np.where(message, -1, kind), np.where(message, -1, seq), np.where(message, 2, need[kind])
    rank = np.repeat(np.arange(len(ranks)), [len(calls) for calls in ranks])
    same = group(kind, seq, source, destination).of
    keys = group(same, _nth(same * len(ranks) + rank))
    good = (keys.count == wanted[keys.first]) & (keys.count > 1) & (keys.min(parts) == keys.max(parts))
    there = np.isin(destination, own) & np.isin(source, own)
    alone = np.where(message, ~there, wanted < 2)
    return np.split(
        np.where(good[keys.of], keys.of, np.where(alone, -2, -1)), np.cumsum([len(calls) for calls in ranks])[:-1]
    )


def _key(one: ProcessGroup) -> str | ProcessGroup:
    """What is the same of a group on all its ranks: its name, and its members where they are known."""
    return ProcessGroup(one.name, runs=one.runs) if one.runs else one.name


def _nth(values: Ints) -> Ints:
    """The place of each value among those equal to it."""
    order = np.argsort(values, kind="stable")
    ordered, place = values[order], np.arange(len(values))
    first = np.maximum.accumulate(np.where(np.append(True, ordered[1:] != ordered[:-1])[: len(order)], place, 0))
    nth = np.empty(len(values), np.int64)
    nth[order] = place - first
    return nth


def _shortest(places: list[Ints], times: list[Ints], count: int) -> Ints:
    """The shortest time of each place over the ranks; the last one of the result is nobody's."""
    out = np.full(count + 1, np.iinfo(np.int64).max)
    for place, time in zip(places, times, strict=True):
        known = place >= 0
        np.minimum.at(out, place[known], time[known])
    return out


def _members(trace: Trace) -> tuple[Rows, Rows, Ints]:
    """Rows of communication, the row that stands for the call of each, and what it is of that."""
    events = trace.events
    comm = events.category == Category.COMM
    host = comm & trace.track_mask(TrackKind.THREAD)
    ranges = np.flatnonzero(host & (events.dur >= 0))
    outer = _outermost(trace, ranges, host)
    joined = launches(trace)
    kernel = comm[joined.work]
    work = joined.work[kernel]
    around = _outermost(trace, joined.op[kernel], host)
    head = np.concatenate((outer, np.where(around >= 0, around, work)))
    role = np.concatenate((np.where(outer == ranges, HOST, INSIDE), np.full(len(work), KERNEL)))
    return np.concatenate((ranges, work)), head, role


def _outermost(trace: Trace, rows: Rows, host: Mask) -> Rows:
    """The outermost communication operator at or above each row, -1 for none."""
    at = nearest_ancestor(trace.events.parent, host, rows)
    while True:
        above = nearest_ancestor(trace.events.parent, host, np.where(at >= 0, trace.events.parent[at], -1))
        if (above < 0).all():
            return at
        at = np.where(above >= 0, above, at)


def _first(call: Ints, values: Ints, count: int, missing: int) -> Ints:
    """The first positive value of each call."""
    out = np.full(count, missing, np.int64)
    known = np.flatnonzero(values > 0)[::-1]  # of several assignments the last one stays
    out[call[known]] = values[known]
    return out


def _groups(trace: Trace, told: Ints, rows: Rows, of: Ints) -> tuple[ProcessGroup, ...]:
    """The process groups of calls as the file lists them, else as their events tell.

    Args: told: (g,) string ids of their names. rows: of communication; of: the group of each.
    """
    listing = {one.name: one for one in trace.meta.groups}
    names = ("group_description", "group_ranks", "rank_start", "rank_stride", "group_size")
    facts = [_first(of, trace.arg(name, rows, -1) + 1, len(told), 0) for name in names]
    each: list[list[int]] = np.stack((told, *facts), axis=1).tolist()
    groups: list[ProcessGroup] = []
    for i, description, ranks, start, stride, size in each:
        name, text = trace.strings[i], trace.strings[description - 1] if description > 0 else ""
        runs = strided(start - 1, stride - 1, size - 1) or (listed(trace.strings[ranks - 1]) if ranks > 0 else ())
        own = ProcessGroup(name, text if text != "undefined" else "", runs)  # torch's word where a program has none
        given = listing.get(name, own)
        groups.append(ProcessGroup(name, given.description or own.description, given.runs or runs))
    return tuple(groups)


def _direction(name: str) -> int:
    """1 of what sends a message to one rank, -1 of what receives one, 0 of other collectives."""
    word = re.sub(r"^(nccl|c10d|gloo)[:_]+|_+$", "", name.lower())
    return {"send": 1, "isend": 1, "recv": -1, "irecv": -1}.get(word, 0)


def _messages(
    trace: Trace, groups: tuple[ProcessGroup, ...], of: Ints, direction: Ints, rows: Rows, call: Ints
) -> tuple[Ints, Ints]:
    """Global ranks (n,) of the source and the destination of each call that is a message, else -1.

    torch tells the other end's global rank as `Dst Rank` or `Src Rank`, earlier only its rank in the group, `Rank`.
    """
    count, own = len(direction), trace.meta.rank
    peer, source, destination = (
        _first(call, trace.arg(name, rows, -1) + 1, count, 0) - 1 for name in ("peer", "source", "destination")
    )
    members = [ranks_of(one.runs) for one in groups]
    size = np.array([len(ranks) for ranks in members], np.int64)
    at = np.where((peer >= 0) & (peer < size[of]), (np.cumsum(size) - size)[of] + peer, -1)
    told = np.where(direction > 0, destination, source)
    other = np.where(told >= 0, told, np.append(np.concatenate([np.zeros(0, np.int64), *members]), -1)[at])
    known = (direction != 0) & (other >= 0) & (other < 1 << 31) & (own >= 0)
    other, mine = np.where(known, other, -1), np.where(known, own, -1)
    return np.where(direction > 0, mine, other), np.where(direction > 0, other, mine)


def _names(trace: Trace, heads: Rows, told: Ints) -> tuple[tuple[str, ...], Ids]:
    """Names of the calls, and which one each has: what the file calls the collective, else that of its first part."""
    strings = trace.strings
    keys, place = np.unique(np.where(told > 0, told, -trace.events.name[heads].astype(np.int64)), return_inverse=True)
    ids: list[int] = keys.tolist()
    texts = [strings[i] if i > 0 else _short(strings[-i]) for i in ids]
    known = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return tuple(known), np.array([known[text] for text in texts], np.int32)[place]


def _short(name: str) -> str:
    """`nccl:all_reduce` and `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)` -> all_reduce."""
    host = re.match(r"^\w+:(\w+)", name)
    if host:
        return host.group(1)
    kernel = re.search(r"(AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|AllToAll|Reduce|Send|Recv)", name)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kernel.group(1)).lower() if kernel else name


def _bytes(trace: Trace, rows: Rows) -> Ints:
    """Sizes of collectives' messages: elements x type, or the bytes of the first input; -1 unknown."""
    strings = trace.strings
    elements = np.maximum(*(trace.arg(name, rows, -1).astype(np.int64) for name in ("elements_in", "elements_out")))
    dtype, shapes, types = (trace.arg(n, rows, 0).astype(np.int64) for n in ("dtype", "input_shapes", "input_types"))
    width = _each(dtype, lambda i: SIZES.get(strings[i].lower(), 0))
    pairs = shapes * len(strings) + types
    sized = _each(pairs, lambda i: _first_tensor_bytes(strings[i // len(strings)], strings[i % len(strings)]))
    told = np.where((width > 0) & (elements < MAX_ELEMENTS), elements * width, -1)
    return np.where((elements >= 0) & (dtype > 0), told, sized)


def _each(keys: Ints, value: Callable[[int], int]) -> Ints:
    """A function of each key, called once for equal ones."""
    known, place = np.unique(keys, return_inverse=True)
    return np.array([value(key) for key in known.tolist()], np.int64)[place]


def _first_tensor_bytes(shapes: str, types: str) -> int:
    first = re.match(r"\[\s*\[([\d,\s]*)\]", shapes)
    kind = re.match(r'\[\s*"([^"]*)"', types)
    width = SIZES.get(kind.group(1).lower(), 0) if kind else 0
    if first is None or not width or not first.group(1).strip():
        return -1
    elements = prod(int(d) for d in first.group(1).split(","))
    return elements * width if elements < MAX_ELEMENTS else -1
