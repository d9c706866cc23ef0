"""Gradients and optimizer state: both fill the peak of a memory snapshot.

Detected if gradients, without the largest one, and optimizer state each hold at least 10 % of the requested bytes at
the peak of a device. An optimizer step within the backward pass releases each gradient at once, so one remains.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.heap.labels import block_labels
from visualprof.views.measure.heap.moment import device_entries, moment, peak_entry

MIN_RATIO = 0.1


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the gradients at the peak of each device."""
    trace, heap = context.trace, context.trace.heap
    if heap is None:
        return
    roles = block_labels(trace, "category")
    is_gradient = np.array([name == "gradient" for name in roles.names], bool)[roles.label]
    is_state = np.array([name == "optimizer_state" for name in roles.names], bool)[roles.label]
    requested = heap.blocks.requested
    for device in heap.tables.device.tolist():
        first, end = device_entries(heap, device)
        if first == end:
            continue
        alive = moment(heap, device, peak_entry(heap, device)).blocks
        gradients = requested[alive[is_gradient[alive]]]
        total, state = int(gradients.sum()), int(requested[alive[is_state[alive]]].sum())
        saved = total - int(gradients.max(initial=0))
        if not saved or min(saved, state) < MIN_RATIO * int(requested[alive].sum()):
            continue
        numbers: dict[str, int | float | str] = {
            "device": device,
            "gradient_bytes": total,
            "optimizer_bytes": state,
            "saved_bytes": saved,
        }
        yield Detection(numbers, "/snapshot?category=gradient", severity="low")


RULE = Rule(
    detect,
    "low",
    {"pytorch": "parameter.register_post_accumulate_grad_hook(step_and_clear)  # step in the backward pass"},
    training_only=True,
)
