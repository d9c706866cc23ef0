"""Activations at the peak: most of the peak of a memory snapshot may be computed again instead of stored.

Detected if activations hold at least `MIN_RATIO` of the requested bytes at the peak of a device. Without the largest
one, which a checkpoint computes again, they are the most that checkpoints could free.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.heap.labels import block_labels
from visualprof.views.measure.heap.moment import device_entries, moment, peak_entry

MIN_RATIO = 0.3


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the activations at the peak of each device."""
    trace, heap = context.trace, context.trace.heap
    if heap is None:
        return
    roles, lines = block_labels(trace, "category"), block_labels(trace, "line")
    is_activation = np.array([name == "activation" for name in roles.names], bool)[roles.label]
    for device in heap.tables.device.tolist():
        first, end = device_entries(heap, device)
        if first == end:
            continue
        alive = moment(heap, device, peak_entry(heap, device)).blocks
        rows = alive[is_activation[alive]]
        sizes = heap.blocks.requested[rows]
        total, peak = int(sizes.sum()), int(heap.blocks.requested[alive].sum())
        if total == 0 or total < MIN_RATIO * peak:
            continue
        held = np.bincount(lines.label[rows], sizes, len(lines.names))
        largest = int(held.argmax())
        numbers: dict[str, int | float | str] = {
            "device": device,
            "activation_bytes": total,
            "freed_bytes": total - int(sizes.max()),
            "line": lines.names[largest],
            "line_bytes": int(held[largest]),
        }
        yield Detection(numbers, "/snapshot?category=activation", severity="low")


RULE = Rule(
    detect,
    "low",
    {"pytorch": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"},
    training_only=True,
)
