"""Rounding waste: blocks are larger than the program requested, as a memory snapshot records it.

Detected at the peak of a device, if blocks exceed their requests by over 3 % and over 1 MiB. Recorded trainings have
0.5 to 2 %.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.heap.labels import block_labels
from visualprof.views.measure.heap.moment import device_entries, moment, peak_entry

MIN_RATIO = 0.03
MIN_BYTES = 1 << 20


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the rounding at the peak of each device."""
    trace, heap = context.trace, context.trace.heap
    if heap is None:
        return
    lines = block_labels(trace, "line")
    for device in heap.tables.device.tolist():
        first, end = device_entries(heap, device)
        if first == end:
            continue
        alive = moment(heap, device, peak_entry(heap, device)).blocks
        sizes = heap.blocks.size[alive]
        excess = sizes - heap.blocks.requested[alive]
        total = int(excess.sum())
        if total < MIN_BYTES or total < MIN_RATIO * int(sizes.sum()):
            continue
        by_line = np.bincount(lines.label[alive], excess, len(lines.names))
        largest = int(by_line.argmax())
        numbers: dict[str, int | float | str] = {
            "device": device,
            "rounding_bytes": total,
            "block_bytes": int(sizes.sum()),
            "line": lines.names[largest],
            "line_bytes": int(by_line[largest]),
        }
        yield Detection(numbers, "/snapshot", severity="low")


RULE = Rule(
    detect,
    "medium",
    {"pytorch": "torch.empty(sum(sizes), device='cuda').split(sizes)  # one block for many small tensors"},
)
