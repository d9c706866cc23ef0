"""How busy each device was, and how well its kernels filled it."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Device, Rows, Trace
from visualprof.views.answers.kinds import Duration, Identifier, Ratio, Size
from visualprof.views.measure.intervals import covered_ns, span_length
from visualprof.views.measure.steps import DeviceKernels, StepWindows, device_kernels
from visualprof.views.measure.tensor_core import knows_tensor_cores


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


def device_summaries(trace: Trace, windows: StepWindows) -> list[DeviceSummary]:
    """One entry for each device that ran a kernel; ratios 0..1, None where unknown.

    utilization: time with at least one kernel, over the time from the first step's start to the last one's end.
    sm_efficiency: integral of min(sum of blocks per SM of the running kernels, 1) over the same time.
    occupancy: mean weighted by duration. tensor_core_ratio: time of kernels on tensor cores over that of all.
    Source: torch-tb-profiler, docs/views.md#devices.
    """
    if not len(windows):
        return []
    known = {d.id: d for d in trace.meta.devices}
    found = device_kernels(trace).items()
    return [_one(trace, windows, mine, known.get(number, Device(number))) for number, mine in found]


def compute_capability(device: DeviceSummary) -> float:
    """Compute capability as a number, 0 where it is not known or none."""
    try:
        return float(str(device.compute_capability))
    except ValueError:
        return 0.0


def _one(trace: Trace, windows: StepWindows, mine: DeviceKernels, device: Device) -> DeviceSummary:
    start, end, rows = windows.start[:1], windows.end[-1:], mine.rows
    whole = int(end[0] - start[0])
    dur = trace.events.dur[rows]
    occupancy = trace.arg("occupancy", rows, np.nan).astype(np.float64)
    known = ~np.isnan(occupancy)
    return DeviceSummary(
        id=device.id,
        name=device.name,
        memory_bytes=device.memory_bytes or None,
        compute_capability=device.compute_capability or None,
        utilization=int(covered_ns(mine.spans, start, end)[0]) / whole if whole else None,
        sm_efficiency=_sm_efficiency(trace, rows, int(start[0]), int(end[0])),
        occupancy=float(np.average(occupancy[known], weights=dur[known])) if known.any() else None,
        tensor_core_ratio=float(dur[mine.uses_tensor_core].sum() / dur.sum()) if knows_tensor_cores(trace) else None,
        kernel_ns=span_length(mine.spans),
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
