"""Memory: totals over time, allocations with their lifetimes, operators, and the memory alive at the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column, Kind
from visualprof.views.answers.table import Answer, Columns, Table
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.devices.memory import (
    Lifetimes,
    MemoryCurve,
    downsample,
    is_memory_owner,
    lifetimes,
    memory_curve,
    memory_devices,
    memory_owners,
)
from visualprof.views.measure.devices.memory_categories import (
    Purposes,
    allocation_purposes,
    bytes_by_category,
    bytes_by_purpose,
    has_purposes,
)
from visualprof.views.measure.devices.memory_tables import (
    AllocationColumns,
    MemoryPeak,
    MemoryPlaces,
    allocation_columns,
    memory_peak,
    shown_allocations,
)
from visualprof.views.measure.launches.launch import inclusive_totals
from visualprof.views.measure.steps.windows import step_indices

NEARLY_FULL_RATIO = 0.5  # share of the device's memory from which the chart shows the limit


@dataclass(frozen=True)
class MemoryParams(Params):
    """Parameters of the view.

    Attributes:
        device: Number of the device; -1 for the host; "" for the device with the most bytes.
        start_ns: Start of the window, since the first event.
        end_ns: End of the window, since the first event; -1 for the end of the recording.
        alive_at: Only allocations that are alive at the `peak`, or at this time since the first event in ns.
    """

    device: str = ""
    start_ns: int = 0
    end_ns: int = -1
    alive_at: str = ""


class MemoryDevice(msgspec.Struct):
    """Memory of one device; id -1 is the host.

    Attributes:
        relative: Whether bytes are relative to the start of the profile, because the file has no totals.
    """

    id: kinds.Identifier
    name: str
    memory_bytes: kinds.Size | None
    events: kinds.Count
    relative: bool
    peak_allocated_bytes: kinds.Size
    peak_reserved_bytes: kinds.Size | None
    fragmentation_bytes: kinds.Size | None


class CurveColumns(Columns):
    """Totals over time, downsampled; the peak is always included."""

    ts_ns: kinds.DurationColumn
    allocated_bytes: kinds.SizeColumn
    reserved_bytes: kinds.SizeColumn


class OperatorColumns(Columns, kw_only=True):
    """Memory of operators by name: totals include nested operators, `self` columns exclude them."""

    name: kinds.NameColumn
    calls: kinds.CountColumn
    size_increase_bytes: kinds.SizeColumn
    self_size_increase_bytes: kinds.SizeColumn
    allocations: kinds.CountColumn
    self_allocations: kinds.CountColumn
    allocated_bytes: kinds.SizeColumn
    self_allocated_bytes: kinds.SizeColumn


class MemoryAnswer(Answer):
    """Memory of one device over time.

    Attributes:
        categories: `ts_ns` and the bytes of each category, if some are known.
        category_source: Whether the file has the categories, or they are derived from stages and module setup.
    """

    device: kinds.Identifier
    devices: list[MemoryDevice]
    curve: Table[CurveColumns]
    categories: Table[dict[str, Column]] | None
    category_source: Literal["file", "derived"] | None
    operators: Table[OperatorColumns]
    events: Table[AllocationColumns]
    peak: MemoryPeak


def needs(trace: Trace) -> bool:
    """Whether the trace has a memory event."""
    return len(trace.allocs.ts) > 0


def compute(trace: Trace, params: MemoryParams) -> MemoryAnswer:
    """Return the memory of one device; times are since the first event of the trace.

    Source: torch-tb-profiler's memory view; docs/views/memory.md
    """
    origin = trace.span_ns[0]
    numbers = memory_devices(trace)
    curves = {d: memory_curve(trace, d) for d in numbers}
    device = (
        int(params.device)
        if params.device.lstrip("-").isdigit()
        else max(numbers, key=lambda d: int(curves[d].allocated.max()))
    )
    shown = curves.get(device, MemoryCurve(*(np.zeros(0, np.int64),) * 4, is_relative=True))
    low, high = _window(trace, params)
    lives = lifetimes(trace, device)
    owner_mask = is_memory_owner(trace)
    owner = memory_owners(trace, owner_mask)
    drawn = _drawn(shown, low, high)
    places = MemoryPlaces(trace, owner)
    purposes = allocation_purposes(trace, lives) if has_purposes(trace) else None
    listed = shown_allocations(trace, shown, lives, (low, high), params.alive_at)
    return MemoryAnswer(
        device=device,
        devices=[_device(trace, d, curves[d]) for d in numbers],
        curve=Table(columns=_curve(shown, drawn, origin)),
        categories=_categories(trace, device, shown, drawn, lives, purposes),
        category_source=None if purposes is None else "file" if trace.allocs.category.any() else "derived",
        operators=Table(columns=_operators(trace, device, low, high, owner_mask, owner)),
        events=Table(columns=allocation_columns(trace, lives, listed, places, purposes)),
        peak=memory_peak(trace, device, shown, lives, places, purposes),
    )


def _window(trace: Trace, params: MemoryParams) -> tuple[int, int]:
    """Return the start and the end of the time that is shown: the named step, the window, or everything.

    If queued work of a step changes memory after its annotation, the step extends over these changes.
    """
    origin, last = trace.span_ns[0], int(trace.allocs.ts[-1]) + 1
    if params.step and params.end_ns < 0 and not params.start_ns:
        number = int(step_indices(trace, params.step)[0])  # the first one: a window is one interval
        start, end = int(trace.steps.ts[number]), int(trace.steps.ts[number] + trace.steps.dur[number])
        event = trace.allocs.event
        event_ts = trace.allocs.ts[(event >= 0) & (trace.events.step[event] == number)]
        return (
            (start, end)
            if not len(event_ts) or event_ts.max() <= end
            else (int(event_ts.min()), int(event_ts.max()) + 1)
        )
    return origin + params.start_ns, origin + params.end_ns if params.end_ns >= 0 else last


def _device(trace: Trace, device: int, totals: MemoryCurve) -> MemoryDevice:
    info = next((d for d in trace.meta.devices if d.id == device), None)
    reserved = int(totals.reserved.max())
    both = (totals.reserved >= totals.allocated) & (totals.allocated >= 0) & (not totals.is_relative)
    return MemoryDevice(
        id=device,
        name="host" if device < 0 else info.name if info else "",
        memory_bytes=info.memory_bytes or None if info else None,
        events=len(totals.ts),
        relative=totals.is_relative,
        peak_allocated_bytes=int(totals.allocated.max()),
        peak_reserved_bytes=reserved if reserved >= 0 else None,
        fragmentation_bytes=int((totals.reserved - totals.allocated)[both].max()) if both.any() else None,
    )


def _drawn(totals: MemoryCurve, low: int, high: int) -> Ints:
    """Return the indices of the curve's points in the window."""
    first, last = np.searchsorted(totals.ts, (low, high)).tolist()
    return first + downsample(totals.ts[first:last], totals.allocated[first:last])


