"""Out of memory: an allocation failed, as a memory snapshot records it.

The variant of the text is the reason: free memory in pieces that are too small, free memory in other pools, a limit
outside of the allocator, or memory that is in use.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.views.measure.findings.detection import Detection, Extent, Rule, RuleContext
from visualprof.views.measure.heap.moment import failed_entries
from visualprof.views.measure.heap.out_of_memory import explain_failure
from visualprof.views.measure.heap.remedies import failure_holders


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the last failed allocation of each device."""
    heap = context.trace.heap
    if heap is None:
        return
    for device in heap.tables.device.tolist():
        failures: list[int] = failed_entries(heap, device).tolist()
        if not failures:
            continue
        entry = failures[-1]
        failure = explain_failure(heap, device, entry)
        numbers: dict[str, int | float | str] = {
            "device": device,
            "needed_bytes": failure.needed,
            "usable_bytes": failure.usable,
            "largest_usable_bytes": failure.largest_usable,
            "elsewhere_bytes": failure.elsewhere,
            "device_free_bytes": failure.device_free,
        }
        holders = failure_holders(context.trace, device, failure)
        if holders:
            numbers |= {"line": holders[0].name, "line_bytes": holders[0].bytes}
        times = heap.entries.time_us
        ts = int(times[entry]) * 1000
        extent = Extent(ts, ts + 1) if times[entry] >= 0 else None
        yield Detection(numbers, "/snapshot", extent, severity="high", code=_code(failure.cause), variant=failure.cause)


def _code(cause: str) -> dict[str, str]:
    """Return the remedy in code, if it differs from that of the rule."""
    return {} if cause == "capacity" else {"pytorch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}


RULE = Rule(detect, "high", {"pytorch": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"})
