"""Collectives of several ranks: which call is which, how long each took, and who waited for whom."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from visualprof.reader.trace import Category, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.intervals import length, union
from visualprof.views.measure.launch import launches

SIZES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "c10::half": 2, "bfloat16": 2,
    "c10::bfloat16": 2, "int": 4, "int32": 4, "long": 8, "long int": 8, "int64": 8, "short": 2, "int16": 2,
    "byte": 1, "char": 1, "int8": 1, "uint8": 1, "unsigned char": 1, "signed char": 1, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Collective:
    """One call on one rank. start, end: (n,) ns of its host operator and its kernels; bytes: -1 unknown."""

    name: str
    ts: int
    start: Ints
    end: Ints
    bytes: int
    event: int
    group_size: int = -1
    is_request: bool = False  # asks a background thread for the collective, which is recorded there

    @property
    def arrival(self) -> int:
        """When the rank was ready to exchange data: the start of its last part."""
        return int(self.start[-1])

    @property
    def latency(self) -> int:
        """Nanoseconds in which any part of it ran."""
        return length(union(self.start, self.end))


@dataclass(frozen=True)
class Matched:
    """A call with what its ranks share: transfer_ns is the shortest of each part over the ranks, None with one rank."""

    rank: int
    call: Collective
    transfer_ns: int | None


def collectives(trace: Trace) -> list[Collective]:
    """The collectives of a trace in order of time.

    Outermost communication operators with the kernels that they launched, and communication kernels that no operator
    owns.
    """
    events = trace.events
    comm = events.category == Category.COMM
    host = comm & trace.track_mask(TrackKind.THREAD)
    rows = np.flatnonzero(host & (events.dur >= 0))
    rows = rows[nearest_ancestor(events.parent, host, events.parent[rows]) < 0]
    joined = launches(trace)
    kernel = comm[joined.work]
    work, owner = joined.work[kernel], joined.op[kernel]
    around = np.where(owner >= 0, _outermost(trace, owner, host), -1)
    order = np.lexsort((events.ts[work], around))
    mine = np.split(work[order], np.searchsorted(around[order], np.stack((rows, rows + 1), axis=1).ravel()))[1::2]
    calls = [_collective(trace, row, part.tolist()) for row, part in zip(rows.tolist(), mine, strict=True)]
    calls += [_collective(trace, -1, [int(w)]) for w in work[around < 0]]
    done = [c for c in calls if not c.is_request]
    return sorted(done or calls, key=lambda c: c.ts)


def match(ranks: list[list[Collective]]) -> list[Matched]:
    """Every call of every rank, the i-th of a name with the i-th of that name on the other ranks.

    Transfer is, for each part of the call (host operator, kernels), the shortest over the ranks: the fastest rank
    waited for nobody. A call that some rank lacks has no transfer time. Source: torch-tb-profiler's wait graph.
    """
    keyed: list[dict[tuple[str, int], Collective]] = []
    for calls in ranks:
        seen: dict[str, int] = {}
        table: dict[tuple[str, int], Collective] = {}
        for call in calls:
            seen[call.name] = seen.get(call.name, -1) + 1
            table[call.name, seen[call.name]] = call
        keyed.append(table)
    transfers = {key: _transfer([t.get(key) for t in keyed]) for key in dict.fromkeys(k for t in keyed for k in t)}
    return [Matched(rank, call, transfers[key]) for rank, table in enumerate(keyed) for key, call in table.items()]


def _transfer(calls: list[Collective | None]) -> int | None:
    """The transfer time of one call, by rank; None when a rank lacks it, or all of one rank, or parts differ."""
    there = [call for call in calls if call is not None]
    if not len(calls) == len(there) > 1 or len({len(call.start) for call in there}) > 1:
        return None
    parts = np.stack([call.end - call.start for call in there]).min(axis=0)
    # The parts of a call may run side by side: it cannot transfer for longer than the fastest rank took.
    return min(int(parts.sum()), *(call.latency for call in there))


def _outermost(trace: Trace, rows: Rows, host: Mask) -> Rows:
    """The outermost communication operator at or above each row, -1 for none."""
    at = nearest_ancestor(trace.events.parent, host, rows)
    while True:
        above = nearest_ancestor(trace.events.parent, host, np.where(at >= 0, trace.events.parent[at], -1))
        if (above < 0).all():
            return at
        at = np.where(above >= 0, above, at)


def _collective(trace: Trace, row: int, kernels: list[int]) -> Collective:
    events = trace.events
    parts = np.array(([row] if row >= 0 else []) + kernels, np.int64)
    inside = _inside(trace, row) if row >= 0 else []
    rows = [*parts.tolist(), *inside]
    name = _first_text(trace, "collective", rows) or _short(trace.strings[events.name[parts[0]]])
    sizes = [b for r in rows if (b := _bytes(trace, r)) >= 0]
    members = [int(v) for r in rows if (v := trace.arg("group_size", np.array([r]), -1)[0]) > 0]
    return Collective(
        name,
        int(events.ts[parts[0]]),
        events.ts[parts],
        events.end[parts],
        max(sizes, default=-1),
        int(parts[-1]),
        members[0] if members else -1,
        is_request=not kernels and trace.strings[events.name[parts[0]]].startswith("c10d::"),
    )


def _inside(trace: Trace, row: int) -> list[int]:
    """Communication ranges inside a communication operator."""
    events = trace.events
    track = trace.tracks[int(events.track[row])]
    later = events.ts[row + 1 : track.first + track.count]
    last = row + 1 + int(np.searchsorted(later, int(events.end[row])))
    inside: list[int] = np.flatnonzero(events.category[row + 1 : last] == Category.COMM).tolist()
    return [row + 1 + i for i in inside]


def _first_text(trace: Trace, name: str, rows: list[int]) -> str:
    for row in rows:
        value = int(trace.arg(name, np.array([row]), 0)[0])
        if value > 0:
            return trace.strings[value]
    return ""


def _short(name: str) -> str:
    """`nccl:all_reduce` and `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)` -> all_reduce."""
    host = re.match(r"^\w+:(\w+)", name)
    if host:
        return host.group(1)
    kernel = re.search(r"(AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|AllToAll|Reduce|Send|Recv)", name)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kernel.group(1)).lower() if kernel else name


def _bytes(trace: Trace, row: int) -> int:
    """Size of a collective's message: elements x type, or the bytes of its first input; -1 unknown."""
    at = np.array([row])
    elements = int(trace.arg("elements_in", at, -1)[0])
    dtype = int(trace.arg("dtype", at, 0)[0])
    if elements >= 0 and dtype > 0:
        width = SIZES.get(trace.strings[dtype].lower(), 0)
        return elements * width if width else -1
    shapes, types = (int(trace.arg(n, at, 0)[0]) for n in ("input_shapes", "input_types"))
    if shapes <= 0 or types <= 0:
        return -1
    return _first_tensor_bytes(trace.strings[shapes], trace.strings[types])


def _first_tensor_bytes(shapes: str, types: str) -> int:
    first = re.match(r"\[\s*\[([\d,\s]*)\]", shapes)
    kind = re.match(r'\[\s*"([^"]*)"', types)
    width = SIZES.get(kind.group(1).lower(), 0) if kind else 0
    if first is None or not width or not first.group(1).strip():
        return -1
    return int(np.prod([int(d) for d in first.group(1).split(",")])) * width
