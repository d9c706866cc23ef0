"""Kernels of Ascend NPUs that use only a part of the cores, because they have fewer blocks than there are cores.

Detected from kernels of over 20 us. Source: advisor of Ascend/msprof-analyze
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.trace import Category
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event, time_by_name

MIN_DURATION_NS = 20_000


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the device time of the kernels. Idle cores are the upper bound of the savings."""
    trace = context.trace
    if "core" not in trace.args:
        return
    rows = context.events_of(Category.KERNEL)
    rows = rows[trace.events.dur[rows] > MIN_DURATION_NS]
    used = trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64)
    is_partial = (used > 0) & (used < 1)
    rows, used = rows[is_partial], used[is_partial]
    spent = context.covered_ns(context.event_spans(rows))
    if spent:
        mean_used = float(np.average(used, weights=trace.events.dur[rows]))
        numbers = {
            "calls": len(rows),
            "kernel": next(iter(time_by_name(trace, rows))),
            "few_cores_ns": round(spent),
            "few_cores_ratio": context.share(spent),
            "cores_ratio": mean_used,
        }
        yield Detection(numbers, "/kernel", longest_event(trace, rows), spent * (1 - mean_used))


RULE = Rule(detect, "low")
