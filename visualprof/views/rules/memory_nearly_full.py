"""Nearly full memory: the peak of allocated or reserved memory exceeds 90 % of the device's memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings import Detection, Rule, RuleContext

FULL = 0.9


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the peak of allocated or reserved memory if it is high."""
    allocs = case.trace.allocs
    for device in case.trace.meta.devices:
        here = allocs.device == device.id
        peak = int(np.maximum(allocs.allocated[here].max(), allocs.reserved[here].max())) if here.any() else 0
        if device.memory_bytes and peak > FULL * device.memory_bytes:
            numbers = {"device": device.id, "peak_bytes": peak, "memory_bytes": device.memory_bytes}
            yield Detection(numbers, "/memory", severity="medium")


RULE = Rule(
    look,
    "high",
    {
        "pytorch": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        "paddle": "paddle.distributed.fleet.utils.recompute(block, x)",
    },
    training_only=True,
)
