"""Execution traces of PyTorch, written by hand in the form of `ExecutionTraceObserver`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import LOCAL_COPY
from visualprof.errors import FormatError
from visualprof.reader import read_trace
from visualprof.reader.graph import ModelGraph
from visualprof.reader.models import read_model

CASE = LOCAL_COPY / "cases" / "reports" / "26-execution-trace" / "pytorch_et_0.json"


def tensor(number: int) -> list[Any]:
    return [number, number, 0, 16, 4, "cpu"]


def side(*tensors: tuple[int, list[int], str]) -> dict[str, Any]:
    values, shapes, kinds = ([list(column) for column in zip(*tensors, strict=True)] or [[], [], []])[:3]
    return {"values": [tensor(number) for number in values], "shapes": shapes, "types": kinds}


def node(number: int, name: str, caller: int, inputs: Any = None, outputs: Any = None) -> dict[str, Any]:
    attributes = [{"name": "rf_id", "type": "uint64", "value": number * 10}, {"name": "tid", "value": 1}]
    sides = {"inputs": inputs or side(), "outputs": outputs or side()}
    return {"id": number, "name": name, "ctrl_deps": caller, "attrs": attributes} | sides


def trace(folder: Path, nodes: list[dict[str, Any]]) -> ModelGraph:
    path = folder / "et.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    return read_model(path)


PROCESS = node(1, "[pytorch|profiler|execution_trace|process]", 1)
A, B, C = (1, [4, 8], "Tensor(float)"), (2, [8, 2], "Tensor(c10::Half)"), (3, [4, 2], "Tensor(float)")


def test_the_outermost_operators_are_nodes_in_the_groups_of_ranges_and_autograd(tmp_path: Path) -> None:
    calls = [PROCESS, node(6, "## step ##", 1), node(7, "aten::mm", 6), node(2, "aten::linear", 1)]
    calls += [node(3, "aten::t", 2), node(8, "autograd::engine::evaluate_function: MmBackward0", 6)]
    model = trace(tmp_path, [*calls, node(9, "MmBackward0", 8), node(10, "aten::mm", 9), node(11, "aten::mm", 9)])
    shown = [(call.type, call.name, [scope.name for scope in call.scope]) for call in model.nodes]
    backward = ["## step ##", "autograd::engine::evaluate_function: MmBackward0", "MmBackward0"]
    assert shown == [
        ("aten::linear", "aten::linear", []),
        ("aten::mm", "aten::mm", ["## step ##"]),
        ("aten::mm", "aten::mm", backward),
        ("aten::mm", "aten::mm#2", backward),
    ]
    assert model.nodes[1].attributes == {"rf_id": "70", "tid": "1"}


def test_a_tensor_connects_the_call_that_wrote_it_last(tmp_path: Path) -> None:
    first, second = node(2, "aten::mm", 1, side(A, B), side(C)), node(3, "aten::relu_", 1, side(C), side(C))
    model = trace(tmp_path, [PROCESS, first, second, node(4, "aten::sum", 1, side(C))])
    mm, relu, total = model.nodes
    assert relu.inputs == mm.outputs
    assert total.inputs == relu.outputs
    assert relu.outputs != mm.outputs
    values = [model.values[row] for row in mm.inputs]
    assert [(value.dtype, value.shape, value.bytes) for value in values] == [
        ("float32", (4, 8), 128),
        ("float16", (8, 2), 32),
    ]


def test_tensors_in_lists_and_numbers_in_between(tmp_path: Path) -> None:
    values = [[tensor(1), tensor(2)], 1, [4, 4]]
    arguments = {"values": values, "shapes": [[[4, 8], [4, 8]], [], [[], []]]}
    arguments["types"] = ["GenericList[Tensor(float),Tensor(float)]", "Int", "GenericList[Int,Int]"]
    model = trace(tmp_path, [PROCESS, node(2, "aten::cat", 1, arguments)])
    assert [model.values[row].name for row in model.nodes[0].inputs] == ["tensor 1", "tensor 2"]


def test_old_files_name_the_caller_parent(tmp_path: Path) -> None:
    call = {"id": 3, "name": "aten::mm", "rf_id": 7, "parent": 1, "fw_parent": 0, "inputs": [tensor(1)]}
    call |= {"input_shapes": [[4, 8]], "input_types": ["Tensor(float)"]}
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": [call]}))
    (mm,) = read_model(path).nodes
    assert (mm.type, mm.attributes, len(mm.inputs)) == ("aten::mm", {"rf_id": "7"}, 1)


def test_callers_in_a_circle_end(tmp_path: Path) -> None:
    model = trace(tmp_path, [node(1, "a", 2), node(2, "b", 1), node(3, "c", 2), {"id": "x"}, {"name": "y"}])
    assert [call.name for call in model.nodes] == ["c"]


@pytest.mark.skipif(not CASE.is_file(), reason="needs the case of an execution trace")
def test_the_case_has_one_product_and_is_not_a_profile() -> None:
    (mm,) = read_model(CASE).nodes
    assert mm.type == "aten::mm"
    with pytest.raises(FormatError, match=r"is a model \(execution traces of PyTorch, without times\), not a profile"):
        read_trace(CASE)
