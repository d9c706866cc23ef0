"""Kernels of Ascend NPUs that only convert layouts or types of tensors (`TransData`, `Cast`).

Detected from kernel names; no threshold but that of all findings. Source: advisor of Ascend/msprof-analyze
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.names.tensor_core import match_names

PARTS = ("TransData", "CastAiCore")


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the device time of the conversions."""
    rows, events = context.events_of(Category.KERNEL), context.trace.events
    rows = rows[match_names(context.trace, events.name[rows], lambda name: any(map(name.__contains__, PARTS)))]
    spent = context.covered_ns(context.event_spans(rows))
    if spent:
        names = [context.trace.strings[int(i)] for i in distinct(events.name[rows])]
        present = [part for part in PARTS if any(part in name for name in names)]
        numbers = {"calls": len(rows), "conversion_ns": round(spent), "conversion_ratio": context.share(spent)}
        change = "; ".join(f"kernel[name~{part}]=0" for part in present)
        yield Detection(numbers, f"/kernel?filter={present[0]}", longest_event(context.trace, rows), spent, change)


RULE = Rule(detect, "high", {"pytorch": "torch.npu.config.allow_internal_format = False"})
