"""The metrics by which runs are followed over time. Source: docs/views/trend.md."""

from __future__ import annotations

import msgspec

from visualprof.reader.results.points import Point
from visualprof.reader.trace import Trace
from visualprof.views import Params, View
from visualprof.views.answers.kinds import Kind
from visualprof.views.answers.table import Answer
from visualprof.views.measure.devices.memory import memory_curve, memory_devices
from visualprof.views.measure.devices.utilization import device_summaries
from visualprof.views.measure.steps.parts import STEP_PARTS, step_breakdown
from visualprof.views.measure.steps.step_time import step_time_ns
from visualprof.views.measure.steps.windows import step_windows

YEAR_2000_NS = 946_684_800 * 10**9


class Figure(msgspec.Struct, frozen=True):
    """Kind of a metric.

    Attributes:
        kind: Kind of the value.
        worse: Direction of a regression: 1 if higher is worse, -1 if lower is worse.
    """

    kind: Kind
    worse: int


FIGURES = {
    "step.total": Figure("ns", 1),
    **{f"step.{part}": Figure("ns", 1) for part in STEP_PARTS},
    "device.utilization": Figure("ratio", -1),
    "memory.peak": Figure("bytes", 1),
    "evaluation.p50": Figure("ns", 1),
    "evaluation.p99": Figure("ns", 1),
    "evaluation.qps": Figure("count", -1),
    "evaluation.samples_per_s": Figure("count", -1),
}


class Figures(Answer):
    """Metrics of a recording by name.

    Attributes:
        at_ns: Start of the recording in ns since the Unix epoch; None if the file has no such clock.
    """

    figures: dict[str, float]
    at_ns: int | None = None


def needs(trace: Trace) -> bool:
    """Whether the trace has steps or memory events."""
    return len(trace.steps) > 0 or len(trace.allocs.ts) > 0


def compute(trace: Trace, params: Params) -> Figures:
    """Return the metrics that are known for a recording.

    - `step.total`: the step time, the median of the typical steps
    - `step.PART`: mean per step
    - On inference servers, these two cover only the steps of the phase with the most time.
    - `device.utilization`: mean over its devices
    - `memory.peak`: peak of the device with the highest one
    """
    out = dict[str, float]()
    windows = step_windows(trace)
    alike = windows.main_phase()[1]
    total = (windows.end - windows.start)[alike]
    if len(trace.steps) and (total > 0).any():
        if (step_ns := step_time_ns(trace)) is not None:
            out["step.total"] = step_ns
        parts = step_breakdown(trace, windows)
        out |= {f"step.{name}": float(spent[alike].mean()) for name, spent in parts.items() if spent[alike].any()}
        used = [device.utilization for device in device_summaries(trace, windows) if device.utilization is not None]
        if used:
            out["device.utilization"] = sum(used) / len(used)
    peaks = [int(memory_curve(trace, device).allocated.max(initial=0)) for device in memory_devices(trace)]
    if max(peaks, default=0) > 0:
        out["memory.peak"] = float(max(peaks))
    origin, (start, _) = trace.meta.clock_origin_ns, trace.span_ns
    return Figures(figures=out, at_ns=origin + start if origin >= 0 and origin + start > YEAR_2000_NS else None)


def figures_of_point(point: Point) -> dict[str, float]:
    """Return the metrics of a measured batch size."""
    values = {"p50": point.p50_ns, "p99": point.p99_ns, "qps": point.qps, "samples_per_s": point.samples_per_s}
    return {f"evaluation.{name}": float(value) for name, value in values.items() if value}


VIEW = View("figures", 0, needs, Params, compute)  # without a page, but cached like other answers
