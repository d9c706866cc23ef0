"""Copies from pageable memory: the call stages the data in pinned memory first, and the host waits.

Detected from copies with `Pageable` in the name whose call takes more than 200 us.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.replay.change import PAGEABLE_COPY
from visualprof.views.measure.tensor_core import match_names

LONG_NS = 200_000  # a call that takes longer copies aside; one that only launches takes some 10 us


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the long calls of such copies."""
    joined, events = case.launches, case.trace.events
    pageable = (joined.call >= 0) & match_names(
        case.trace, events.name[joined.work], lambda name: PAGEABLE_COPY in name
    )
    rows = case.in_typical_steps(joined.call[pageable])
    rows = rows[events.dur[rows] > LONG_NS]
    if len(rows):
        spent = case.covered_ns(case.event_spans(np.sort(rows)))
        numbers = {
            "calls_per_step": case.count_per_step(rows),
            "staging_ns": round(spent),
            "staging_ratio": case.share(spent),
        }
        link = "/kernel?table=memory_operations"
        yield Detection(numbers, link, longest_event(case.trace, rows), spent, "copies=pinned")


RULE = Rule(
    look,
    "high",
    {
        "pytorch": 'DataLoader(..., pin_memory=True); x = x.to("cuda", non_blocking=True)',
        "paddle": "x = x.pin_memory().cuda(blocking=False)",
        "onnxruntime": "onnxruntime.OrtValue.ortvalue_from_numpy(x, 'cuda', 0)  # once, then update_inplace",
    },
)
