"""A call of an operator as data: conversion from a profile, file format, and script."""

from __future__ import annotations

import ast
import json

import pytest

from visualprof.remote.operators import MAGIC, Call, decode_call
from visualprof.remote.operators.comparison import comparison_lines
from visualprof.remote.operators.script import script
from visualprof.remote.protocol import TaskFailure
from visualprof.server.recorded.torch import kineto_call

RESULT = {
    "overload": "aten::mm.default",
    "device": "cpu",
    "runtime": "PyTorch 2.0",
    "threads": 1,
    "repeats": 3,
    "median_ns": 2000,
    "min_ns": 1000,
    "max_ns": 3000,
    "clock_ns": 100,
    "profiled_host_ns": 4000,
    "profiled_device_ns": None,
    "assumed": [],
}


def call(shapes: object, strides: object, types: object, values: object) -> Call:
    return kineto_call("aten::op", json.dumps(shapes), json.dumps(strides), json.dumps(types), json.dumps(values))


def tensor(shape: list[int], strides: list[int] | None, dtype: str | None) -> dict[str, object]:
    return {"shape": shape, "strides": strides, "dtype": dtype}


def test_tensors_numbers_and_missing_values_are_distinguished() -> None:
    shapes = [[2, 3], [], [[4], [5]], [], [], [], [], [], []]
    types = ["c10::BFloat16", "double", "TensorList", "Scalar", "Scalar", "ScalarList", "", "Scalar", "Scalar"]
    values = ["", "", "", "-1", "0.5", "[1, 2]", "", "True", "-inf"]
    arguments = call(shapes, [[1, 2], [], [[1], [1]], [], [], [], [], [], []], types, values).arguments
    lists = {"tensors": [tensor([4], [1], None), tensor([5], [1], None)]}
    expected = [
        tensor([2, 3], [1, 2], "bfloat16"),
        tensor([], [], "float64"),
        lists,
        -1,
        0.5,
        [1, 2],
        None,
        True,
        "-inf",
    ]
    assert arguments == expected


def test_profiles_without_strides_or_values_have_none() -> None:
    arguments = kineto_call("aten::op", "[[2, 3], []]", "", '["float", "Scalar"]', "").arguments
    assert arguments == [tensor([2, 3], None, "float32"), None]


@pytest.mark.parametrize("text", ["__import__('os')", "a,b->ab", "cuda:0", "[1, 'x']", "1e999", "[[1]]"])
def test_no_text_of_a_profile_becomes_code(text: str) -> None:
    assert call([[]], [[]], ["Scalar"], [text]).arguments == [None]


@pytest.mark.parametrize(
    "name", ["MmBackward0", "aten::mm; x", "a::b::c", "aten::mm\n", "aten::m\u00fc", "triton_poi_0", ""]
)
def test_invalid_operators_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="run an operator inside it"):
        kineto_call(name, "[[2]]", "", '["float"]', "")


@pytest.mark.parametrize(
    "shapes", ["[[-1]]", "[[1e3]]", "[[true]]", "{}", "[[", "[" * 5000, f"[[{1 << 60}]]", "[3]", '[["a"]]']
)
def test_invalid_shapes_are_rejected(shapes: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|neither a tensor"):
        kineto_call("aten::op", shapes, "", '["float"]', "")


def test_without_shapes_the_hint_is_how_to_record_them() -> None:
    with pytest.raises(ValueError, match="record_shapes=True"):
        kineto_call("aten::mm", "", "", "", "")


def test_a_file_gives_the_same_call() -> None:
    first = kineto_call("aten::mm", "[[2, 3], [3, 4]]", "", '["float", "float"]', "", {"calls": 2, "host_ns": 5})
    assert decode_call(first.encoded()) == first


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"operator": "aten::mm"}',
        b'{"operator": "os.system", "arguments": []}',
        b'{"operator": "aten::mm", "arguments": ["x"]}',
        b'{"operator": "aten::mm", "arguments": [{"shape": [1]}]}',
        b'{"operator": "aten::mm", "arguments": [], "recorded": {"device": "a\\nb"}}',
        b'{"operator": "aten::mm", "arguments": [], "recorded": {"x": 1}}',
        b"[" * 100_000,
    ],
)
def test_other_files_are_refused(body: bytes) -> None:
    with pytest.raises(TaskFailure, match="not an operator call"):
        decode_call(MAGIC + b"\n" + body)
    with pytest.raises(TaskFailure, match="not an operator call"):
        decode_call(body)


def test_the_script_is_python_with_the_call_as_literals() -> None:
    operator_call = kineto_call("aten::mm", "[[2, 3], [3, 4]]", "", '["float", "float"]', "", {"device": "NVIDIA H200"})
    tree = ast.parse(script(operator_call))
    values = {
        n.targets[0].id: n.value for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    }
    assert ast.literal_eval(values["CALL"]) == {"operator": "aten::mm", "arguments": operator_call.arguments}
    assert "visualprof." not in script(operator_call)


def test_a_name_that_would_end_the_docstring_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a name of an operator"):
        script(Call('aten::x"""', []))


def test_the_replay_is_compared_with_the_profile_and_the_peak() -> None:
    lines = comparison_lines(RESULT, {"calls": 7, "host_ns": 6000, "peak_ns": 1000})
    assert [line for line in lines if "1.50 times as long" in line and "7 calls" in line]
    assert [line for line in lines if "25% of it reached" in line]
