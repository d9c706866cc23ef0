"""Tables of a PyTorch profile as lists of rows, made from its JSON with plain Python: independent of visualprof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.query.raw_trace import RawEvent, RawTrace

Row = dict[str, Any]
Tables = dict[str, list[Row]]
STEP = "ProfilerStep#"


def tables(path: Path, *, memory: bool) -> Tables:
    """Return the kernels, operators, user ranges and steps of a profile. Times are in ns.

    Args:
        path: The profile.
        memory: Whether to return the memory events, too, each of which is looked up among all events.
    """
    trace = RawTrace(path)
    steps = trace.named(STEP)
    ids = {event: number for number, event in enumerate((*trace.host, *trace.device))}
    return {
        "kernel": [_kernel(trace, kernel, ids, steps) for kernel in trace.kernels],
        "work": [_work(trace, work) for work in trace.device],
        "op": list(_operators(trace)),
        "range": [_range(event, ids) for event in trace.host if event.category == "user_annotation"],
        "step": [{"step": s.name.removeprefix(STEP), "ts": s.start, "dur": s.duration} for s in steps],
        "allocation": list(_allocations(trace)) if memory else [],
    }


def _kernel(trace: RawTrace, kernel: RawEvent, ids: dict[RawEvent, int], steps: list[RawEvent]) -> Row:
    call, op = trace.call(kernel), trace.operator(kernel)
    around = trace.surroundings(kernel)
    path, is_backward = trace.modules(around)
    step = next((step for step in steps if call and step.start <= call.start < step.end), None)
    request = next((event for event in around if event.name.startswith("execute_context_")), None)
    args = kernel.args
    return {
        "ts": kernel.start,
        "dur": kernel.duration,
        "name": kernel.name,
        "category": "comm" if kernel.name.startswith("nccl") else "kernel",
        "device": args.get("device"),
        "stream": args.get("stream"),
        "grid": str(args.get("grid")).replace(" ", ""),
        "call": call.name if call else None,
        "delay": max(0, kernel.start - call.end) if call else None,
        "op": op.name if op else None,
        "module_path": "/".join(path) or None,
        "backward": is_backward,
        "range_id": next((ids[event] for event in around if event.category == "user_annotation"), None),
        "step": step.name.removeprefix(STEP) if step else None,
        "phase": ("decode" if "context_0(" in request.name else "prefill") if request else None,
    }


def _work(trace: RawTrace, work: RawEvent) -> Row:
    call = trace.call(work)
    return {"ts": work.start, "end": work.end, "call_ts": call.start if call else None}


def _range(event: RawEvent, ids: dict[RawEvent, int]) -> Row:
    parent = next((around for around in event.around() if around.category == "user_annotation"), None)
    return {
        "id": ids[event],
        "name": event.name,
        "parent_id": ids[parent] if parent else None,
        "ts": event.start,
        "end": event.end,
    }


def _operators(trace: RawTrace) -> Iterator[Row]:
    operators = [event for event in trace.host if event.category == "cpu_op" and not _is_repeated(event)]
    members = set(operators)
    nested: dict[RawEvent, int] = defaultdict(int)
    launched: dict[RawEvent, int] = defaultdict(int)
    for op in operators:
        if around := next((event for event in op.around() if event in members), None):
            nested[around] += op.duration
    for work in trace.device:
        if op := trace.operator(work):
            launched[op] += work.duration
    for op in operators:
        stack = _frames(op)
        forward = None if stack else trace.forward([op, *op.around()])
        yield {
            "ts": op.start,
            "dur": op.duration,
            "name": op.name,
            "self_dur": op.duration - nested[op],
            "device_self": launched[op],
            "shapes": str(op.args.get("Input Dims")).replace(" ", ""),
            "outermost": not any(event.category == "cpu_op" for event in op.around()),
            "line": next(iter(stack or (_frames(forward) if forward else [])), None),
        }


def _is_repeated(event: RawEvent) -> bool:
    """Return whether an operator only repeats the operator around it."""
    around = event.parent
    return around is not None and around.category == "cpu_op" and around.name == event.name and around.children == 1


def _frames(event: RawEvent) -> list[str]:
    return [around.name for around in event.around() if around.category == "python_function"]


def _allocations(trace: RawTrace) -> Iterator[Row]:
    """Yield the memory events of the device in the order of time."""
    for ns, thread, args in sorted(trace.instants, key=lambda instant: instant[0]):
        if args["Device Type"] == 1:
            around = trace.at(ns, thread)
            path, _ = trace.modules(around)
            yield {
                "ts": ns,
                "bytes": args["Bytes"],
                "address": args["Addr"],
                "total": args["Total Allocated"],
                "op": next((event.name for event in around if event.category == "cpu_op"), None),
                "module": path[-1] if path else None,
            }
