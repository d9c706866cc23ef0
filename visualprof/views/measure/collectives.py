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

    name: (n,) ids of names. group: (n,) ids of groups, the process groups' names, "" unknown. bytes, group_size: (n,)
    -1 unknown. event: (n,) row of the last part. call: (m,) ascending, the call of each part; row: of its event.
    start, end: (m,) ns.
    exchanges: (m,) is data exchanged in it? In the kernels, or in the host operator where there are none.
    """

    names: tuple[str, ...]
    name: Ids
    groups: tuple[str, ...]
    group: Ids
    bytes: Ints
    group_size: Ints
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

    transfer: (n,) ns. part_transfer: (m,) ns, the shortest of the part over the ranks. exchange: (n,) ns, the shortest
    time over the ranks in which data was exchanged; that of this rank alone where the call is unmatched. part: (m,) a
    number that is the same on all ranks of the group, -1.
    """

    calls: Collectives
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
    groups = group(told)
    ids: list[int] = told[groups.first].tolist()
    names, name = _names(trace, heads, _first(call, trace.arg("collective", rows, 0), len(heads), 0))
    return Collectives(
        names,
        name,
        tuple(trace.strings[i] for i in ids),
        groups.of.astype(np.int32),
        nbytes,
        _first(call, sizes, len(heads), -1),
        rows[part][np.searchsorted(call[part], np.arange(len(heads)), side="right") - 1].astype(np.int64),
        call[part],
        rows[part].astype(np.int64),
        events.ts[rows[part]],
        events.end[rows[part]],
        (role[part] == KERNEL) | ~with_kernels[call[part]],
    )


def match(ranks: Sequence[Collectives]) -> list[Matched]:
    """The calls of every rank, the i-th of a name and process group with that on the other ranks of the group.

    Transfer is, for each part of the call (host operator, kernels), the shortest over the ranks: the fastest rank
    waited for nobody. A call that some rank lacks, or of which it has other parts, has no transfer time, and neither
    has one of one rank alone. Source: torch-tb-profiler's wait graph.
    """
    if not ranks:
        return []
    keys = _shared(ranks)
    every = int(max((key.max(initial=-1) for key in keys), default=-1)) + 1
    count = np.zeros(every + 1, np.int64)  # of parts, the same on all ranks; the last one is nobody's
    for key, calls in zip(keys, ranks, strict=True):
        count[key] = np.bincount(calls.call, minlength=len(calls))
    count[-1] = 0
    # A part is known by its call and its place in that.
    before = np.cumsum(count) - count
    parts = [
        np.where(key[calls.call] >= 0, before[key[calls.call]] + _nth(calls.call), -1)
        for key, calls in zip(keys, ranks, strict=True)
    ]
    took = [calls.latency() for calls in ranks]
    exchanged = [calls.latency(calls.exchanges) for calls in ranks]
    fastest = _shortest(parts, [calls.end - calls.start for calls in ranks], int(count.sum()))
    exchange = _shortest(keys, exchanged, every)
    # The parts of a call may run side by side: it cannot transfer for longer than the fastest rank took.
    limit = _shortest(keys, took, every)
    matched: list[Matched] = []
    for calls, key, part, own in zip(ranks, keys, parts, exchanged, strict=True):
        known = key >= 0
        part_transfer = np.where(part >= 0, fastest[part], -1)
        total = np.bincount(calls.call, part_transfer, len(calls)).astype(np.int64)
        transfer = np.where(known, np.minimum(total, limit[key]), -1)
        matched.append(Matched(calls, transfer, part_transfer, np.where(known, exchange[key], own), part))
    return matched


def _shared(ranks: Sequence[Collectives]) -> list[Ints]:
    """A number of each call that is the same on all ranks of its group, -1 where one of them lacks it."""
    known: dict[tuple[str, str], int] = {}
    kinds: list[Ints] = []
    for calls in ranks:
        pairs = group(calls.name, calls.group)
        ids: list[tuple[int, int]] = np.stack((calls.name, calls.group), axis=1)[pairs.first].tolist()
        numbers = [known.setdefault((calls.names[i], calls.groups[j]), len(known)) for i, j in ids]
        kinds.append(np.array(numbers, np.int64)[pairs.of])
    members = {**Counter(name for calls in ranks for name in calls.groups), "": len(ranks)}
    need = np.array([members[name] for _, name in known], np.int64)
    most = max(len(calls) for calls in ranks) + 1
    parts = [np.bincount(calls.call, minlength=len(calls)) for calls in ranks]
    keys, place = np.unique(np.concatenate([kind * most + _nth(kind) for kind in kinds]), return_inverse=True)
    fewest, largest = np.full(len(keys), np.iinfo(np.int64).max), np.zeros(len(keys), np.int64)
    np.minimum.at(fewest, place, np.concatenate(parts))
    np.maximum.at(largest, place, np.concatenate(parts))
    there = np.bincount(place, minlength=len(keys))
    good = (there == need[keys // most]) & (there > 1) & (fewest == largest)
    return np.split(np.where(good[place], place, -1), np.cumsum([len(calls) for calls in ranks])[:-1])


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
    elements = trace.arg("elements_in", rows, -1).astype(np.int64)
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
