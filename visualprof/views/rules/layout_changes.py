"""Kernels that only convert tensors between channels-first and channels-last (`nchwToNhwc`, `nhwcToNchw`).

Detected from kernel names; no threshold but that of all findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.names.tensor_core import match_names

PARTS = ("nchwToNhwc", "nhwcToNchw")


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the device time of the layout conversions."""
    rows, events = context.events_of(Category.KERNEL), context.trace.events
    rows = rows[match_names(context.trace, events.name[rows], lambda name: any(map(name.__contains__, PARTS)))]
    spent = context.covered_ns(context.event_spans(rows))
    if spent:
        names = [context.trace.strings[int(i)] for i in distinct(events.name[rows])]
        change = "; ".join(f"kernel[name~{part}]=0" for part in PARTS if any(part in name for name in names))
        numbers = {"calls": len(rows), "layout_ns": round(spent), "layout_ratio": context.share(spent)}
        link = "/kernel?filter=" + (PARTS[0] if PARTS[0] in change else PARTS[1])
        yield Detection(numbers, link, longest_event(context.trace, rows), spent, change)


RULE = Rule(
    detect,
    "high",
    {
        "pytorch": "model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
        "paddle": 'paddle.nn.Conv2D(..., data_format="NHWC")',
    },
)
