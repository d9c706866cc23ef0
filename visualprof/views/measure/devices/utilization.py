"""Utilization of each device, and how well its kernels filled it."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Device, Ints, Rows, Trace
from visualprof.views.answers.kinds import Duration, Identifier, Ratio, Size
from visualprof.views.measure.columns.intervals import covered_ns, span_length
from visualprof.views.measure.names.tensor_core import knows_tensor_cores
from visualprof.views.measure.steps.windows import DeviceKernels, StepWindows, device_kernels


class DeviceSummary(msgspec.Struct, frozen=True):
    """A device; `None` where the file does not record a value."""

    id: Identifier
    name: str
    memory_bytes: Size | None
    compute_capability: str | None
    utilization: Ratio | None
    sm_efficiency: Ratio | None
    occupancy: Ratio | None
    tensor_core_ratio: Ratio | None
    tensor_core_unknown_ratio: Ratio | None
    kernel_ns: Duration


def device_summaries(trace: Trace, windows: StepWindows) -> list[DeviceSummary]:
    """Return one entry per device that ran a kernel; ratios are 0 to 1, `None` where unknown.

    - utilization: time with at least one kernel, divided by the time from the start of the first
      step to the end of the last.
    - sm_efficiency: integral of min(sum of the blocks per SM of running kernels, 1), divided by the
      same time.
    - occupancy: mean over kernels, weighted by duration.
    - tensor_core_ratio: time of kernels on tensor cores, divided by the time of all kernels whose name
      says whether they use them.
    - tensor_core_unknown_ratio: time of the other kernels, divided by the time of all kernels.

    Source: torch-tb-profiler, docs/views/overview.md#devices.
    """
    if not len(windows):
        return []
    recorded = {device.id: device for device in trace.meta.devices}
    by_device = device_kernels(trace).items()
    return [_summarize(trace, windows, ran, recorded.get(device_id, Device(device_id))) for device_id, ran in by_device]


def compute_capability(device: DeviceSummary) -> float:
    """Return the compute capability as a number; 0 if it is unknown or not a number."""
    try:
        return float(str(device.compute_capability))
    except ValueError:
        return 0.0


def _summarize(trace: Trace, windows: StepWindows, ran: DeviceKernels, device: Device) -> DeviceSummary:
    """Return the entry of one device."""
    start, end, rows = windows.start[:1], windows.end[-1:], ran.rows
    total_ns = int(end[0] - start[0])
    dur = trace.events.dur[rows]
    occupancy = trace.arg("occupancy", rows, np.nan).astype(np.float64)
    is_known = ~np.isnan(occupancy)
    tensor_core_ratio, unknown_ratio = _tensor_core_ratios(dur, ran) if knows_tensor_cores(trace) else (None, None)
    return DeviceSummary(
        id=device.id,
        name=device.name,
        memory_bytes=device.memory_bytes or None,
        compute_capability=device.compute_capability or None,
        utilization=int(covered_ns(ran.spans, start, end)[0]) / total_ns if total_ns else None,
        sm_efficiency=_sm_efficiency(trace, rows, int(start[0]), int(end[0])),
        occupancy=float(np.average(occupancy[is_known], weights=dur[is_known])) if is_known.any() else None,
        tensor_core_ratio=tensor_core_ratio,
        tensor_core_unknown_ratio=unknown_ratio,
        kernel_ns=span_length(ran.spans),
    )


def _tensor_core_ratios(dur: Ints, ran: DeviceKernels) -> tuple[float | None, float]:
    """Return the share of tensor cores in the time of known kernels, `None` without any, and the unknown share."""
    total, unknown = int(dur.sum()), int(dur[ran.is_unknown].sum())
    used = int(dur[ran.uses_tensor_core].sum())
    return used / (total - unknown) if total > unknown else None, unknown / total


def _sm_efficiency(trace: Trace, rows: Rows, start: int, end: int) -> float | None:
    """Return the SM efficiency between two times; `None` if no kernel records its blocks."""
    blocks = trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64)
    is_known = ~np.isnan(blocks)
    if not is_known.any() or end <= start:
        return None
    first = np.clip(trace.events.ts[rows][is_known], start, end)
    last = np.clip(trace.events.end[rows][is_known], start, end)
    times = np.concatenate((first, last))
    change = np.concatenate((blocks[is_known], -blocks[is_known]))
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])[:-1]
    return float((np.clip(level, 0.0, 1.0) * np.diff(times[order])).sum() / (end - start))
