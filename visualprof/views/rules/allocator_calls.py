"""Calls that allocate or free device memory (`cudaMalloc`, `cuMemMap`, `aclrtMalloc`, ...) in steps after the first.

A caching allocator should serve these steps from its cache. Detected from runtime events by name; no threshold but that
of all findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from visualprof.reader.trace import Category, TrackKind
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event, time_by_name
from visualprof.views.measure.names.tensor_core import match_names

ALLOCATOR_CALL = re.compile(
    r"(cuda|hip)(Malloc|Free|HostAlloc|MallocHost|HostMalloc|FreeHost|HostFree)$|cuMem(Create|Map|Unmap|Release)$"
    r"|(?:AscendCL@)?acl(?:rt)?(?:Malloc|Free|MallocMemInner|MallocHost|FreeHost)$"
)


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the calls in typical steps without the first of all steps, in which the cache fills."""
    events, windows = context.trace.events, context.windows
    rows = context.events_of(Category.RUNTIME)
    rows = rows[context.trace.track_mask(TrackKind.THREAD)[rows] & (events.dur[rows] > 0)]
    rows = rows[match_names(context.trace, events.name[rows], lambda name: ALLOCATOR_CALL.match(name) is not None)]
    if len(windows) < 2:
        return
    rows = context.in_typical_steps(rows[events.ts[rows] >= windows.end[0]])
    spent = context.covered_ns(context.event_spans(rows))
    if spent:
        names = time_by_name(context.trace, rows)
        numbers = {
            "calls_per_step": context.count_per_step(rows),
            "allocator_ns": round(spent),
            "allocator_ratio": context.share(spent),
        }
        change = "; ".join(f"host[{name}]=0" for name in names)
        yield Detection(numbers, "/memory", longest_event(context.trace, rows), spent, change)


RULE = Rule(
    detect,
    "high",
    {
        "pytorch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "paddle": "FLAGS_allocator_strategy=auto_growth",
        "onnxruntime": '("CUDAExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})',
    },
    server_code={
        "vllm": "vllm serve MODEL --gpu-memory-utilization 0.85",
        "sglang": "sglang.launch_server --mem-fraction-static 0.8",
    },
)
