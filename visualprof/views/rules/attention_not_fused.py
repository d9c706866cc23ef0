"""Attention as separate operators: `aten::_softmax` between two batched products (`aten::bmm`, `aten::baddbmm`).

Detected from the order of operators on a thread. A fused kernel would save the device time of the softmax.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.trace import Ids
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import is_in
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, extent_with_track
from visualprof.views.measure.launches.launch import is_operator

SOFTMAX, BACKWARD = "aten::_softmax", "aten::_softmax_backward_data"
BATCHED_PRODUCTS = ("aten::bmm", "aten::baddbmm")
PRODUCTS = (*BATCHED_PRODUCTS, "aten::mm", "aten::addmm")


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the softmax operators between two batched products."""
    events, strings = context.trace.events, context.trace.strings
    ids = {name: i for i, name in enumerate(strings) if name in (SOFTMAX, BACKWARD, *PRODUCTS)}
    if SOFTMAX not in ids:
        return
    operators = np.flatnonzero(
        is_operator(context.trace) & is_in(events.name, [i for n, i in ids.items() if n != BACKWARD])
    )
    batched = is_in(events.name[operators], [ids[name] for name in BATCHED_PRODUCTS if name in ids])
    middle = np.flatnonzero(events.name[operators] == ids[SOFTMAX])
    middle = middle[(middle > 0) & (middle < len(operators) - 1)]
    middle = middle[batched[middle - 1] & batched[middle + 1]]
    same = events.track[operators[middle - 1]] == events.track[operators[middle + 1]]
    middle = middle[same]
    if not len(middle):
        return
    rows = _softmaxes(context, [ids[name] for name in (SOFTMAX, BACKWARD) if name in ids])
    spent = context.covered_ns(context.event_spans(rows))
    start, end = (int(events.ts[operators[middle[0] - 1]]), int(events.end[operators[middle[0] + 1]]))
    numbers = {"calls": len(middle), "softmax_ns": round(spent), "softmax_ratio": context.share(spent)}
    change = "; ".join(f"operator[{name}]=0" for name in (SOFTMAX, BACKWARD) if name in ids)
    extent = extent_with_track(context.trace, start, end, operators[middle[:1]])
    yield Detection(numbers, "/operator?filter=softmax", extent, spent, change)


def _softmaxes(context: RuleContext, names: list[int]) -> Ids:
    """Return the device work of these operators, or the operators themselves if nothing runs on a device."""
    meant = is_operator(context.trace) & is_in(context.trace.events.name, names)
    owned = nearest_ancestor(context.trace.events.parent, meant, context.launches.op) >= 0
    return context.launches.work[owned] if len(context.launches.work) else np.flatnonzero(meant).astype(np.int32)


RULE = Rule(
    detect,
    "medium",
    {"pytorch": "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)"},
    server_code={
        "vllm": "vllm serve MODEL --attention-backend FLASH_ATTN",
        "sglang": "sglang.launch_server --attention-backend flashinfer",
    },
)
