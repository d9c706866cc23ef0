"""Memory: totals over time, events with their lifetimes, operators, and what is alive at the peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from visualprof.reader.trace import NO_ADDRESS, Category, Ids, Ints, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View, charts
from visualprof.views.measure.groups import group
from visualprof.views.measure.launch import with_inner
from visualprof.views.measure.memory import (
    Curve,
    Lifetimes,
    alive_at,
    curve,
    devices_of,
    held_by_category,
    lifetimes,
    owners,
    owners_of,
    peak,
    purposes,
    thin,
)
from visualprof.views.measure.steps import step_index
from visualprof.views.table import Coded, Column, Result, Table
from visualprof.views.timing import names, ordered

PEAK_ROWS = 200
NEARLY_FULL = 0.5  # above this share of the device its memory is drawn beside the curve


@dataclass(frozen=True)
class MemoryParams(Params):
    """device: number, -1 host memory, "" the one with the most bytes. start_ns, end_ns: window since the start."""

    device: str = ""
    start_ns: int = 0
    end_ns: int = -1


def needs(trace: Trace) -> bool:
    """At least one memory event."""
    return len(trace.allocs.ts) > 0


def compute(trace: Trace, params: MemoryParams) -> Result:
    """Memory of one device.

    Allocations as table `events`: `name, address, bytes, allocated_ns, released_ns, lifetime_ns, released_by, event`,
    the largest first, and `category` where the file has them. Beside it `devices`, `curve` (table `ts_ns,
    allocated_bytes, reserved_bytes`, thinned with the peak kept), `categories` (`ts_ns` and the bytes of each category
    at the same times, where the file has them), `operators` and `peak` (what is alive at it, by operator, module and
    category). Times are since the trace's first event.
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
    shown = curves.get(device, Curve(*(np.zeros(0, np.int64),) * 4, relative=True))
    low, high = _window(trace, params)
    found = lifetimes(trace, device)
    own = owners(trace)
    drawn = _drawn(shown, low, high)
    return Result(
        fields={
            "device": device,
            "devices": [_device(trace, d, curves[d]) for d in numbers],
            "curve": _curve(shown, drawn, origin),
            "categories": _categories(trace, device, shown, drawn, origin),
            "operators": Table(_operators(trace, device, low, high, own)),
            "events": Table(_events(trace, found, low, high, own)),
            "peak": _peak(trace, device, shown, found, origin, own),
        },
    )


def _window(trace: Trace, params: MemoryParams) -> tuple[int, int]:
    """Start and end of what is shown: of the step that is named, else of the window, else of everything."""
    origin, last = trace.span_ns[0], int(trace.allocs.ts[-1]) + 1
    if params.step and params.end_ns < 0 and not params.start_ns:
        number = step_index(trace, params.step)
        start = int(trace.steps.ts[number])
        return start, start + int(trace.steps.dur[number])
    return origin + params.start_ns, origin + params.end_ns if params.end_ns >= 0 else last


def _device(trace: Trace, device: int, found: Curve) -> dict[str, object]:
    known = next((d for d in trace.meta.devices if d.id == device), None)
    reserved = int(found.reserved.max())
    both = (found.reserved >= 0) & (found.allocated >= 0) & (not found.relative)
    return {
        "id": device, "name": "host" if device < 0 else known.name if known else "",
        "memory_bytes": known.memory_bytes or None if known else None,
        "events": len(found.ts), "relative": found.relative,
        "peak_allocated_bytes": int(found.allocated.max()), "peak_reserved_bytes": reserved if reserved >= 0 else None,
        "fragmentation_bytes": int((found.reserved - found.allocated)[both].max()) if both.any() else None,
    }  # fmt: skip


def _drawn(found: Curve, low: int, high: int) -> Ints:
    """Places of the curve's points in the window."""
    first, last = np.searchsorted(found.ts, (low, high)).tolist()
    return first + thin(found.ts[first:last], found.allocated[first:last])


def _curve(found: Curve, at: Ints, origin: int) -> Table:
    reserved = np.where(found.reserved[at] >= 0, found.reserved[at].astype(np.float64), np.nan)
    return Table({"ts_ns": found.ts[at] - origin, "allocated_bytes": found.allocated[at], "reserved_bytes": reserved})


