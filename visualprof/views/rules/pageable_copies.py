"""Copies from pageable memory: the call stages the data in pinned memory first, and the host waits.

Detected from copies with `Pageable` in the name whose call takes more than 200 us.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.replay.change import PAGEABLE_COPY

MIN_CALL_NS = 200_000  # longer calls stage the data; calls that only launch take about 10 us


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the long calls of such copies."""
    joined, events = context.launches, context.trace.events
    pageable = (joined.call >= 0) & match_names(
        context.trace, events.name[joined.work], lambda name: PAGEABLE_COPY in name
    )
    rows = context.in_typical_steps(joined.call[pageable])
    rows = rows[events.dur[rows] > MIN_CALL_NS]
    if len(rows):
        spent = context.covered_ns(context.event_spans(np.sort(rows)))
        numbers = {
            "calls_per_step": context.count_per_step(rows),
            "staging_ns": round(spent),
            "staging_ratio": context.share(spent),
        }
        link = "/kernel?table=memory_operations"
        yield Detection(numbers, link, longest_event(context.trace, rows), spent, "copies=pinned")


RULE = Rule(
    detect,
    "high",
    {
        "pytorch": 'DataLoader(..., pin_memory=True); x = x.to("cuda", non_blocking=True)',
        "paddle": "x = x.pin_memory().cuda(blocking=False)",
        "onnxruntime": "onnxruntime.OrtValue.ortvalue_from_numpy(x, 'cuda', 0)  # once, then update_inplace",
    },
)
