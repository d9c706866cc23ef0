"""Hand-computed timelines of MegEngine's profiler: waits of a step, and steps before the profiler started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import answer, trace_of
from visualprof.reader.trace import Category

Event = dict[str, Any]
INTERPRETER, WORKER, DEVICE = 1, 2, 3
WAIT = "visualprof: wait for the device"


def span(thread: int, name: str, start: float, end: float, **fields: Any) -> list[Event]:
    """Return the two marks of an event, in microseconds."""
    arguments = fields.pop("args", {})
    mark = {"pid": 7, "tid": thread, "name": name, **fields}
    return [{**mark, "ph": "B", "ts": start}, {**mark, "ph": "E", "ts": end, "args": arguments}]


def flow(number: int, category: str, source: tuple[int, float], target: tuple[int, float]) -> list[Event]:
    """Return the two marks of an arrow."""
    mark = {"pid": 7, "name": "7", "cat": category, "id": number, "scope": "7"}
    (thread, time), (target_thread, target_time) = source, target
    return [
        {**mark, "ph": "s", "tid": thread, "ts": time},
        {**mark, "ph": "f", "bp": "e", "tid": target_thread, "ts": target_time},
    ]


def operator(
    number: int, dispatch: float, execution: float, kernel: float, end: float, kind: str = "MatrixMul"
) -> list[Event]:
    """Return an operator that is dispatched, executed by the worker for 1 us, and runs on the device until `end`."""
    args = {"__name__": kind, "__id__": str(number)}
    return [
        *span(INTERPRETER, "OpDispatch", dispatch, dispatch + 1, args=args),
        *span(WORKER, kind, execution, execution + 1, args=args),
        *span(DEVICE, kind, kernel, end, cat="Kernel", args=args),
        *flow(2 * number, "OpDispatch", (INTERPRETER, dispatch + 0.5), (WORKER, execution)),
        *flow(2 * number + 1, "KernelLaunch", (WORKER, execution + 0.5), (DEVICE, kernel)),
    ]


def timeline(folder: Path, *spans: list[Event]) -> Path:
    """Write a file as MegEngine does: the names of the lanes come last."""
    lanes = {INTERPRETER: "interpreter", WORKER: "worker", DEVICE: "xpux:0"}
    names = [
        {"ph": "M", "pid": 7, "tid": thread, "name": "thread_name", "args": {"name": name}}
        for thread, name in lanes.items()
    ]
    events = [event for events in spans for event in events] + names
    path = folder / "7.chrome_timeline.json"
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"localTime": "1700000000000000000"}}))
    return path


@pytest.mark.parametrize("wait", [WAIT, "TensorWaitProp"])
def test_a_step_that_waits_for_the_device_ends_earlier_on_a_faster_device(tmp_path: Path, wait: str) -> None:
    path = timeline(
        tmp_path,
        span(INTERPRETER, "ProfilerStep#1", 0, 100),
        operator(1, 5, 10, 12, 90),
        span(INTERPRETER, wait, 8, 95),
    )
    result = answer("whatif", path, change="gpu*0.5")
    # The kernel starts at 12 and takes 39 instead of 78 us; the host ends 5 us after it, and the step 5 us later.
    assert result["step"]["measured_ns"] == result["step"]["simulated_ns"] == 100_000
    assert result["step"]["predicted_ns"] == 61_000


def test_the_wait_for_the_device_is_not_an_operator_of_the_worker(tmp_path: Path) -> None:
    path = timeline(
        tmp_path,
        span(INTERPRETER, "ProfilerStep#1", 0, 100),
        operator(1, 5, 10, 12, 90),
        span(INTERPRETER, WAIT, 8, 95),
        span(WORKER, WAIT, 13, 91),
    )
    trace = trace_of(path)
    assert int((trace.events.category == Category.SYNC).sum()) == 1


def test_a_step_begins_when_the_profiler_has_started(tmp_path: Path) -> None:
    path = timeline(
        tmp_path,
        span(WORKER, "StartProfile", 1, 60),
        span(INTERPRETER, "step", 0, 100),
        operator(1, 5, 61, 62, 100),
        span(INTERPRETER, "step", 100, 150),
        operator(2, 105, 108, 110, 150),
    )
    overview = answer("overview", path)
    assert overview["steps"]["total_ns"] == [40_000, 50_000]
    (device,) = overview["devices"]
    assert device["utilization"] == pytest.approx(78 / 90)  # 38 and 40 us of kernels from 60 to 150


def test_ids_in_quotes_of_operators_of_compiled_graphs_are_no_problem(tmp_path: Path) -> None:
    operators = [
        span(
            WORKER, "InputCallback", 10, 11, args={"__name__": "InputCallback", "id": '"75"', "type": '"InputCallback"'}
        ),
        span(DEVICE, "MatrixMul", 20, 30, cat="Kernel", args={"__name__": "MatrixMul", "id": 76}),
    ]
    assert trace_of(timeline(tmp_path, *operators)).meta.warnings == ()
