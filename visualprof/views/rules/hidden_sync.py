"""Synchronization inside steps: `.item()`, a copy to the host, or an explicit synchronization blocks the host.

Detected from calls that return when the device work they wait for has ended; no threshold but that of all findings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.trace import Category
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event, time_by_name
from visualprof.views.measure.launches.launch import is_operator
from visualprof.views.measure.replay.build import COPY_CALL, wait_graph
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the time in calls that returned when the work they waited for had ended."""
    trace = context.trace
    if not context.has_gpu_kernels():
        return
    graph = wait_graph(trace)
    back = graph.edges.dst[graph.edges.kind == DEPENDENCY_KINDS.index("return")]
    rows = context.in_typical_steps(distinct(graph.nodes.event[back]))
    spent = context.covered_ns(context.event_spans(rows))
    if not spent:
        return
    python = trace.events.category == Category.PYTHON
    around = nearest_ancestor(trace.events.parent, is_operator(trace) | python, rows)
    callers = np.where(around >= 0, around, rows)
    copies = [COPY_CALL.match(context.event_name(row)) is not None for row in rows.tolist()]
    change = "; ".join(text for text, is_copy in (("sync=remove", False), ("copies=async", True)) if is_copy in copies)
    by_caller = np.bincount(callers, trace.events.dur[rows], len(trace.events))
    numbers: dict[str, int | float | str] = {
        "calls_per_step": context.count_per_step(rows),
        "sync_ns": round(spent),
        "sync_ratio": context.share(spent),
        "call": next(iter(time_by_name(trace, rows))),
    }
    caller = context.event_name(int(by_caller.argmax()))
    if caller != numbers["call"]:
        numbers["function"] = caller
    yield Detection(numbers, "/idle", longest_event(trace, rows), spent, change)


RULE = Rule(
    detect,
    "high",
    {
        "pytorch": "total += loss.detach()  # .item() only every 100 steps",
        "paddle": "total += loss.detach()  # .item() only every 100 steps",
        "megengine": "total += loss.detach()  # .item() only every 100 steps",
        "onnxruntime": "session.run_with_iobinding(binding)  # outputs stay on the device",
    },
    server_code={
        "vllm": "vllm serve MODEL --async-scheduling",
        "sglang": "sglang.launch_server  # without --disable-overlap-schedule",
    },
)
