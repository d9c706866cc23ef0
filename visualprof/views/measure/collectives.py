"""The collectives and messages of a rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.process_group import ProcessGroup, decode_ranks, parse_rank_list, strided_run
from visualprof.views.measure.groups import distinct, group
from visualprof.views.measure.intervals import span_lengths_by_group
from visualprof.views.measure.launch import launches
from visualprof.views.measure.trace_cache import cached_on_trace

TYPE_BYTES = {
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
    sequence: Ints
    source: Ints
    destination: Ints
    event: Ints
    part_call: Ints
    part_row: Ints
    part_start: Ints
    part_end: Ints
    is_transfer: Mask

    def __len__(self) -> int:
        return len(self.name)

    @property
    def latency_ns(self) -> Ints:
        """Nanoseconds (n,) in which any part of the call ran."""
        return span_lengths_by_group(self.part_call, self.part_start, self.part_end, len(self))


@cached_on_trace
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
    groups = _groups(trace, told[of_group.first], rows, of_group.ids[call])
    names, name = _names(trace, heads, _first(call, trace.arg("collective", rows, 0), len(heads), 0))
    ends = _messages(trace, groups, of_group.ids, np.array([_direction(n) for n in names], np.int64)[name], rows, call)
    return Collectives(
        trace.meta.rank,
        names,
        name,
        groups,
        of_group.ids.astype(np.int32),
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
        runs = strided_run(start - 1, stride - 1, size - 1) or (
            parse_rank_list(trace.strings[ranks - 1]) if ranks > 0 else ()
        )
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
    members = [decode_ranks(one.runs) for one in groups]
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
    width = _each(dtype, lambda i: TYPE_BYTES.get(strings[i].lower(), 0))
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
    width = TYPE_BYTES.get(kind.group(1).lower(), 0) if kind else 0
    if first is None or not width or not first.group(1).strip():
        return -1
    elements = prod(int(d) for d in first.group(1).split(","))
    return elements * width if elements < MAX_ELEMENTS else -1
