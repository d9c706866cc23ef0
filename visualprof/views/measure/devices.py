"""How busy each device was, and how well its kernels filled it."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Device, Ints, Rows, Trace
from visualprof.views.answers.kinds import Duration, Identifier, Ratio, Size
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import covered, length
from visualprof.views.measure.launch import is_kernel
from visualprof.views.measure.steps import Windows, kernel_spans
from visualprof.views.measure.tensor_core import knows_tensor_cores, names_with, uses_tensor_core


class DeviceSummary(msgspec.Struct, frozen=True):
    """A device; what the file does not tell is None."""

    id: Identifier
    name: str
    memory_bytes: Size | None
    compute_capability: str | None
    utilization: Ratio | None
    sm_efficiency: Ratio | None
    occupancy: Ratio | None
    tensor_core_ratio: Ratio | None
    kernel_ns: Duration


def device_summary(trace: Trace, windows: Windows) -> list[DeviceSummary]:
    """One entry for each device that ran a kernel; ratios 0..1, None where unknown.

    utilization: time with at least one kernel, over the time from the first step's start to the last one's end.
    sm_efficiency: integral of min(sum of blocks per SM of the running kernels, 1) over the same time.
    occupancy: mean weighted by duration. tensor_core_ratio: time of kernels on tensor cores over that of all.
    Source: torch-tb-profiler, docs/views.md#devices.
    """
    if not len(windows):
        return []
    kernels = np.flatnonzero(is_kernel(trace) & (trace.events.dur > 0))
    members = group(np.array([t.device for t in trace.tracks] or [0])[trace.events.track[kernels]]).members()
    known = {d.id: d for d in trace.meta.devices}
    return [
        _one(trace, windows, kernels[of], spans, known.get(number, Device(number)))
        for of, (number, spans) in zip(members, kernel_spans(trace).items(), strict=True)
    ]


def _one(trace: Trace, windows: Windows, rows: Rows, spans: Ints, device: Device) -> DeviceSummary:
    start, end = windows.start[:1], windows.end[-1:]
    whole = int(end[0] - start[0])
    dur = trace.events.dur[rows]
    core = names_with(trace, trace.events.name[rows], uses_tensor_core)
    occupancy = trace.arg("occupancy", rows, np.nan).astype(np.float64)
    known = ~np.isnan(occupancy)
    return DeviceSummary(
        id=device.id,
        name=device.name,
        memory_bytes=device.memory_bytes or None,
        compute_capability=device.compute_capability or None,
        utilization=int(covered(spans, start, end)[0]) / whole if whole else None,
        sm_efficiency=_sm_efficiency(trace, rows, int(start[0]), int(end[0])),
        occupancy=float(np.average(occupancy[known], weights=dur[known])) if known.any() else None,
        tensor_core_ratio=float(dur[core].sum() / dur.sum()) if knows_tensor_cores(trace) else None,
        kernel_ns=length(spans),
    )


def _sm_efficiency(trace: Trace, rows: Rows, start: int, end: int) -> float | None:
    blocks = trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64)
    known = ~np.isnan(blocks)
    if not known.any() or end <= start:
        return None
    first = np.clip(trace.events.ts[rows][known], start, end)
    last = np.clip(trace.events.end[rows][known], start, end)
    times = np.concatenate((first, last))
    change = np.concatenate((blocks[known], -blocks[known]))
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])[:-1]
    return float((np.clip(level, 0.0, 1.0) * np.diff(times[order])).sum() / (end - start))
