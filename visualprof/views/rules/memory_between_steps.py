"""Memory carried into the next step: blocks of a step are alive at the peak of the next one, and released later.

Detected if such blocks hold at least 5 % of the peak of each step from the third one on, as a memory snapshot records
it. Parameters, optimizer state, inputs (the next batch may be loaded early) and memory of collectives or graphs do not
count; nor do blocks that stay until the end, which `memory_grows` reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from visualprof.reader.trace import Ints, Mask, Trace
from visualprof.reader.trace.heap import Heap, is_at
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.heap.growth import MIN_STEPS, step_entries
from visualprof.views.measure.heap.labels import block_labels
from visualprof.views.measure.heap.moment import device_entries, requested_curve

MIN_RATIO = 0.05  # of the peak of a step
ROLES = ("activation", "gradient", "temporary", "unknown")


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the memory of each device that steps carry into the next one."""
    trace, heap = context.trace, context.trace.heap
    if heap is None:
        return
    lines = block_labels(trace, "line")
    for device in heap.tables.device.tolist():
        rows = _carried_blocks(trace, heap, device)
        if not rows:
            continue
        sizes = [int(heap.blocks.requested[blocks].sum()) for blocks in rows]
        blocks = np.concatenate(rows)
        by_line = np.bincount(lines.label[blocks], heap.blocks.requested[blocks], len(lines.names))
        largest = int(by_line.argmax())
        numbers: dict[str, int | float | str] = {
            "device": device,
            "carried_bytes": sum(sizes) // len(sizes),
            "line": lines.names[largest],
            "line_bytes": int(by_line[largest]) // len(sizes),
        }
        yield Detection(numbers, "/snapshot", severity="medium")


def _carried_blocks(trace: Trace, heap: Heap, device: int) -> list[Ints]:
    """Return the blocks of each step that are alive at the peak of the next one; empty if a step carries too few."""
    steps = step_entries(trace, heap, device)
    if len(steps) < MIN_STEPS:
        return []
    first = device_entries(heap, device)[0]
    held = requested_curve(heap, device)[1:]
    releasable = _releasable(trace, heap, device)
    rows: list[Ints] = []
    for (start, end), (next_start, next_end) in pairwise(steps[1:]):
        peak = next_start + int(np.argmax(held[next_start - first : next_end - first]))
        is_carried = releasable & is_at(heap.blocks.born, heap.blocks.died, peak)
        is_carried &= (heap.blocks.born >= start) & (heap.blocks.born < end)
        blocks = np.flatnonzero(is_carried)
        if int(heap.blocks.requested[blocks].sum()) < MIN_RATIO * int(held[peak - first]):
            return []
        rows.append(blocks)
    return rows


def _releasable(trace: Trace, heap: Heap, device: int) -> Mask:
    """Return which blocks of a device have a role that ends with a step, and are released within the history."""
    roles = block_labels(trace, "category")
    has_role = np.array([name in ROLES for name in roles.names], bool)[roles.label]
    return has_role & (heap.blocks.device == device) & (heap.blocks.died < device_entries(heap, device)[1])


RULE = Rule(
    detect,
    "medium",
    {"pytorch": "del loss, output; optimizer.zero_grad(set_to_none=True)  # before the next forward pass"},
    training_only=True,
)
