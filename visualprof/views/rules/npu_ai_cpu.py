"""Kernels on the AI CPU of Ascend NPUs, which is much slower than the cores for vectors and matrices.

Detected from the core of kernels of over 20 us. Source: advisor of Ascend/msprof-analyze
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.findings.detection import (
    Detection,
    Rule,
    RuleContext,
    longest_event,
    speedup_change,
    time_by_name,
)
from visualprof.views.measure.names.tensor_core import match_names

AI_CPU = "AI_CPU"
MIN_DURATION_NS = 20_000


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the device time of kernels on the AI CPU."""
    trace = context.trace
    if "core" not in trace.args:
        return
    rows = context.events_of(Category.KERNEL)
    rows = rows[trace.events.dur[rows] > MIN_DURATION_NS]
    rows = rows[match_names(trace, trace.arg("core", rows, 0), lambda core: core == AI_CPU)]
    spent = context.covered_ns(context.event_spans(rows))
    if spent:
        names = list(time_by_name(trace, rows))
        numbers = {
            "calls": len(rows),
            "kernel": names[0],
            "ai_cpu_ns": round(spent),
            "ai_cpu_ratio": context.share(spent),
        }
        yield Detection(numbers, "/kernel", longest_event(trace, rows), spent, speedup_change(names, 0))


RULE = Rule(detect, "high", {"pytorch": "tensor = tensor.to(torch.int32)  # AI cores lack int64 and double"})