def _curve(totals: MemoryCurve, at: Ints, origin: int) -> CurveColumns:
    reserved = np.where(totals.reserved[at] >= 0, totals.reserved[at].astype(np.float64), np.nan)
    return CurveColumns(ts_ns=totals.ts[at] - origin, allocated_bytes=totals.allocated[at], reserved_bytes=reserved)


def _categories(
    trace: Trace, device: int, totals: MemoryCurve, at: Ints, lives: Lifetimes, purposes: Purposes | None
) -> Table[dict[str, Column]] | None:
    """Return the bytes on the device over time by category, None if no category is known.

    If the file has the totals, the columns add up to them.
    """
    labels, held = bytes_by_category(trace, device, totals.alloc_rows[at])
    if not labels and purposes is not None:
        recorded = None if totals.is_relative else totals.allocated[at]
        labels, held = bytes_by_purpose(trace, lives, purposes, totals.alloc_rows[at], recorded)
        used = [i for i, column in enumerate(held) if column.any()]
        labels, held = [labels[i] for i in used], [held[i] for i in used]
    if not set(labels) - {"unknown"}:
        return None
    columns: dict[str, Column] = {f"{label}_bytes": total for label, total in zip(labels, held, strict=True)}
    kinds: dict[str, Kind] = {"ts_ns": "ns", **dict.fromkeys(columns, "bytes")}
    return Table(columns={"ts_ns": totals.ts[at] - trace.span_ns[0], **columns}, kinds=kinds)


