"""Memory: totals over time, events with their lifetimes, operators, and what is alive at the peak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visualprof.reader.nesting import nearest_ancestor
from visualprof.reader.trace import Ints, Trace
from visualprof.views import Params, View
from visualprof.views.measure.groups import group
from visualprof.views.measure.launch import is_operator, with_inner
from visualprof.views.measure.memory import (
    Curve,
    Lifetimes,
    alive_at,
    categories,
    curve,
    devices_of,
    lifetimes,
    modules_of,
    operators_of,
    peak,
    thin,
)
from visualprof.views.table import Column, Result, Table
from visualprof.views.timing import names, ordered

PEAK_ROWS = 200


@dataclass(frozen=True)
class MemoryParams(Params):
    """device: number, -1 host memory, "" the one with the most bytes. start_ns, end_ns: window since the first event."""

    device: str = ""
    start_ns: int = 0
    end_ns: int = -1


def needs(trace: Trace) -> bool:
    """At least one memory event."""
    return len(trace.allocs.ts) > 0


def compute(trace: Trace, params: MemoryParams) -> Result:
    """Allocations as table `events`: `name, address, bytes, allocated_ns, released_ns, lifetime_ns, released_by, event`, the largest first.

    Beside it `devices`, `curve` (table `ts_ns, allocated_bytes, reserved_bytes`, thinned with the peak kept), `operators`
    and `peak` (what is alive at it, by operator, module and category). Times are since the trace's first event.
    Source: torch-tb-profiler's memory view; docs/views.md#memory.
    """
    origin = trace.span_ns[0]
    numbers = devices_of(trace)
    curves = {d: curve(trace, d) for d in numbers}
    device = (
        int(params.device)
        if params.device.lstrip("-").isdigit()
        else max(numbers, key=lambda d: int(curves[d].allocated.max()))
    )
    shown = curves.get(device, Curve(*(np.zeros(0, np.int64),) * 3, relative=True))
    low = origin + params.start_ns
    high = origin + params.end_ns if params.end_ns >= 0 else int(trace.allocs.ts[-1]) + 1
    found = lifetimes(trace, device)
    return Result(
        fields={
            "device": device,
            "devices": [_device(trace, d, curves[d]) for d in numbers],
            "curve": _thinned(shown, low, high, origin),
            "operators": Table(_operators(trace, device, low, high)),
            "events": Table(_events(trace, found, low, high)),
            "peak": _peak(trace, shown, found, origin),
        },
    )


def _device(trace: Trace, device: int, found: Curve) -> dict[str, object]:
    known = next((d for d in trace.meta.devices if d.id == device), None)
    reserved = int(found.reserved.max())
    return {
        "id": device, "name": "host" if device < 0 else known.name if known else "",
        "memory_bytes": known.memory_bytes or None if known else None, "events": len(found.ts), "relative": found.relative,
        "peak_allocated_bytes": int(found.allocated.max()), "peak_reserved_bytes": reserved if reserved >= 0 else None,
        "fragmentation_bytes": int((found.reserved - found.allocated)[found.reserved >= 0].max()) if reserved >= 0 and not found.relative else None,
    }  # fmt: skip


def _thinned(found: Curve, low: int, high: int, origin: int) -> Table:
    inside = np.flatnonzero((found.ts >= low) & (found.ts < high))
    at = inside[thin(found.ts[inside], found.allocated[inside])] if len(inside) else inside
    reserved = np.where(found.reserved[at] >= 0, found.reserved[at].astype(np.float64), np.nan)
    return Table({"ts_ns": found.ts[at] - origin, "allocated_bytes": found.allocated[at], "reserved_bytes": reserved})


def _operator_names(trace: Trace, places: Ints) -> list[str]:
    rows = operators_of(trace, places)
    return [trace.strings[trace.events.name[r]] if r >= 0 else "" for r in rows.tolist()]


def _events(trace: Trace, found: Lifetimes, low: int, high: int) -> dict[str, Column]:
    """Allocations that begin or end in the window."""
    allocs, origin = trace.allocs, trace.span_ns[0]
    place = np.where(found.allocated >= 0, found.allocated, found.released)
    begin = np.where(found.allocated >= 0, allocs.ts[found.allocated], -1)
    end = np.where(found.released >= 0, allocs.ts[found.released], -1)
    keep = np.flatnonzero(((begin >= low) & (begin < high)) | ((end >= low) & (end < high)))
    begin, end, place = begin[keep], end[keep], place[keep]
    both = (begin >= 0) & (end >= 0)
    size = np.abs(allocs.bytes[place])
    columns: dict[str, Column] = {
        "name": _operator_names(trace, found.allocated[keep]),
        "address": [f"0x{a:x}" for a in allocs.addr[place].tolist()],
        "bytes": size,
        "allocated_ns": np.where(begin >= 0, (begin - origin).astype(np.float64), np.nan),
        "released_ns": np.where(end >= 0, (end - origin).astype(np.float64), np.nan),
        "lifetime_ns": np.where(both, (end - begin).astype(np.float64), np.nan),
        "released_by": _operator_names(trace, found.released[keep]),
        "event": allocs.event[place].astype(np.int64),
    }
    return ordered(columns, "bytes")


def _operators(trace: Trace, device: int, low: int, high: int) -> dict[str, Column]:
    """Memory statistics of operators by name: own events and those of the operators inside."""
    events, allocs = trace.events, trace.allocs
    at = np.flatnonzero((allocs.device == device) & (allocs.ts >= low) & (allocs.ts < high))
    ops = np.flatnonzero(is_operator(trace)).astype(np.int32)
    place = np.full(len(events) + 1, -1, np.int64)
    place[ops] = np.arange(len(ops))
    owner = place[operators_of(trace, at)]
    at, owner = at[owner >= 0], owner[owner >= 0]
    size = allocs.bytes[at]
    own = [np.bincount(owner, w, len(ops)).astype(np.int64) for w in (size, size > 0, np.where(size > 0, size, 0))]
    parent = place[nearest_ancestor(events.parent, is_operator(trace), events.parent[ops])]
    total = [with_inner(o, parent, events.depth[ops]) for o in own]
    touched = np.flatnonzero(total[1] | (total[0] != 0))
    calls = group(events.name[ops])
    groups = group(events.name[ops][touched])
    first = touched[groups.first]
    columns: dict[str, Column] = {
        "name": names(trace, events.name[ops][first]),
        "calls": calls.count[np.searchsorted(events.name[ops][calls.first], events.name[ops][first])],
        "size_increase_bytes": groups.sum(total[0][touched]), "self_size_increase_bytes": groups.sum(own[0][touched]),
        "allocations": groups.sum(total[1][touched]), "self_allocations": groups.sum(own[1][touched]),
        "allocated_bytes": groups.sum(total[2][touched]), "self_allocated_bytes": groups.sum(own[2][touched]),
    }  # fmt: skip
    return ordered(columns, "self_allocated_bytes")


def _peak(trace: Trace, found: Curve, lives: Lifetimes, origin: int) -> dict[str, object]:
    """What is alive when most is allocated; the rest of the total is from before the profile."""
    place = peak(found)
    if place < 0:
        return {"ts_ns": None, "allocated_bytes": None}
    ts = int(found.ts[place])
    alive = np.flatnonzero(alive_at(trace, lives, ts))
    size = trace.allocs.bytes[lives.allocated[alive]]
    kinds = categories(trace, lives)
    operators = _operator_names(trace, lives.allocated[alive])
    module_rows = modules_of(trace, lives.allocated[alive])
    modules = [trace.strings[trace.events.name[r]] if r >= 0 else "" for r in module_rows.tolist()]
    return {
        "ts_ns": ts - origin, "allocated_bytes": int(found.allocated[place]), "known_bytes": int(size.sum()),
        "operators": _shares(operators, size), "modules": _shares(modules, size) if any(modules) else None,
        "categories": _shares([kinds[i] for i in alive], size),
    }  # fmt: skip


def _shares(labels: list[str], size: Ints) -> Table:
    """Bytes and number of allocations by label, the largest first."""
    total: dict[str, list[int]] = {}
    for label, nbytes in zip(labels, size.tolist(), strict=True):
        entry = total.setdefault(label, [0, 0])
        entry[0] += nbytes
        entry[1] += 1
    rows = sorted(total.items(), key=lambda kv: -kv[1][0])[:PEAK_ROWS]
    return Table(
        {"name": [k for k, _ in rows], "bytes": [v[0] for _, v in rows], "allocations": [v[1] for _, v in rows]}
    )


VIEW = View("memory", 60, needs, MemoryParams, compute)
