"""What operators reach of what their device can do: rates, intensity, and what bounds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from visualprof.peaks import Peak, find_peak
from visualprof.reader.trace import Category, Device, Floats, Ids, Ints, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.groups import Groups, group
from visualprof.views.measure.launch import is_device_work, is_operator, launches
from visualprof.views.measure.tensor_core import match_names, uses_tensor_core
from visualprof.views.measure.trace_cache import cached_on_trace
from visualprof.views.measure.work.formulas import MODEL_FAMILIES, UNKNOWN_WORK, CallWork, Family
from visualprof.views.measure.work.operators import operator_work, recorded_operators

Bound = Literal["compute", "memory", "latency", "unknown"]
MIN_KERNEL_NS = 2_000  # a kernel of no work takes about so long on devices of 2017 to 2024
BUS_COPIES = ("Memcpy HtoD", "Memcpy DtoH", "CopyHostToDevice", "CopyDeviceToHost")


class OperatorCalls(msgspec.Struct, frozen=True):
    """Calls of operators with their device work, (n,) each.

    rows: events. work: place of each in the operators' work, -1 of those whose work is unknown. ns: of their device
    work, or on the host where nothing ran on a device. kernels: pieces of it. core_ns: of those on tensor cores.
    kernel: string id of the only piece, 0 of none or several.
    """

    rows: Ids
    work_ids: Ints
    ns: Ints
    kernel_count: Ints
    tensor_core_ns: Ints
    kernel: Ints


class RooflineGroups(msgspec.Struct, frozen=True):
    """Calls by operator, shapes and what they work on, (g,) each; NaN and "" are unknown.

    kernel: string id of the kernel, where each call has one and it is the same, else 0. compute_ns, ideal_ns: of all
    calls together, at the peak of their type, and at the roof of the device.
    """

    groups: Groups
    family: list[Family]
    precision: list[str]
    ns: Ints
    kernel_count: Ints
    kernel: Ints
    flops: Floats
    bytes: Floats
    compute_ns: Floats
    ideal_ns: Floats
    bound: list[Bound]


@cached_on_trace
def operator_calls(trace: Trace) -> OperatorCalls:
    """Every call that counts, and those without a formula that launched work; on devices where any work was done."""
    counted, joined, events = operator_work(trace), launches(trace), trace.events
    if "flops" in trace.args or not is_device_work(trace).any():  # operators that are themselves what ran
        nothing = np.zeros(len(counted.rows), np.int64)
        own = np.maximum(events.dur[counted.rows], 0)
        return OperatorCalls(counted.rows, np.arange(len(own)), own, nothing, nothing, nothing)
    outer = nearest_ancestor(events.parent, counted.is_counted, joined.op)
    owner = np.where(outer >= 0, outer, joined.op)
    mine = np.flatnonzero((owner >= 0) & (events.category[joined.work] != Category.COMM))
    at, owner = joined.work[mine], owner[mine]
    groups = group(owner)
    rows = owner[groups.first].astype(np.int32)
    place = np.full(len(events), -1)
    place[counted.rows] = np.arange(len(counted.rows))
    dur = events.dur[at]
    over_bus = groups.sum(_over_bus(trace, at))
    core = match_names(trace, events.name[at], uses_tensor_core)
    work = np.where(over_bus > 0, -1, place[rows])
    only = np.where(groups.count == 1, events.name[at][groups.first], 0)
    return OperatorCalls(rows, work, groups.sum(dur), groups.count, groups.sum(dur * core), only)


def known_work_ratio(trace: Trace, calls: OperatorCalls, inside: Mask) -> float | None:
    """Of some events: the time of those calls whose work is known over that of all device work, None of none.

    Collectives and copies over the bus aside. Where nothing ran on a device, over that of the outermost operators.
    """
    events = trace.events
    if "flops" in trace.args:
        rows = recorded_operators(trace)
    elif is_device_work(trace).any():
        rows = np.flatnonzero(is_device_work(trace) & (events.category != Category.COMM))
        rows = rows[~_over_bus(trace, rows)]
    else:
        rows = np.flatnonzero(is_operator(trace))
        rows = rows[nearest_ancestor(events.parent, is_operator(trace), events.parent[rows]) < 0]
    rows = rows[inside[rows]]
    whole = int(events.dur[rows].sum())
    return int(calls.ns[(calls.work_ids >= 0) & inside[calls.rows]].sum()) / whole if whole else None


def _over_bus(trace: Trace, rows: Rows) -> Mask:
    return match_names(trace, trace.events.name[rows], lambda name: name.startswith(BUS_COPIES))


def main_device(trace: Trace) -> Device | None:
    """The device on which most of the trace's work ran, as the file describes it.

    ROCm numbers the processors before the devices; where all devices are of one name, it is one of these.
    """
    rows, described = np.flatnonzero(is_device_work(trace)), trace.meta.devices
    used = np.array([t.device for t in trace.tracks] or [-1])[trace.events.track[rows]]
    if not len(rows) or used.max() < 0 or not described:
        return None
    groups = group(used)  # an identifier may be of any size
    most = int(used[groups.first[groups.sum(trace.events.dur[rows]).argmax()]])
    alike = described[0] if len({device.name for device in described}) == 1 else None
    return next((device for device in described if device.id == most), alike)


def device_peak(trace: Trace, flops: float = 0.0, bandwidth: float = 0.0) -> Peak | None:
    """What the trace's device can do, None unknown: by its name, or as it was measured.

    Args: flops: measured FLO/s of products in fp32, 0 for none; then bandwidth: bytes/s of the memory, 0 unknown.
    """
    device = main_device(trace)
    if flops:
        return Peak({"fp32": flops}, flops, bandwidth or None, 0, 0, "measured")
    return find_peak(device.name, device.memory_bytes, device.multiprocessors) if device else None


def ideal_durations(trace: Trace, works: Sequence[CallWork], core: Sequence[bool]) -> Floats:
    """How many ns a call takes at the roof of the trace's device, (n,); NaN where its work or the roof is unknown.

    Args: works: of each call. core: does it use tensor cores?
    """
    precision = [_precision(work.type, on) for work, on in zip(works, core, strict=True)]
    flops, moved = (np.array([getattr(work, key) for work in works], np.float64) for key in ("flops", "bytes"))
    return np.maximum(*_ideal(device_peak(trace), [work.family for work in works], precision, flops, moved))


def roofline_groups(trace: Trace, calls: OperatorCalls, keep: Mask, peak: Peak | None) -> RooflineGroups:
    """Some calls by operator and shapes, with what they reach of a roof.

    Source: Williams, Waterman, Patterson, Roofline, CACM 2009; docs/views.md#roofline.
    """
    counted = operator_work(trace)
    rows, place = calls.rows[keep], calls.work_ids[keep]
    known = np.append(counted.work_ids, -1)[place]
    shapes = trace.arg("input_shapes", rows, 0).astype(np.int64)
    every = [*counted.works, UNKNOWN_WORK]  # which -1 is the place of
    kinds: list[tuple[Family, str]] = [(work.family, work.type) for work in every]
    kinds = list(dict.fromkeys(kinds))
    kind = np.array([kinds.index((work.family, work.type)) for work in every], np.int64)[known]
    groups = group(trace.events.name[rows], shapes, kind)
    ns, kernels = groups.sum(calls.ns[keep]), groups.sum(calls.kernel_count[keep])
    of_group: list[int] = kind[groups.first].tolist()
    core: list[bool] = (2 * groups.sum(calls.tensor_core_ns[keep]) > ns).tolist()
    precision = [_precision(kinds[i][1], on) for i, on in zip(of_group, core, strict=True)]
    flops = _summed(groups, np.array([work.flops for work in every], np.float64)[known])
    moved = _summed(groups, np.array([work.bytes for work in every], np.float64)[known])
    family: list[Family] = [kinds[i][0] for i in of_group]
    compute, memory = _ideal(peak, family, precision, flops, moved)
    bound = _bound(compute, memory, ns, kernels)
    least, most = groups.min(calls.kernel[keep]), groups.max(calls.kernel[keep])
    kernel = np.where(least == most, most, 0)
    return RooflineGroups(
        groups, family, precision, ns, kernels, kernel, flops, moved, compute, np.maximum(compute, memory), bound
    )


def _summed(groups: Groups, values: Floats) -> Floats:
    """Sum of a column (n,) in each group; NaN where one value is unknown."""
    return np.bincount(groups.ids, values, len(groups.first)).astype(np.float64)


def _precision(type: str, core: bool) -> str:
    """The type that a product works in: fp32 on tensor cores is tf32."""
    return "tf32" if core and type == "fp32" else type


def _ideal(
    peak: Peak | None, family: list[Family], precision: list[str], flops: Floats, moved: Floats
) -> tuple[Floats, Floats]:
    """How many ns the operations and the bytes take at least; NaN where the device's roof is unknown."""
    if peak is None:
        return np.full(len(flops), np.nan), np.full(len(flops), np.nan)
    most = [
        peak.flops.get(p, np.nan) if f in MODEL_FAMILIES else peak.other for f, p in zip(family, precision, strict=True)
    ]
    return flops / np.array(most, np.float64) * 1e9, moved / (peak.bandwidth or np.nan) * 1e9


def _bound(compute: Floats, memory: Floats, ns: Ints, kernels: Ints) -> list[Bound]:
    """What bounds each: latency, if at the roof its kernels were shorter than any is and it takes twice as long."""
    ideal = np.maximum(compute, memory)
    small = (ideal < MIN_KERNEL_NS * kernels) & (2 * ideal < ns)
    names = np.where(small, "latency", np.where(compute > memory, "compute", "memory"))
    bounds: list[Bound] = np.where(np.isnan(ideal), "unknown", names).tolist()
    return bounds
