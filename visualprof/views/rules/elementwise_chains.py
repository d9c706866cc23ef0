"""Chains of at least 3 consecutive element-wise kernels on a stream, which a compiler could fuse.

Detected from kernel names with `elementwise`. A fused chain takes at least as long as its longest kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, extent_with_track
from visualprof.views.measure.names.tensor_core import match_names

PART = "elementwise"
MIN_KERNELS = 3  # kernels of a chain


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the chains with their predicted savings."""
    events = context.trace.events
    rows = context.events_of(Category.KERNEL)
    if not context.has_gpu_kernels() or not len(rows):
        return
    rows = rows[np.lexsort((events.ts[rows], events.track[rows]))]
    alike = match_names(context.trace, events.name[rows], lambda name: PART in name.casefold())
    begins = np.append(True, (events.track[rows[1:]] != events.track[rows[:-1]]) | ~alike[1:] | ~alike[:-1])
    chains = group(np.cumsum(begins))
    chained = chains.count[chains.ids] >= MIN_KERNELS
    dur = np.maximum(events.dur[rows], 0)
    total = int(dur[alike].sum())
    saved = chains.sum(dur) - chains.max(dur)
    saved = int(saved[chains.count >= MIN_KERNELS].sum())
    if not saved:
        return
    spent = context.covered_ns(context.event_spans(rows[chained]))
    longest = int(np.where(chains.count >= MIN_KERNELS, chains.sum(dur), -1).argmax())
    longest_rows = rows[chains.ids == longest]
    extent = extent_with_track(
        context.trace, int(events.ts[longest_rows].min()), int(events.end[longest_rows].max()), longest_rows
    )
    chain_count = int((chains.count >= MIN_KERNELS).sum())
    numbers = {
        "chains": chain_count,
        "kernels_per_chain": float(chained.sum() / chain_count),
        "chain_ns": round(spent),
        "chain_ratio": context.share(spent),
    }
    yield Detection(numbers, "/kernel", extent, spent, f"kernel[name~{PART}]*{1 - saved / total:.3g}")


RULE = Rule(
    detect,
    "medium",
    {
        "pytorch": "model = torch.compile(model)",
        "paddle": "model = paddle.jit.to_static(model, backend='CINN')",
        "megengine": "@megengine.jit.trace(symbolic=True, opt_level=3)",
    },
    server_code={
        "vllm": "vllm serve MODEL -O3  # without --enforce-eager",
        "sglang": "sglang.launch_server --enable-torch-compile",
    },
)
