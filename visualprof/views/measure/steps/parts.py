"""Divide the time of each step into disjoint parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from visualprof.reader.trace import Bytes, Category, Ints, Mask, Trace, TrackKind
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import covered_ns, merge, subtract, unions_by_group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.device_work import (
    busy_devices,
    event_devices,
    main_work,
    only_launches_communication,
)
from visualprof.views.measure.steps.extents import are_concurrent
from visualprof.views.measure.steps.windows import StepWindows

STEP_PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu", "other")
PART_CATEGORIES = {  # step parts except other: categories, on a device (True) or on threads
    "kernel": ((Category.KERNEL, True),),
    "memcpy": ((Category.MEMCPY, True),),
    "memset": ((Category.MEMSET, True),),
    "communication": ((Category.COMM, True), (Category.COMM, False)),
    "runtime": ((Category.RUNTIME, False), (Category.SYNC, False)),
    "dataloader": ((Category.DATALOADER, False),),
    "cpu": ((Category.OP, False), (Category.OPTIMIZER, False)),
}
# A trace with only these categories has durations, but no work inside them that could fill a step.
INSUFFICIENT_CATEGORIES = (Category.MEMORY, Category.STEP, Category.SESSION, Category.OTHER)


def has_step_work(trace: Trace) -> bool:
    """Whether the trace has any work that can fill a step."""
    return not trace.events.category_mask(*INSUFFICIENT_CATEGORIES).all()


def step_parts(trace: Trace, device: int | None = None, thread: int | None = None) -> dict[str, Ints]:
    """Return the disjoint intervals of each step part except `other` on one device.

    All time counts once, for the first part that covers it. The host, and copies of devices that do nothing else, count
    for every device. Of several devices, a host operator that only enqueues recorded kernels of a collective counts as
    an operator, any other as communication. Source: torch-tb-profiler's priorities.

    Args:
        trace: The trace.
        device: Number of the device (default: the main device of the process).
        thread: Track of a thread, to select the work of its steps (default: all work).
    """
    devices = busy_devices(trace)
    number = (main_work(trace).device if device is None else device) if len(devices) > 1 else None
    if thread is not None:
        return _step_parts(trace, number, thread)
    key = (step_parts, number)
    if key not in trace.derived:
        trace.derived[key] = _step_parts(trace, number, None)
    return trace.derived[key]


def _step_parts(trace: Trace, device: int | None, thread: int | None) -> dict[str, Ints]:
    """Return what `step_parts` returns; `None` selects all devices, or all threads."""
    events = trace.events
    chosen = (events.dur >= 0) & ~trace.projected_mask()
    if device is not None:
        others = [other for other in busy_devices(trace) if other != device]
        chosen &= ~np.isin(event_devices(trace), others)
    if thread is not None:
        chosen &= np.append(trace.steps.track, -1)[events.step] == thread
    rows, key = np.flatnonzero(chosen), _part_keys(trace)
    groups = group(key[rows])
    unions = unions_by_group(groups, events.ts[rows], events.end[rows])
    by_key = dict(zip(key[rows[groups.first]].tolist(), unions, strict=True))
    counted = np.zeros((0, 2), np.int64)
    exposed: dict[str, Ints] = {}
    for name, keys in PART_CATEGORIES.items():
        numbers = (2 * category + on_device for category, on_device in keys)
        part_spans = merge(*(by_key[number] for number in numbers if number in by_key))
        exposed[name] = subtract(part_spans, counted)
        counted = merge(counted, part_spans)
    return exposed


def is_in_part(trace: Trace, part: str) -> Mask:
    """Return, per event, whether it counts for a step part, unless another part covers it."""
    is_member = np.isin(_part_keys(trace), [2 * category + on_device for category, on_device in PART_CATEGORIES[part]])
    return is_member & (trace.events.dur >= 0) & ~trace.projected_mask()


@cached_on_trace
def _part_keys(trace: Trace) -> Bytes:
    """Return, per event, twice the category for which it counts, plus 1 on a device."""
    key: Bytes = trace.events.category * np.uint8(2) + trace.track_mask(TrackKind.STREAM)
    key[only_launches_communication(trace)] = Category.OP * 2
    return key


def step_breakdown(trace: Trace, windows: StepWindows, device: int | None = None) -> dict[str, Ints]:
    """Return the time of each step by part, in ns; the arguments are those of `step_parts`.

    Of steps that several threads run at the same time, each contains only the work of its own thread.
    """
    if not are_concurrent(trace):
        return breakdown(step_parts(trace, device), windows)
    part_ns = {name: np.zeros(len(windows), np.int64) for name in STEP_PARTS}
    threads = trace.steps.track[windows.index]
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        of_thread = breakdown(step_parts(trace, device, int(thread)), windows.select_rows(rows))
        for name, spent in of_thread.items():
            part_ns[name][rows] = spent
    return part_ns


def breakdown(parts: Mapping[str, Ints], windows: StepWindows) -> dict[str, Ints]:
    """Return the time of each step that the parts fill, in ns, and `other`, the remaining time."""
    part_ns = {name: covered_ns(spans, windows.start, windows.end) for name, spans in parts.items()}
    part_ns["other"] = (windows.end - windows.start) - sum(part_ns.values(), np.zeros(len(windows), np.int64))
    return part_ns
