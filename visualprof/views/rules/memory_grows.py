"""Growing memory: a line of the program keeps memory of every step, as a memory snapshot records it.

Detected from at least three steps: blocks of each of them, allocated by the same line, are alive at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.heap.growth import find_growth, step_entries
from visualprof.views.measure.heap.labels import block_labels


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the line of each device that keeps most memory."""
    trace, heap = context.trace, context.trace.heap
    if heap is None:
        return
    for device in heap.tables.device.tolist():
        labels, names = block_labels(trace, "line")
        growth = find_growth(heap, device, step_entries(trace, heap, device), labels)
        if growth:
            sizes = growth[0].step_bytes
            numbers: dict[str, int | float | str] = {
                "device": device,
                "line": names[growth[0].label],
                "step_bytes": sum(sizes) // len(sizes),
                "kept_bytes": sum(sizes),
                "lines": len(growth),
            }
            yield Detection(numbers, "/snapshot", severity="medium")


RULE = Rule(detect, "medium", {"pytorch": "losses.append(loss.item())  # a number keeps no tensor alive"})