def _categories(trace: Trace, device: int, found: Curve, at: Ints, origin: int) -> Table | None:
    """What the device holds over time by category."""
    labels, held = held_by_category(trace, device, found.places[at])
    columns = {f"{label}_bytes": total for label, total in zip(labels, held, strict=True)}
    return Table({"ts_ns": found.ts[at] - origin, **columns}) if columns else None


def _name_ids(trace: Trace, rows: Ids) -> Ids:
    """String ids of the names of events, 0 for none."""
    return np.where(rows >= 0, trace.events.name[rows], 0)


def _address(value: int) -> str | None:
    return None if value == NO_ADDRESS else f"0x{value:x}"


def _events(trace: Trace, found: Lifetimes, low: int, high: int, own: Mask) -> dict[str, Column]:
    """Allocations that begin or end in the window."""
    allocs, origin = trace.allocs, trace.span_ns[0]
    begin = np.where(found.allocated >= 0, allocs.ts[found.allocated], -1)
    end = np.where(found.released >= 0, allocs.ts[found.released], -1)
    keep = np.flatnonzero(((begin >= low) & (begin < high)) | ((end >= low) & (end < high)))
    place = np.where(found.allocated[keep] >= 0, found.allocated[keep], found.released[keep])
    order = np.argsort(-np.abs(allocs.bytes[place]), kind="stable")
    keep, place = keep[order], place[order]
    begin, end = begin[keep], end[keep]

    def named(places: Ints) -> Coded:
        return Coded(_name_ids(trace, owners_of(trace, places, own)), trace.strings.__getitem__)

    columns: dict[str, Column] = {
        "name": named(found.allocated[keep]),
        "address": Coded(allocs.addr[place], _address, ordered=True),
        "bytes": np.abs(allocs.bytes[place]),
        "allocated_ns": np.where(begin >= 0, (begin - origin).astype(np.float64), np.nan),
        "released_ns": np.where(end >= 0, (end - origin).astype(np.float64), np.nan),
        "lifetime_ns": np.where((begin >= 0) & (end >= 0), (end - begin).astype(np.float64), np.nan),
        "released_by": named(found.released[keep]),
        "event": allocs.event[place].astype(np.int64),
    }
    if allocs.category.any():
        columns["category"] = Coded(allocs.category[place], lambda i: trace.strings[i] or "unknown")
    return columns


def _operators(trace: Trace, device: int, low: int, high: int, own: Mask) -> dict[str, Column]:
    """Memory statistics of operators by name: own events and those of the operators inside."""
    events, allocs = trace.events, trace.allocs
    at = np.flatnonzero((allocs.device == device) & (allocs.ts >= low) & (allocs.ts < high))
    ops = np.flatnonzero(own).astype(np.int32)
    place = np.full(len(events) + 1, -1, np.int64)
    place[ops] = np.arange(len(ops))
    owner = place[owners_of(trace, at, own)]
    at, owner = at[owner >= 0], owner[owner >= 0]
    size = allocs.bytes[at]
    direct = [np.bincount(owner, w, len(ops)).astype(np.int64) for w in (size, size > 0, np.where(size > 0, size, 0))]
    parent = place[nearest_ancestor(events.parent, own, events.parent[ops])]
    total = [with_inner(o, parent, events.depth[ops]) for o in direct]
    touched = np.flatnonzero(total[1] | (total[0] != 0))
    calls = group(events.name[ops])
    groups = group(events.name[ops][touched])
    first = touched[groups.first]
    columns: dict[str, Column] = {
        "name": names(trace, events.name[ops][first]),
        "calls": calls.count[np.searchsorted(events.name[ops][calls.first], events.name[ops][first])],
        "size_increase_bytes": groups.sum(total[0][touched]),
        "self_size_increase_bytes": groups.sum(direct[0][touched]),
        "allocations": groups.sum(total[1][touched]), "self_allocations": groups.sum(direct[1][touched]),
        "allocated_bytes": groups.sum(total[2][touched]), "self_allocated_bytes": groups.sum(direct[2][touched]),
    }  # fmt: skip
    return ordered(columns, "self_allocated_bytes")