def _operators(trace: Trace, device: int, low: int, high: int, owner_mask: Mask, rows: Ids) -> OperatorColumns:
    """Return memory statistics of operators by name, with and without nested operators.

    Args:
        own: Mask of the events to include.
        rows: (m,) row of the event in which each memory event happened, or -1.
    """
    events, allocs = trace.events, trace.allocs
    at = np.flatnonzero((allocs.device == device) & (allocs.ts >= low) & (allocs.ts < high))
    ops = np.flatnonzero(owner_mask).astype(np.int32)
    place = np.full(len(events) + 1, -1, np.int64)
    place[ops] = np.arange(len(ops))
    owner = place[rows[at]]
    at, owner = at[owner >= 0], owner[owner >= 0]
    size = allocs.bytes[at]
    direct = [np.bincount(owner, w, len(ops)).astype(np.int64) for w in (size, size > 0, np.where(size > 0, size, 0))]
    parent = place[nearest_ancestor(events.parent, owner_mask, events.parent[ops])]
    total = inclusive_totals(direct, parent, events.depth[ops])
    touched = np.flatnonzero(total[1] | (total[0] != 0))
    name = events.name[ops]
    groups = group(name[touched])
    first = touched[groups.first]
    columns: dict[str, Column] = {
        "name": name_texts(trace, name[first]),
        "calls": np.bincount(name)[name[first]],
        "size_increase_bytes": groups.sum(total[0][touched]),
        "self_size_increase_bytes": groups.sum(direct[0][touched]),
        "allocations": groups.sum(total[1][touched]),
        "self_allocations": groups.sum(direct[1][touched]),
        "allocated_bytes": groups.sum(total[2][touched]),
        "self_allocated_bytes": groups.sum(direct[2][touched]),
    }
    return OperatorColumns(**sort_columns(columns, "self_allocated_bytes"))


def make_charts(result: MemoryAnswer, params: MemoryParams, top: int) -> dict[str, charts.Option]:
    """Return the charts `curve` and `categories`.

    `curve` has allocated and reserved bytes over time, the peak, and the device's memory if the peak is near it.
    `categories` has the bytes by category, if the file has categories.
    """
    curve = result.curve.columns
    facts = next((d for d in result.devices if d.id == result.device), None)
    if facts is None or not len(result.curve) or curve.ts_ns[0] == curve.ts_ns[-1]:
        return {}  # no events, or a static plan, which has no time axis
    ts, allocated, reserved = curve.ts_ns, curve.allocated_bytes, curve.reserved_bytes
    series = [("@t:memory.allocated", ts, allocated)]
    if facts.peak_reserved_bytes is not None:
        series.insert(0, ("@t:memory.reserved", ts, reserved))
    option = charts.lines(series, ("ns", "bytes"))
    line = cast("list[charts.Option]", option["series"])[-1]
    line["areaStyle"] = {"opacity": 0.15}
    highest = result.peak
    if highest.ts_ns is not None and ts[0] <= highest.ts_ns <= ts[-1]:
        line["markPoint"] = {"data": [{"name": "@t:memory.peak", "coord": [highest.ts_ns, highest.allocated_bytes]}]}
    total = facts.memory_bytes
    if total and max(facts.peak_allocated_bytes, facts.peak_reserved_bytes or 0) > NEARLY_FULL_RATIO * total:
        line["markLine"] = {"data": [{"name": "@t:memory.capacity", "yAxis": total}]}
    out = {"curve": option}
    held = result.categories
    if held is not None and len(held):
        parts = [(k.removesuffix("_bytes"), v) for k, v in held.columns.items() if k != "ts_ns"]
        areas = [(f"@t:category.{name}", held.columns["ts_ns"], v) for name, v in parts if np.asarray(v).any()]
        out["categories"] = charts.lines(areas, ("ns", "bytes"), stack=True)
    return out


VIEW = View("memory", 60, needs, MemoryParams, compute, make_charts)
