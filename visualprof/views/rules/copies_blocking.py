"""Exposed copies: time in which copies run and no other device work does.

Detected from the part `memcpy` of the step; no threshold but that of all findings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.trace import Category
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.names.tensor_core import match_names


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the exposed copies."""
    spent = context.part_time("memcpy")
    if spent:
        rows = np.flatnonzero(context.trace.events.category == Category.MEMCPY)
        count = int(match_names(context.trace, context.trace.events.name[rows], lambda name: "Pageable" in name).sum())
        numbers = {"pageable_copies": count, "memcpy_ratio": context.share(spent), "memcpy_ns": round(spent)}
        extent = context.longest_extent(context.exposed["memcpy"], context.events_of(Category.MEMCPY))
        yield Detection(numbers, "/kernel?table=memory_operations", extent, spent, "copies=0")


RULE = Rule(
    detect,
    "medium",
    {
        "pytorch": 'with torch.cuda.stream(side): next_x = next_x.to("cuda", non_blocking=True)',
        "paddle": "paddle.io.DataLoader(dataset, use_buffer_reader=True)",
        "onnxruntime": "session.run_with_iobinding(binding)  # inputs and outputs stay on the device",
    },
)
