"""Memory events of a trace: curves, pairs of allocation and release, and who holds what at the peak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visualprof.reader.nesting import nearest_ancestor
from visualprof.reader.trace import Category, Ids, Ints, Mask, Trace
from visualprof.views.measure.launch import is_operator
from visualprof.views.measure.stages import find_stages
from visualprof.views.measure.steps import step_windows

CURVE_POINTS = 1024


@dataclass(frozen=True)
class Curve:
    """Memory of one device over time.

    ts: (n,) ns. allocated, reserved: (n,) bytes, reserved -1 unknown. relative: the file has no totals, so
    `allocated` counts from 0 at the first event.
    """

    ts: Ints
    allocated: Ints
    reserved: Ints
    relative: bool


@dataclass(frozen=True)
class Lifetimes:
    """Allocations of one device, (n,) each: place in `trace.allocs` of the allocation and of its release, -1 for none."""

    allocated: Ints
    released: Ints


def devices_of(trace: Trace) -> list[int]:
    """Devices with memory events; -1 is host memory."""
    return np.unique(trace.allocs.device).tolist()


def curve(trace: Trace, device: int) -> Curve:
    """Totals of a device as recorded, or added up from its first event."""
    allocs = trace.allocs
    at = np.flatnonzero(allocs.device == device)
    recorded = allocs.allocated[at]
    relative = not (recorded != -1).any()
    total = np.cumsum(allocs.bytes[at]) if relative else recorded
    return Curve(allocs.ts[at], total, allocs.reserved[at], relative)


def thin(ts: Ints, value: Ints, points: int = CURVE_POINTS) -> Ints:
    """Places that keep a curve's shape: first, last, smallest and largest of each of `points` / 4 equal spans of time.

    Returns: ascending places; the largest value of all is among them.
    """
    if len(ts) <= points:
        return np.arange(len(ts))
    span = max(1, int(ts[-1] - ts[0]))
    bucket = (ts - ts[0]) * (points // 4) // (span + 1)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    last = np.append(first[1:], len(ts)) - 1
    order = np.lexsort((value, bucket))
    low, high = order[first], order[last]
    return np.unique(np.concatenate((first, last, low, high)))


def lifetimes(trace: Trace, device: int) -> Lifetimes:
    """Each allocation with the next release of its address; releases of memory from before the profile stand alone."""
    allocs = trace.allocs
    at = np.flatnonzero(allocs.device == device)
    order = at[np.lexsort((at, allocs.addr[at]))]
    positive = allocs.bytes[order] > 0
    follows = np.zeros(len(order), bool)
    follows[:-1] = (allocs.addr[order][1:] == allocs.addr[order][:-1]) & positive[:-1] & ~positive[1:]
    release = np.full(len(order), -1, np.int64)
    release[:-1][follows[:-1]] = order[1:][follows[:-1]]
    taken = np.zeros(len(order), bool)
    taken[1:] = follows[:-1]
    lone = ~positive & ~taken
    starts = np.concatenate((order[positive], np.full(int(lone.sum()), -1)))
    ends = np.concatenate((release[positive], order[lone]))
    by_time = np.argsort(np.where(starts >= 0, starts, ends), kind="stable")
    return Lifetimes(starts[by_time], ends[by_time])


def operators_of(trace: Trace, places: Ints) -> Ids:
    """Row of the operator in which each memory event happened, -1 for none."""
    events = np.where(places >= 0, trace.allocs.event[places], -1)
    return nearest_ancestor(trace.events.parent, is_operator(trace), events)


def modules_of(trace: Trace, places: Ints) -> Ids:
    """Row of the layer or module call around each memory event, -1 for none."""
    wanted = trace.events.category == Category.MODULE
    return nearest_ancestor(trace.events.parent, wanted, np.where(places >= 0, trace.allocs.event[places], -1))


def peak(found: Curve) -> int:
    """Place of the largest total, the first one; -1 without events."""
    return int(np.argmax(found.allocated)) if len(found.allocated) else -1


def alive_at(trace: Trace, found: Lifetimes, ts: int) -> Mask:
    """Of each allocation: does it live at that time?"""
    allocs = trace.allocs
    began = (found.allocated >= 0) & (allocs.ts[found.allocated] <= ts)
    ended = (found.released >= 0) & (allocs.ts[found.released] <= ts)
    return began & ~ended


def categories(trace: Trace, found: Lifetimes) -> list[str]:
    """What each allocation is for: as the file says, else by the stages in which it began and ended.

    forward to backward or later: activation; in backward, kept: gradient; in the optimizer, kept: optimizer_state; begun
    and ended in one stage: temporary; before the profile or unknown: unknown. A heuristic; docs/views.md#memory.
    """
    column = trace.args.get("memory_category")
    if column is not None:
        ids = np.where(found.allocated >= 0, column.values[np.maximum(found.allocated, 0)], 0)
        return [trace.strings[int(i)] or "unknown" for i in ids]
    stages = find_stages(trace, step_windows(trace))
    names = list(stages)
    began = _stage_at(trace, [stages[n].spans() for n in names], found.allocated)
    ended = _stage_at(trace, [stages[n].spans() for n in names], found.released)
    out: list[str] = []
    for a, b, released in zip(began.tolist(), ended.tolist(), (found.released >= 0).tolist(), strict=True):
        first = names[a] if a >= 0 else ""
        last = names[b] if b >= 0 else ""
        out.append(_category(first, last, released))
    return out


def _category(first: str, last: str, released: bool) -> str:
    if not first:
        return "unknown"
    if released and first == last:
        return "temporary"
    return {"dataloader": "input", "forward": "activation", "backward": "gradient", "optimizer": "optimizer_state"}[
        first
    ]


def _stage_at(trace: Trace, spans: list[Ints], places: Ints) -> Ints:
    """Number of the stage at each memory event, -1 for none."""
    ts = np.where(places >= 0, trace.allocs.ts[np.maximum(places, 0)] if len(trace.allocs.ts) else 0, -1)
    out = np.full(len(places), -1)
    for number, disjoint in enumerate(spans):
        at = np.searchsorted(disjoint[:, 0], ts, side="right") - 1
        inside = (at >= 0) & (ts < disjoint[np.maximum(at, 0), 1]) if len(disjoint) else np.zeros(len(ts), bool)
        out[inside & (places >= 0) & (out < 0)] = number
    return out
