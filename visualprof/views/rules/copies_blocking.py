"""Exposed copies: time in which copies run and no other device work does.

Detected from the part `memcpy` of the step; no threshold but that of all findings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.trace import Category
from visualprof.views.measure.findings import Detection, Rule, RuleContext
from visualprof.views.measure.tensor_core import match_names


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the exposed copies."""
    spent = case.part_time("memcpy")
    if spent:
        rows = np.flatnonzero(case.trace.events.category == Category.MEMCPY)
        count = int(match_names(case.trace, case.trace.events.name[rows], lambda name: "Pageable" in name).sum())
        numbers = {"pageable_copies": count, "memcpy_ratio": case.share(spent), "memcpy_ns": round(spent)}
        extent = case.longest_extent(case.exposed["memcpy"], case.events_of(Category.MEMCPY))
        yield Detection(numbers, "/kernel?table=memory_operations", extent, spent, "copies=0")


RULE = Rule(
    look,
    "medium",
    {
        "pytorch": 'with torch.cuda.stream(side): next_x = next_x.to("cuda", non_blocking=True)',
        "paddle": "paddle.io.DataLoader(dataset, use_buffer_reader=True)",
        "onnxruntime": "session.run_with_iobinding(binding)  # inputs and outputs stay on the device",
    },
)
