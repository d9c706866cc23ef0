"""Recompilation: torch.compile compiles in steps after the first, because a guard failed.

Detected from compilation events; no threshold but that of all findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event, time_by_name
from visualprof.views.measure.names.compiled import compiled_regions


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the compilations in typical steps without the first of all steps."""
    events, windows = context.trace.events, context.windows
    rows = compiled_regions(context.trace).compilation
    if len(windows) < 2 or not len(rows):
        return
    rows = context.in_typical_steps(rows[events.ts[rows] >= windows.end[0]])
    spent = context.covered_ns(context.event_spans(rows))
    if spent:
        share, change = context.share(spent), "; ".join(f"host[{name}]=0" for name in time_by_name(context.trace, rows))
        numbers = {"recompilations": len(rows), "compile_ns": round(spent), "compile_ratio": share}
        yield Detection(numbers, "/operator?filter=compile", longest_event(context.trace, rows), spent, change)


RULE = Rule(detect, "high", {"pytorch": "torch.compile(model, dynamic=True)  # TORCH_LOGS=recompiles says why"})
