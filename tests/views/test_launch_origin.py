"""Where an event comes from, in hand-made traces and in a recording."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conftest import SAMPLES, Write, trace_of
from visualprof.reader.trace import Trace
from visualprof.views.measure.launches.launch import is_kernel
from visualprof.views.measure.launches.launch_origin import launch_origin


def event(name: str, ts: float, dur: float, cat: str, tid: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, **more}


def origin_names(trace: Trace, name: str) -> dict[str, str]:
    row = next(index for index, text in enumerate(trace.events.name) if trace.strings[int(text)] == name)
    return {role: trace.strings[int(trace.events.name[origin_row])] for role, origin_row in launch_origin(trace, row)}


def test_a_backward_kernel_comes_from_the_line_that_ran_forward(write: Write) -> None:
    """train.py calls a Linear on thread 1; autograd launches `bwd` on thread 2, which has no Python frames."""
    frames = [
        event("train.py(7): step", 0, 100, "python_function"),
        event("nn.Module: Linear_0", 10, 50, "python_function"),
    ]
    frames.append(event("torch/nn/modules/linear.py(125): forward", 11, 48, "python_function"))
    calls = [
        event("aten::linear", 12, 40, "cpu_op"),
        event("cudaLaunchKernel", 20, 2, "cuda_runtime", args={"correlation": 1}),
        event("fwd", 30, 5, "kernel", 7, args={"correlation": 1, "device": 0, "stream": 7}),
        event("AddmmBackward0", 200, 50, "cpu_op", 2),
        event("aten::mm", 210, 30, "cpu_op", 2),
        event("cudaLaunchKernel", 220, 2, "cuda_runtime", 2, args={"correlation": 2}),
        event("bwd", 230, 5, "kernel", 7, args={"correlation": 2, "device": 0, "stream": 7}),
    ]
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": 1, "id": 5}
    arrow = [{"ph": "s", "tid": 1, "ts": 12, **flow}, {"ph": "f", "bp": "e", "tid": 2, "ts": 200, **flow}]
    trace = trace_of(write([*frames, *calls, *arrow]))
    program = {"module": "nn.Module: Linear_0", "source": "train.py(7): step"}
    assert origin_names(trace, "fwd") == {"operator": "aten::linear", **program}
    assert origin_names(trace, "bwd") == {"operator": "aten::mm", **program}
    assert origin_names(trace, "aten::linear") == program
    assert origin_names(trace, "train.py(7): step") == {}


def test_every_kernel_has_its_operator_and_most_have_their_source_line() -> None:
    trace = trace_of(next((SAMPLES / "pytorch-h200").rglob("*transformer*.json*")))
    roles = [dict(launch_origin(trace, int(row))) for row in np.flatnonzero(is_kernel(trace))]
    assert len(roles) == 308
    assert all("operator" in one for one in roles)
    lines = [trace.strings[int(trace.events.name[role["source"]])] for role in roles if "source" in role]
    assert len(lines) == 268  # the optimizer's frames are inside torch
    assert all(line.startswith("make_traces.py(") for line in lines)
