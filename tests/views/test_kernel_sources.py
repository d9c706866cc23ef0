"""From operators to their kernels and back: kernels of an operator, and operators and call stacks of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import Write, answer, rows, trace_of
from tests.reader.test_kineto import call, kernel, op
from visualprof.views.measure.timeline.metadata import event_details


def recording(write: Write) -> Path:
    """`aten::linear` calls `aten::mm` twice; `aten::add` launches the same kernel as the first `aten::mm`."""
    stack = {"Call stack": "train.py(7): step;torch/nn/module.py(1): call;main.py(3): <module>"}
    return write(
        [
            op("aten::linear", 0, 100, 1, **{"Input Dims": [[2, 3]]}),
            op("aten::mm", 10, 30, **stack),
            call(12, 1),
            kernel(200, 1, dur=40, name="gemm"),
            op("aten::mm", 50, 30, **stack),
            call(52, 2),
            kernel(300, 2, dur=60, name="split"),
            op("aten::linear", 110, 40, 1, **{"Input Dims": [[5, 3]]}),
            call(112, 4),
            kernel(400, 4, dur=5, name="gemm"),
            op("aten::add", 160, 30),
            call(162, 3),
            kernel(500, 3, dur=10, name="gemm"),
        ]
    )


def test_an_operator_has_the_kernels_of_the_operators_that_it_called(write: Write) -> None:
    kernels = rows(answer("kernel", recording(write), operator="aten::linear"), "calls", "total_ns")
    assert kernels == {"split": [1, 60_000], "gemm": [2, 45_000]}


def test_an_operator_has_the_kernels_of_one_input_shape(write: Write) -> None:
    kernels = rows(answer("kernel", recording(write), operator="aten::linear", shapes="[[5, 3]]"), "total_ns")
    assert kernels == {"gemm": [5_000]}


def test_a_kernel_has_the_operators_that_launched_it(write: Write) -> None:
    columns = answer("kernel", recording(write), group="operator")["columns"]
    pairs = dict(zip(zip(columns["name"], columns["operator"], strict=True), columns["total_ns"], strict=True))
    assert pairs == {
        ("split", "aten::mm"): 60_000,
        ("gemm", "aten::mm"): 40_000,
        ("gemm", "aten::add"): 10_000,
        ("gemm", "aten::linear"): 5_000,
    }


def test_a_kernel_has_the_call_stacks_of_its_operators(write: Write) -> None:
    columns = answer("kernel", recording(write), group="stack")["columns"]
    stacks = dict(zip(zip(columns["name"], columns["operator"], strict=True), columns["call_stack"], strict=True))
    assert stacks["gemm", "aten::mm"].splitlines()[0] == "train.py(7): step"
    assert stacks["gemm", "aten::add"] == ""


def details(path: Path, name: str) -> Any:
    trace = trace_of(path)
    named = np.flatnonzero(np.array([trace.strings[i] for i in trace.events.name]) == name)
    return event_details(trace, int(named[0]))


def test_the_details_of_an_operator_have_the_kernels_that_it_launched(write: Write) -> None:
    launched = details(recording(write), "aten::linear").launched
    assert (launched.count, launched.total_ns) == (2, 100_000)
    assert [place.name for place in launched.longest] == ["split", "gemm"]


def test_the_details_of_a_kernel_have_the_call_stack_of_its_operator(write: Write) -> None:
    event = details(recording(write), "split")
    assert event.launched is None
    assert event.call_stack.splitlines()[0] == "train.py(7): step"
