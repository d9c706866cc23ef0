"""The effect of levers that no rule for findings describes, or not completely. Factors come from the recording."""

from __future__ import annotations

from msgspec.structs import replace

from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.columns.intervals import span_length, union
from visualprof.views.measure.findings.detection import RuleContext, longest_event
from visualprof.views.measure.findings.levers import Detections, Estimate, detected_estimate
from visualprof.views.measure.findings.optimizers import unfused_optimizer
from visualprof.views.measure.launches.launch import is_operator
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.stages import find_stages, unknown_stages

MIN_LAUNCHES = 100  # as in the rule many_small_kernels


def worker_processes(_: RuleContext, detections: Detections) -> Estimate | None:
    """Return the effect of loading data in worker processes, unless they do so already."""
    detection = detections.get("dataloader_bound")
    return None if detection is None or detection.variant else detected_estimate(detection)


def faster_workers(_: RuleContext, detections: Detections) -> Estimate | None:
    """Return the effect of worker processes that keep up with the step."""
    detection = detections.get("dataloader_bound")
    return detected_estimate(detection) if detection is not None and detection.variant else None


def without_launches(context: RuleContext, detections: Detections) -> Estimate | None:
    """Return the effect of launches that take no time, as in a captured graph. The bound is a host that takes none."""
    calls = distinct(context.launches.call[context.launches.call >= 0])
    is_host_bound = "host_bound" in detections and len(calls) > 0
    if not context.has_gpu_kernels() or (len(calls) < MIN_LAUNCHES and not is_host_bound):
        return None
    detected = [detections[rule] for rule in ("many_small_kernels", "host_bound") if rule in detections]
    return Estimate(
        change="launch=0",
        bound="host=0",
        most_ns=detected[-1].max_gain_ns if detected else None,
        link="/idle",
        extent=detected[0].extent if detected else None,
    )


def fused_optimizer(context: RuleContext, _: Detections) -> Estimate | None:
    """Return the effect of one operator per optimizer step instead of many: the longest remains.

    The kernels keep their time, although a fused one reads and writes less.
    """
    optimizer = unfused_optimizer(context.trace) if context.has_gpu_kernels() else None
    if optimizer is None:
        return None
    events, operators, ranges = context.trace.events, optimizer.operators, optimizer.ranges
    spans, range_ns = union(events.ts[operators], events.end[operators]), int(events.dur[ranges].sum())
    saved_ns = span_length(spans) - len(ranges) * int(events.dur[operators].max())
    if saved_ns <= 0:
        return None
    return Estimate(
        subject=optimizer.name,
        code={"pytorch": optimizer.fused_code},
        change="; ".join(f"host[{name}]*{1 - saved_ns / range_ns:.3g}" for name in optimizer.range_names),
        most_ns=context.covered_ns(spans),
        link="/operator",
        extent=longest_event(context.trace, ranges),
    )


def hidden_communication(_: RuleContext, detections: Detections) -> Estimate | None:
    """Return the bound of overlapping communication with computation: collectives take no time."""
    detection = detections.get("communication_bound")
    if detection is None:
        return None
    estimate = detected_estimate(detection)
    return replace(estimate, change="", bound=estimate.change)


def removed_host_work(context: RuleContext, detections: Detections) -> Estimate | None:
    """Return the effect of a host without the function that takes most of its time, if one does.

    Operators are the model itself and are not removed.
    """
    detection = detections.get("host_bound") or detections.get("outside_operators")
    function = str(detection.evidence.get("function", "")) if detection else ""
    if detection is None or not detection.change:
        return None
    operators = context.trace.events.name[is_operator(context.trace)]
    is_model = match_names(context.trace, operators, lambda name: name == function).any()
    return None if is_model else detected_estimate(detection)


def double_batch(context: RuleContext, detections: Detections) -> Estimate | None:
    """Return the effect of twice the batch: all device work takes twice as long, the host as long as before."""
    is_training = "backward" in {*find_stages(context.trace), *unknown_stages(context.trace)}
    if not context.has_gpu_kernels() or not is_training or not len(context.trace.steps):
        return None
    detection = detections.get("small_batch")
    return Estimate(
        throughput="gpu*2", link=detection.link if detection else "", extent=detection.extent if detection else None
    )
