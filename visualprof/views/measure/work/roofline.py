"""Share of the device's peak that operators achieve: rates, intensity, and the limiting resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from visualprof.peaks import Peak, cube_core_peak, find_peak
from visualprof.reader.trace import Category, Device, Floats, Ids, Ints, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_device_work, is_operator, launches
from visualprof.views.measure.names.tensor_core import match_names, uses_tensor_core
from visualprof.views.measure.work.call_work import MODEL_FAMILIES, UNKNOWN_WORK, CallWork, Family
from visualprof.views.measure.work.operators import operator_work, recorded_operators
from visualprof.views.measure.work.other_operators import (
    computes_nothing,
    has_no_product,
    is_autograd,
    is_helper,
    may_dispatch,
)

Bound = Literal["compute", "memory", "latency", "unknown"]
MIN_KERNEL_NS = 2_000  # duration of an empty kernel on devices of 2017 to 2024
BUS_COPIES = ("Memcpy HtoD", "Memcpy DtoH", "CopyHostToDevice", "CopyDeviceToHost")


class OperatorCalls(msgspec.Struct, frozen=True):
    """Calls of operators with their device work, all (n,).

    Attributes:
        rows: Rows of events.
        work_ids: Index of each in the operators' work, -1 for unknown work.
        ns: Time of the device work, or host time if nothing ran on a device.
        kernel_count: Pieces of device work.
        tensor_core_ns: Time of those on tensor cores.
        kernel: String id of the only piece, 0 for none or several.
    """

    rows: Ids
    work_ids: Ints
    ns: Ints
    kernel_count: Ints
    tensor_core_ns: Ints
    kernel: Ints


class RooflineGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Calls grouped by operator, shapes and element type, all (g,); NaN and "" are unknown.

    Attributes:
        groups: Groups of the calls.
        family: Family of the operator.
        precision: Precision of the operations.
        ns: Time.
        kernel_count: Pieces of device work.
        kernel: String id of the kernel if every call has exactly one and it is the same, otherwise
            0.
        flops: Operations.
        bytes: Bytes.
        compute_ns: Time of all calls at the peak rate of the precision.
        ideal_ns: Time of all calls at the roof of the device.
        bound: The limiting resource.
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
    """Return every call that counts, and calls without a formula: those that launched work if devices did any.

    If nothing ran on a device, calls without a formula have their own time, without operators inside.
    """
    operators, launched, events = operator_work(trace), launches(trace), trace.events
    if "flops" in trace.args or not is_device_work(trace).any():  # the operators themselves ran on the device
        return _calls_without_launches(trace)
    enclosing = nearest_ancestor(events.parent, operators.is_counted, launched.op)
    owner = np.where(enclosing >= 0, enclosing, launched.op)
    with_operator = np.flatnonzero((owner >= 0) & (events.category[launched.work] != Category.COMM))
    work_rows, owner = launched.work[with_operator], owner[with_operator]
    groups = group(owner)
    rows = owner[groups.first].astype(np.int32)
    work_index = np.full(len(events), -1)
    work_index[operators.rows] = np.arange(len(operators.rows))
    dur = events.dur[work_rows]
    bus_copies = groups.sum(_is_bus_copy(trace, work_rows))
    is_tensor_core = match_names(trace, events.name[work_rows], uses_tensor_core)
    work_ids = np.where(bus_copies > 0, -1, work_index[rows])
    single_kernel = np.where(groups.count == 1, events.name[work_rows][groups.first], 0)
    return OperatorCalls(rows, work_ids, groups.sum(dur), groups.count, groups.sum(dur * is_tensor_core), single_kernel)


def _calls_without_launches(trace: Trace) -> OperatorCalls:
    """Return operators that did the work themselves, those without a formula after those with one."""
    operators, events = operator_work(trace), trace.events
    unknown_rows, unknown_ns = _unknown_operators(trace)
    rows = np.concatenate((operators.rows, unknown_rows)).astype(np.int32)
    work_ids = np.concatenate((np.arange(len(operators.rows)), np.full(len(unknown_rows), -1)))
    ns = np.concatenate((np.maximum(events.dur[operators.rows], 0), unknown_ns))
    zeros = np.zeros(len(rows), np.int64)
    return OperatorCalls(rows, work_ids, ns, zeros, zeros, zeros)


def _unknown_operators(trace: Trace) -> tuple[Ids, Ints]:
    """Return the operators of unknown work outside of those that count, and their time without operators inside.

    Operators that only make views or tensors are left out, and those of torch itself that call others.
    """
    operators, events = operator_work(trace), trace.events
    rows = recorded_operators(trace) if "flops" in trace.args else np.flatnonzero(is_operator(trace)).astype(np.int32)
    is_candidate = np.zeros(len(events), bool)
    is_candidate[rows] = True
    caller = nearest_ancestor(events.parent, is_candidate, events.parent[rows])
    has_caller = caller >= 0
    inner_ns = np.bincount(caller[has_caller], np.maximum(events.dur[rows[has_caller]], 0), len(events))
    calls_any, calls_others = np.zeros((2, len(events)), bool)
    calls_any[caller[has_caller]] = True
    calls_others[caller[has_caller & ~match_names(trace, events.name[rows], is_helper)]] = True
    exclusive_ns = np.maximum(events.dur[rows] - inner_ns[rows].astype(np.int64), 0)
    is_dispatcher = calls_others[rows] & match_names(trace, events.name[rows], may_dispatch)
    is_dispatcher |= calls_any[rows] & match_names(trace, events.name[rows], is_autograd)
    is_unknown = nearest_ancestor(events.parent, operators.is_counted, rows) < 0
    is_unknown &= (
        (exclusive_ns > 0)
        & (events.category[rows] != Category.COMM)
        & ~is_dispatcher
        & ~match_names(trace, events.name[rows], computes_nothing)
    )
    return rows[is_unknown], exclusive_ns[is_unknown]


def misses_work(trace: Trace, calls: OperatorCalls, is_selected: Mask) -> bool:
    """Return whether work that may be a product is unknown among some events, so that sums are lower bounds."""
    rows = calls.rows[(calls.work_ids < 0) & is_selected[calls.rows]]
    kind = trace.arg("type", rows, 0).astype(np.int64)  # of nodes of a model, which have names of their own
    name = np.where(kind > 0, kind, trace.events.name[rows])
    launched = launches(trace)
    outside = launched.work[launched.op < 0] if "flops" not in trace.args else launched.work[:0]
    outside = outside[is_selected[outside] & (trace.events.category[outside] == Category.KERNEL)]
    name = np.concatenate((name, trace.events.name[outside]))
    return not match_names(trace, name, has_no_product).all()


def known_work_ratio(trace: Trace, calls: OperatorCalls, is_selected: Mask) -> float | None:
    """Return the time of calls with known work divided by the time of all device work, among some events.

    `None` without any.

    Collectives and copies over the bus are excluded. If nothing ran on a device, the time of all
    outermost operators is used.
    """
    events = trace.events
    if "flops" in trace.args:
        rows = recorded_operators(trace)
    elif is_device_work(trace).any():
        rows = np.flatnonzero(is_device_work(trace) & (events.category != Category.COMM))
        rows = rows[~_is_bus_copy(trace, rows)]
    else:
        rows = np.flatnonzero(is_operator(trace))
        rows = rows[nearest_ancestor(events.parent, is_operator(trace), events.parent[rows]) < 0]
    rows = rows[is_selected[rows]]
    total_ns = int(events.dur[rows].sum())
    return int(calls.ns[(calls.work_ids >= 0) & is_selected[calls.rows]].sum()) / total_ns if total_ns else None


def _is_bus_copy(trace: Trace, rows: Rows) -> Mask:
    """Return, per row, whether it is a copy over the bus."""
    return match_names(trace, trace.events.name[rows], lambda name: name.startswith(BUS_COPIES))


def main_device(trace: Trace) -> Device | None:
    """Return the device on which most of the trace's work ran, as the file describes it.

    ROCm numbers processors before devices. If all devices have the same name, one of them is
    returned.
    """
    rows, devices = np.flatnonzero(is_device_work(trace)), trace.meta.devices
    device_ids = np.array([track.device for track in trace.tracks] or [-1])[trace.events.track[rows]]
    if not len(rows) or device_ids.max() < 0 or not devices:
        return None
    groups = group(device_ids)  # device ids may be arbitrarily large
    main_id = int(device_ids[groups.first[groups.sum(trace.events.dur[rows]).argmax()]])
    any_device = devices[0] if len({device.name for device in devices}) == 1 else None
    return next((device for device in devices if device.id == main_id), any_device)


def device_peak(trace: Trace, flops: float = 0.0, bandwidth: float = 0.0) -> Peak | None:
    """Return the peak of the trace's device, by its name, cores and clock, or as measured; `None` if unknown.

    Args:
        trace: The trace.
        flops: Measured FLO/s of matrix products in fp32, 0 for none.
        bandwidth: Measured memory bandwidth in bytes/s, 0 for unknown; used with `flops` only.
    """
    device = main_device(trace)
    if flops:
        return Peak({"fp32": flops}, flops, bandwidth or None, 0, 0, "measured")
    if device is None:
        return None
    if trace.meta.device_type == "npu":
        return cube_core_peak(device.multiprocessors, device.clock_mhz)
    return find_peak(device.name, device.memory_bytes, device.multiprocessors)


def ideal_durations(trace: Trace, works: Sequence[CallWork], uses_tensor_core: Sequence[bool]) -> Floats:
    """Return the duration of calls at the roof of the trace's device, (n,) ns.

    NaN where the work or the roof is unknown.

    Args:
        trace: The trace.
        works: Work of each call.
        uses_tensor_core: Whether each call uses tensor cores.
    """
    precision = [
        _precision(work.type, on_tensor_core) for work, on_tensor_core in zip(works, uses_tensor_core, strict=True)
    ]
    flops, moved_bytes = (np.array([getattr(work, key) for work in works], np.float64) for key in ("flops", "bytes"))
    return np.maximum(*_ideal_times(device_peak(trace), [work.family for work in works], precision, flops, moved_bytes))


def roofline_groups(trace: Trace, calls: OperatorCalls, is_selected: Mask, peak: Peak | None) -> RooflineGroups:
    """Return some calls by operator and shapes, with what they achieve of a roof.

    Source: Williams, Waterman, Patterson, Roofline, CACM 2009; docs/views/roofline.md.
    """
    operators = operator_work(trace)
    rows, work_ids = calls.rows[is_selected], calls.work_ids[is_selected]
    distinct_ids = np.append(operators.work_ids, -1)[work_ids]
    shapes = trace.arg("input_shapes", rows, 0).astype(np.int64)
    works = [*operators.works, UNKNOWN_WORK]  # the last one is for -1
    kinds: list[tuple[Family, str]] = [(work.family, work.type) for work in works]
    kinds = list(dict.fromkeys(kinds))
    kind = np.array([kinds.index((work.family, work.type)) for work in works], np.int64)[distinct_ids]
    groups = group(trace.events.name[rows], shapes, kind)
    ns, kernels = groups.sum(calls.ns[is_selected]), groups.sum(calls.kernel_count[is_selected])
    group_kinds: list[int] = kind[groups.first].tolist()
    uses_tensor_core: list[bool] = (2 * groups.sum(calls.tensor_core_ns[is_selected]) > ns).tolist()
    precision = [
        _precision(kinds[kind_index][1], on_tensor_core)
        for kind_index, on_tensor_core in zip(group_kinds, uses_tensor_core, strict=True)
    ]
    flops = _group_sums(groups, np.array([work.flops for work in works], np.float64)[distinct_ids])
    moved_bytes = _group_sums(groups, np.array([work.bytes for work in works], np.float64)[distinct_ids])
    family: list[Family] = [kinds[kind_index][0] for kind_index in group_kinds]
    compute, memory = _ideal_times(peak, family, precision, flops, moved_bytes)
    bound = _bounds(compute, memory, ns, kernels)
    smallest_id, largest_id = groups.min(calls.kernel[is_selected]), groups.max(calls.kernel[is_selected])
    kernel = np.where(smallest_id == largest_id, largest_id, 0)
    return RooflineGroups(
        groups=groups,
        family=family,
        precision=precision,
        ns=ns,
        kernel_count=kernels,
        kernel=kernel,
        flops=flops,
        bytes=moved_bytes,
        compute_ns=compute,
        ideal_ns=np.maximum(compute, memory),
        bound=bound,
    )


def _group_sums(groups: Groups, values: Floats) -> Floats:
    """Return the sum of a column (n,) per group; NaN where one value is unknown."""
    return np.bincount(groups.ids, values, len(groups.first)).astype(np.float64)


def _precision(type: str, on_tensor_core: bool) -> str:
    """Return the precision of a product: fp32 on tensor cores is tf32."""
    return "tf32" if on_tensor_core and type == "fp32" else type


def _ideal_times(
    peak: Peak | None, family: list[Family], precision: list[str], flops: Floats, moved_bytes: Floats
) -> tuple[Floats, Floats]:
    """Return the minimum time of the operations and of the bytes in ns; NaN where the device's roof is unknown."""
    if peak is None:
        return np.full(len(flops), np.nan), np.full(len(flops), np.nan)
    peak_rates = [
        peak.flops.get(precision_name, np.nan) if family_name in MODEL_FAMILIES else peak.other
        for family_name, precision_name in zip(family, precision, strict=True)
    ]
    return flops / np.array(peak_rates, np.float64) * 1e9, moved_bytes / (peak.bandwidth or np.nan) * 1e9


def _bounds(compute: Floats, memory: Floats, ns: Ints, kernels: Ints) -> list[Bound]:
    """Return what limits each group.

    It is latency if its ideal time is shorter than any kernels take, and it takes more than twice
    the ideal time.
    """
    ideal = np.maximum(compute, memory)
    is_latency_bound = (ideal < MIN_KERNEL_NS * kernels) & (2 * ideal < ns)
    names = np.where(is_latency_bound, "latency", np.where(compute > memory, "compute", "memory"))
    bounds: list[Bound] = np.where(np.isnan(ideal), "unknown", names).tolist()
    return bounds
