"""The effect of 16-bit types on matrix products and convolutions in fp32 that do not run on tensor cores."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from visualprof.peaks import Peak
from visualprof.reader.trace import Category, Floats, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.findings.detection import RuleContext, longest_event, speedup_change, time_by_name
from visualprof.views.measure.findings.levers import Detections, Estimate, detected_estimate
from visualprof.views.measure.launches.launch import launches
from visualprof.views.measure.names.tensor_core import knows_tensor_cores, tensor_core_masks
from visualprof.views.measure.replay.change import parse_changes
from visualprof.views.measure.work.call_work import MODEL_FAMILIES
from visualprof.views.measure.work.operators import operator_work
from visualprof.views.measure.work.roofline import device_peak
from visualprof.views.rules.tensor_cores_unused import half_precision_code

HALF_FACTOR = 0.5  # 16 instead of 32 bits are half the bytes, and tensor cores at least double the rate
HALF_TYPES = ("bf16", "fp16")


def half_precision(context: RuleContext, detections: Detections) -> Estimate | None:
    """Return the effect of 16-bit types: half the time for products in fp32.

    The bound is the roof of the device for these, and half the time for all other kernels.
    """
    trace, detection = context.trace, detections.get("tensor_cores_unused")
    peak = device_peak(trace) if knows_tensor_cores(trace) else None
    rate = _half_rate(peak)
    kernels, least_ns = _full_precision_kernels(trace, peak, rate)
    if detection is not None:
        estimate = detected_estimate(detection)
    elif len(kernels) and rate:
        change = speedup_change(time_by_name(trace, kernels), HALF_FACTOR)
        time_ns = context.covered_ns(context.event_spans(np.sort(kernels)))
        estimate = Estimate(
            change=change,
            most_ns=time_ns * (1 - HALF_FACTOR),
            link="/operator?sort=device_self_ns",
            extent=longest_event(trace, kernels),
            code=half_precision_code(context),
        )
    else:
        return None
    names = [change.name for change in parse_changes(estimate.change)]
    return replace(estimate, bound=_roof_change(trace, names, kernels, least_ns) if len(kernels) and rate else "")


def _half_rate(peak: Peak | None) -> float:
    """Return the rate of products in 16 bits in FLO/s; 0 if unknown or less than twice that of fp32."""
    if peak is None:
        return 0.0
    rate = max((peak.flops.get(name, 0.0) for name in HALF_TYPES), default=0.0)
    return rate if rate * HALF_FACTOR >= peak.flops.get("fp32", np.inf) else 0.0


def _full_precision_kernels(trace: Trace, peak: Peak | None, rate: float) -> tuple[Rows, Floats]:
    """Return the kernels of products in fp32 that do not run on tensor cores, and their least time in 16 bits, in ns.

    The least time of a call is divided among its kernels by their time.
    """
    operators, joined, events = operator_work(trace), launches(trace), trace.events
    call_of_event = np.full(len(events) + 1, -1)
    call_of_event[operators.rows] = np.arange(len(operators.rows))
    call = call_of_event[nearest_ancestor(events.parent, operators.is_counted, joined.op)]
    is_full = np.array([work.type == "fp32" and work.family in MODEL_FAMILIES for work in operators.works], bool)
    chosen = (call >= 0) & (events.category[joined.work] == Category.KERNEL)
    chosen[chosen] = is_full[operators.work_ids[call[chosen]]]
    used, unknown = tensor_core_masks(trace, events.name[joined.work])
    chosen &= ~used & ~unknown
    rows, call = joined.work[chosen], call[chosen]
    dur = np.maximum(events.dur[rows], 0).astype(np.float64)
    call_ns = np.bincount(call, dur, len(operators.rows))
    bandwidth = (peak.bandwidth if peak else None) or np.inf
    flop_ns = operators.per_call("flops") / (rate or np.inf) * 1e9
    byte_ns = operators.per_call("bytes") * HALF_FACTOR / bandwidth * 1e9
    least = np.nan_to_num(np.fmax(flop_ns, byte_ns))
    return rows, dur * least[call] / np.maximum(call_ns[call], 1)


def _roof_change(trace: Trace, names: list[str], kernels: Rows, least_ns: Floats) -> str:
    """Return the change to the roof of the device for kernels of some names, and to half the time for all others."""
    name_ids = trace.events.name[kernels]
    least = np.bincount(name_ids, least_ns, len(trace.strings))
    total = np.bincount(name_ids, np.maximum(trace.events.dur[kernels], 0), len(trace.strings))
    ids = {trace.strings[int(i)]: int(i) for i in np.flatnonzero(total)}
    factors = {name: float(least[ids[name]] / total[ids[name]]) for name in names if name in ids}
    further = [f"kernel[{name}]*{factor / HALF_FACTOR:.3g}" for name, factor in factors.items() if factor < HALF_FACTOR]
    return "; ".join([f"kernel*{HALF_FACTOR}", *further])
