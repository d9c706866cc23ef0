"""Fragmented memory: the allocator reserves memory that is not in use, on a device that is nearly full.

Detected at the peak of reserved memory: more than 80 % of the device's memory is reserved, and more than 20 % of it is
reserved but not allocated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Extent, Rule, RuleContext

MIN_UNUSED_SHARE = 0.2  # of the device's memory
MIN_RESERVED_SHARE = 0.8  # of the device's memory is held


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the memory that is reserved and unused at the peak of reserved memory."""
    allocs = context.trace.allocs
    for device in context.trace.meta.devices:
        on_device = np.flatnonzero((allocs.device == device.id) & (allocs.reserved > 0) & (allocs.allocated >= 0))
        if not len(on_device) or not device.memory_bytes:
            continue
        reserved = allocs.reserved[on_device]
        at = on_device[reserved == reserved.max()]
        row = int(at[allocs.allocated[at].argmax()])  # the moment with the least unused memory
        held, unused = int(allocs.reserved[row]), int(allocs.reserved[row] - allocs.allocated[row])
        if held > MIN_RESERVED_SHARE * device.memory_bytes and unused > MIN_UNUSED_SHARE * device.memory_bytes:
            numbers = {
                "device": device.id,
                "reserved_bytes": held,
                "unused_bytes": unused,
                "memory_bytes": device.memory_bytes,
            }
            ts = int(allocs.ts[row])
            yield Detection(numbers, "/memory", Extent(ts, ts + 1), severity="medium")


RULE = Rule(
    detect,
    "medium",
    {
        "pytorch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "paddle": "FLAGS_use_virtual_memory_auto_growth=1",
    },
    server_code={
        "vllm": "vllm serve MODEL --gpu-memory-utilization 0.85",
        "sglang": "sglang.launch_server --mem-fraction-static 0.8",
    },
)
