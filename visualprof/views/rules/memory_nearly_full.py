"""Nearly full memory: the peak of allocated or reserved memory exceeds 90 % of the device's memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext

MIN_PEAK_SHARE = 0.9


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the peak of allocated or reserved memory if it is high."""
    allocs = context.trace.allocs
    for device in context.trace.meta.devices:
        on_device = allocs.device == device.id
        peak = (
            int(np.maximum(allocs.allocated[on_device].max(), allocs.reserved[on_device].max()))
            if on_device.any()
            else 0
        )
        if device.memory_bytes and peak > MIN_PEAK_SHARE * device.memory_bytes:
            numbers = {"device": device.id, "peak_bytes": peak, "memory_bytes": device.memory_bytes}
            yield Detection(numbers, "/memory", severity="medium")


RULE = Rule(
    detect,
    "high",
    {
        "pytorch": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        "paddle": "paddle.distributed.fleet.utils.recompute(block, x)",
    },
    training_only=True,
)