def _peak(trace: Trace, device: int, found: Curve, lives: Lifetimes, origin: int, own: Mask) -> dict[str, object]:
    """What is alive when most is allocated; the rest of the total is from before the profile."""
    place = peak(found)
    if place < 0:
        return {"ts_ns": None, "allocated_bytes": None}
    ts = int(found.ts[place])
    alive = np.flatnonzero(alive_at(trace, lives, ts))
    places = lives.allocated[alive]
    size = trace.allocs.bytes[places]
    modules = _name_ids(trace, owners_of(trace, places, trace.events.category == Category.MODULE))
    text = trace.strings.__getitem__
    kinds = purposes(trace, Lifetimes(places, lives.released[alive], lives.until[alive]))
    labels, held = held_by_category(trace, device, found.places[place : place + 1])
    if len(alive) or not labels:
        by_kind = _shares(kinds.of, kinds.names.__getitem__, size)
    else:  # without addresses nobody knows what is alive, but the sums are known
        rows = sorted(((int(h[0]), n) for n, h in zip(labels, held, strict=True) if h[0]), reverse=True)
        by_kind = Table({
            "name": [n for _, n in rows], "bytes": [b for b, _ in rows], "allocations": np.full(len(rows), np.nan),
        })  # fmt: skip
    return {
        "ts_ns": ts - origin, "allocated_bytes": int(found.allocated[place]), "known_bytes": int(size.sum()),
        "operators": _shares(_name_ids(trace, owners_of(trace, places, own)), text, size),
        "modules": _shares(modules, text, size) if modules.any() else None, "categories": by_kind,
    }  # fmt: skip


def _shares(labels: Rows, text: Callable[[int], str], size: Ints) -> Table:
    """Bytes and number of allocations by label, the largest first."""
    groups = group(labels)
    total = groups.sum(size)
    top = np.argsort(-total, kind="stable")[:PEAK_ROWS]
    ids: list[int] = labels[groups.first[top]].tolist()
    return Table({"name": [text(i) for i in ids], "bytes": total[top], "allocations": groups.count[top]})


def make_charts(result: Result, params: MemoryParams, top: int) -> dict[str, charts.Option]:
    """`curve`: allocated and reserved over time, with the peak and, where it is near, the device's memory.

    `categories`: what it held, where the file says that.
    """
    curve, device = result.fields["curve"], result.fields["device"]
    facts = next((d for d in result.fields["devices"] if d["id"] == device), None)
    if facts is None or not isinstance(curve, Table) or not len(curve):
        return {}
    if curve.columns["ts_ns"][0] == curve.columns["ts_ns"][-1]:
        return {}  # a static plan: there is no time over which to draw it
    ts, allocated, reserved = (curve.columns[k] for k in ("ts_ns", "allocated_bytes", "reserved_bytes"))
    series = [("@t:memory.allocated", ts, allocated)]
    # Files of machines without a caching allocator say 0 throughout.
    if (np.nan_to_num(np.asarray(reserved, np.float64)) > 0).any():
        series.insert(0, ("@t:memory.reserved", ts, reserved))
    option = charts.lines(series, ("ns", "bytes"))
    line = cast("list[charts.Option]", option["series"])[-1]
    line["areaStyle"] = {"opacity": 0.15}
    peak = result.fields["peak"]
    if peak["ts_ns"] is not None and ts[0] <= peak["ts_ns"] <= ts[-1]:
        at_peak = [int(peak["ts_ns"]), int(peak["allocated_bytes"])]
        line["markPoint"] = {"data": [{"name": "@t:memory.peak", "coord": at_peak}]}
    total = facts["memory_bytes"]
    if total and max(facts["peak_allocated_bytes"], facts["peak_reserved_bytes"] or 0) > NEARLY_FULL * total:
        line["markLine"] = {"data": [{"name": "@t:memory.capacity", "yAxis": total}]}
    out = {"curve": option}
    held = result.fields["categories"]
    if isinstance(held, Table) and len(held):
        at = held.columns["ts_ns"]
        parts = [(k.removesuffix("_bytes"), v) for k, v in held.columns.items() if k.endswith("_bytes")]
        areas = [(f"@t:category.{name}", at, v) for name, v in parts if np.asarray(v).any()]
        out["categories"] = charts.lines(areas, ("ns", "bytes"), stack=True)
    return out


VIEW = View("memory", 60, needs, MemoryParams, compute, make_charts)
