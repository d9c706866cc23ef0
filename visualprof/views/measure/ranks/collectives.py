"""The collectives and messages of a rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

import msgspec
import numpy as np

from visualprof.reader.communication import returns_before_transfer
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.process_group import ProcessGroup, decode_ranks, parse_rank_list, strided_run
from visualprof.views.measure.columns.groups import distinct, group
from visualprof.views.measure.columns.intervals import span_lengths_by_group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.device_work import only_launches_communication
from visualprof.views.measure.launches.launch import is_device_work, launches
from visualprof.views.measure.names.tensor_core import match_names

TYPE_BYTES = {
    "float": 4,
    "float32": 4,
    "double": 8,
    "float64": 8,
    "half": 2,
    "float16": 2,
    "c10::half": 2,
    "bfloat16": 2,
    "c10::bfloat16": 2,
    "int": 4,
    "int32": 4,
    "long": 8,
    "long int": 8,
    "int64": 8,
    "short": 2,
    "int16": 2,
    "byte": 1,
    "char": 1,
    "int8": 1,
    "uint8": 1,
    "unsigned char": 1,
    "signed char": 1,
    "bool": 1,
}
COLLECTIVE_WORD = pattern(
    r"(all)[-_]?(reduce|gather)|(reduce)[-_]?(scatter)|(all)[-_]?(to)[-_]?(all)|(collective)[-_](permute|broadcast)",
    re.IGNORECASE,
)
MAX_ELEMENTS = 1 << 40  # per message
# Roles of a call's events, in order: its parts, and events inside the host operator that carry more arguments.
HOST, KERNEL, NESTED = 0, 1, 2


class Collectives(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of one rank in the order of time: n calls with m parts.

    The parts of a call are a host operator and its kernels.

    Attributes:
        rank: Global rank, -1 unknown.
        names: Distinct names of the calls.
        name: (n,) index into `names`.
        groups: Distinct process groups; the name is "" where it is unknown.
        group: (n,) index into `groups`.
        bytes: (n,) size of the input or output, whichever is larger; -1 unknown.
        group_size: (n,) number of ranks, -1 unknown.
        sequence: (n,) number that the group assigned to the call, -1 unknown.
        source: (n,) global rank that sends a message; -1 if the call is not a message or one end is
            unknown.
        destination: (n,) global rank that receives the message, like `source`.
        event: (n,) row of the last part.
        part_call: (m,) call of each part, ascending.
        part_row: (m,) event of each part.
        part_start: (m,) ns.
        part_end: (m,) ns.
        is_transfer: (m,) whether data is transferred in the part: in kernels, or in the host
            operator if it has no kernels and does not return before the transfer.
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
        """Return the time (n,) in ns during which any part of the call ran."""
        return span_lengths_by_group(self.part_call, self.part_start, self.part_end, len(self))


@cached_on_trace
def collectives(trace: Trace) -> Collectives:
    """Return the collectives of a trace.

    These are outermost communication operators with the kernels that they launched, and
    communication kernels that no operator owns. Requests to a background thread count only if that
    thread records nothing itself.
    """
    events = trace.events
    rows, head, role = _call_events(trace)
    heads = distinct(head)
    is_request = np.array([text.startswith("c10d::") for text in trace.strings], bool)
    is_request = is_request[events.name[heads]] & ~np.isin(heads, head[role == KERNEL])
    heads = heads if is_request.all() else heads[~is_request]
    heads = heads[np.argsort(events.ts[heads], kind="stable")]
    call_of_head = np.full(len(events), -1, np.int64)
    call_of_head[heads] = np.arange(len(heads))
    order = np.lexsort((events.ts[rows], role, call_of_head[head]))
    order = order[call_of_head[head[order]] >= 0]
    rows, call, role = rows[order], call_of_head[head[order]], role[order]
    nbytes = np.full(len(heads), -1, np.int64)
    np.maximum.at(nbytes, call, _message_bytes(trace, rows))
    has_kernels = np.isin(np.arange(len(heads)), call[role == KERNEL])
    is_timed = has_kernels | ~_returns_early(trace, heads)
    sizes = trace.arg("group_size", rows, -1)
    is_part = role != NESTED
    group_names = _first_positive(call, trace.arg("group", rows, 0), len(heads), 0)
    by_group = group(group_names)
    groups = _groups(trace, group_names[by_group.first], rows, by_group.ids[call])
    names, name = _names(trace, heads, _first_positive(call, trace.arg("collective", rows, 0), len(heads), 0))
    direction = np.array([_direction(text) for text in names], np.int64)[name]
    source, destination = _message_ranks(trace, groups, by_group.ids, direction, rows, call)
    return Collectives(
        rank=trace.meta.rank,
        names=names,
        name=name,
        groups=groups,
        group=by_group.ids.astype(np.int32),
        bytes=nbytes,
        group_size=_first_positive(call, sizes, len(heads), -1),
        sequence=_first_positive(call, trace.arg("group_seq", rows, -1) + 1, len(heads), 0) - 1,
        source=source,
        destination=destination,
        event=rows[is_part][np.searchsorted(call[is_part], np.arange(len(heads)), side="right") - 1].astype(np.int64),
        part_call=call[is_part],
        part_row=rows[is_part].astype(np.int64),
        part_start=events.ts[rows[is_part]],
        part_end=events.end[rows[is_part]],
        is_transfer=(role[is_part] == KERNEL) | (~has_kernels & is_timed)[call[is_part]],
    )


def _returns_early(trace: Trace, heads: Rows) -> Mask:
    """Return (n,) which calls return before the transfer, because a device executes it.

    These are calls of a device's library, and calls of an unknown library in a trace with kernels.
    """
    has_devices = trace.meta.device_work == "kernel" and bool(is_device_work(trace).any())
    return match_names(trace, trace.events.name[heads], lambda text: returns_before_transfer(text, has_devices))


def _call_events(trace: Trace) -> tuple[Rows, Rows, Ints]:
    """Return the communication events, the head event of the call of each, and the role of each in the call.

    An operator that only launches recorded kernels is the head of its call, but not a part of it.
    """
    events = trace.events
    is_comm_event = events.category == Category.COMM
    is_host = is_comm_event & trace.track_mask(TrackKind.THREAD)
    ranges = np.flatnonzero(is_host & (events.dur >= 0))
    outermost = _outermost(trace, ranges, is_host)
    launched = launches(trace)
    is_comm = is_comm_event[launched.work]
    work = launched.work[is_comm]
    enclosing = _outermost(trace, launched.op[is_comm], is_host)
    head = np.concatenate((outermost, np.where(enclosing >= 0, enclosing, work)))
    is_part = (outermost == ranges) & ~(only_launches_communication(trace)[ranges] & np.isin(ranges, enclosing))
    role = np.concatenate((np.where(is_part, HOST, NESTED), np.full(len(work), KERNEL)))
    return np.concatenate((ranges, work)), head, role


def _outermost(trace: Trace, rows: Rows, is_host: Mask) -> Rows:
    """Return the outermost communication operator at or above each row, -1 for none."""
    current = nearest_ancestor(trace.events.parent, is_host, rows)
    while True:
        outer = nearest_ancestor(trace.events.parent, is_host, np.where(current >= 0, trace.events.parent[current], -1))
        if (outer < 0).all():
            return current
        current = np.where(outer >= 0, outer, current)


def _first_positive(call: Ints, values: Ints, count: int, missing: int) -> Ints:
    """Return the first positive value of each call; `missing` for calls without one."""
    first = np.full(count, missing, np.int64)
    positive = np.flatnonzero(values > 0)[::-1]  # reversed, because the last of several assignments wins
    first[call[positive]] = values[positive]
    return first


def _groups(trace: Trace, name_ids: Ints, rows: Rows, group_ids: Ints) -> tuple[ProcessGroup, ...]:
    """Return the process groups of the calls as the file lists them, otherwise as their events describe them.

    Args:
        trace: The trace.
        name_ids: (g,) string ids of the groups' names.
        rows: (k,) communication events.
        group_ids: (k,) group of each event.
    """
    listing = {process_group.name: process_group for process_group in trace.meta.groups}
    names = ("group_description", "group_ranks", "rank_start", "rank_stride", "group_size")
    facts = [_first_positive(group_ids, trace.arg(name, rows, -1) + 1, len(name_ids), 0) for name in names]
    rows_of_facts: list[list[int]] = np.stack((name_ids, *facts), axis=1).tolist()
    groups: list[ProcessGroup] = []
    for i, description, ranks, start, stride, size in rows_of_facts:
        name, text = trace.strings[i], trace.strings[description - 1] if description > 0 else ""
        runs = strided_run(start - 1, stride - 1, size - 1) or (
            parse_rank_list(trace.strings[ranks - 1]) if ranks > 0 else ()
        )
        recorded = ProcessGroup(
            name, text if text != "undefined" else "", runs
        )  # torch writes this where a program gives no description
        declared = listing.get(name, recorded)
        groups.append(ProcessGroup(name, declared.description or recorded.description, declared.runs or runs))
    return tuple(groups)


def _direction(name: str) -> int:
    """Return 1 for the name of a send, -1 for that of a receive, and 0 for other collectives."""
    word = re.sub(r"^(nccl|c10d|gloo)[:_]+|_+$", "", name.lower())
    return {"send": 1, "isend": 1, "recv": -1, "irecv": -1}.get(word, 0)


def _message_ranks(
    trace: Trace, groups: tuple[ProcessGroup, ...], group_ids: Ints, direction: Ints, rows: Rows, call: Ints
) -> tuple[Ints, Ints]:
    """Return the global source and destination rank (n,) of each message, -1 for other calls.

    torch records the global rank of the other end as `Dst Rank` or `Src Rank`; older versions
    record only its rank in the group, `Rank`.
    """
    count, own_rank = len(direction), trace.meta.rank
    peer, source, destination = (
        _first_positive(call, trace.arg(name, rows, -1) + 1, count, 0) - 1 for name in ("peer", "source", "destination")
    )
    members = [decode_ranks(process_group.runs) for process_group in groups]
    size = np.array([len(ranks) for ranks in members], np.int64)
    member_index = np.where((peer >= 0) & (peer < size[group_ids]), (np.cumsum(size) - size)[group_ids] + peer, -1)
    recorded = np.where(direction > 0, destination, source)
    other_rank = np.where(
        recorded >= 0, recorded, np.append(np.concatenate([np.zeros(0, np.int64), *members]), -1)[member_index]
    )
    is_known = (direction != 0) & (other_rank >= 0) & (other_rank < 1 << 31) & (own_rank >= 0)
    other_rank, this_rank = np.where(is_known, other_rank, -1), np.where(is_known, own_rank, -1)
    return np.where(direction > 0, this_rank, other_rank), np.where(direction > 0, other_rank, this_rank)


def _names(trace: Trace, heads: Rows, collective_ids: Ints) -> tuple[tuple[str, ...], Ids]:
    """Return the distinct names of the calls, and the index of each call's name.

    The name is the one that the file gives the collective, otherwise that of its first event.
    """
    strings = trace.strings
    keys, key_index = np.unique(
        np.where(collective_ids > 0, collective_ids, -trace.events.name[heads].astype(np.int64)), return_inverse=True
    )
    ids: list[int] = keys.tolist()
    texts = [strings[i] if i > 0 else _short_name(strings[-i]) for i in ids]
    index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return tuple(index), np.array([index[text] for text in texts], np.int32)[key_index]


def _short_name(name: str) -> str:
    """Return a short name of a collective.

    `all_reduce` for `nccl:all_reduce` and for `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`, `internode::combine` for
    a kernel without a word of a collective, `void deep_ep::internode::combine<false>(...)`.
    """
    host = re.match(r"^\w+:(\w+)", name)
    if host:
        return host.group(1)
    collective = COLLECTIVE_WORD.search(name)
    if collective:
        return "_".join(part.lower() for part in collective.groups() if part)
    kernel = re.search(r"(Broadcast|SendRecv|Reduce|Send|Recv)", name)
    if kernel:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kernel.group(1)).lower()
    function = re.match(r"^(?:void )?(?:\w+::)*?((?:\w+::)?\w+)(?=[<(])", name)
    return function.group(1) if function else name


def _message_bytes(trace: Trace, rows: Rows) -> Ints:
    """Return the message size of each event: elements times element size, or the first input's; -1 unknown."""
    strings = trace.strings
    elements = np.maximum(*(trace.arg(name, rows, -1).astype(np.int64) for name in ("elements_in", "elements_out")))
    dtype, shapes, types = (trace.arg(n, rows, 0).astype(np.int64) for n in ("dtype", "input_shapes", "input_types"))
    width = _map_distinct(dtype, lambda i: TYPE_BYTES.get(strings[i].lower(), 0))
    pairs = shapes * len(strings) + types
    from_shapes = _map_distinct(
        pairs, lambda i: _first_tensor_bytes(strings[i // len(strings)], strings[i % len(strings)])
    )
    recorded = np.where((width > 0) & (elements < MAX_ELEMENTS), elements * width, -1)
    return np.where((elements >= 0) & (dtype > 0), recorded, from_shapes)


def _map_distinct(keys: Ints, value: Callable[[int], int]) -> Ints:
    """Return a function of each key, called once per distinct key."""
    distinct_keys, index = np.unique(keys, return_inverse=True)
    return np.array([value(key) for key in distinct_keys.tolist()], np.int64)[index]


def _first_tensor_bytes(shapes: str, types: str) -> int:
    """Return the bytes of the first tensor of recorded shapes and types, -1 unknown."""
    first = re.match(r"\[\s*\[([\d,\s]*)\]", shapes)
    kind = re.match(r'\[\s*"([^"]*)"', types)
    width = TYPE_BYTES.get(kind.group(1).lower(), 0) if kind else 0
    if first is None or not width or not first.group(1).strip():
        return -1
    elements = prod(int(side) for side in first.group(1).split(","))
    return elements * width if elements < MAX_ELEMENTS else -1
