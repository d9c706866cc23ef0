"""The order in which candidates are tried."""

from __future__ import annotations

import pytest

from visualprof.remote.child.advice.candidates import Candidate, ConversionStep, round_robin, unknown_names
from visualprof.remote.protocol import Spec


def candidate(name: str, converter: str = "", backend: str = "onnxruntime") -> Candidate:
    steps = (ConversionStep(converter),) if converter else ()
    return Candidate(name, "conversion" if converter else "runtime", steps, Spec("s", backend))


def test_each_round_has_a_candidate_of_each_runtime_and_converter() -> None:
    ordered = round_robin(
        [
            candidate("ort-1"),
            candidate("ort-2"),
            candidate("ort-3"),
            candidate("openvino", backend="openvino"),
            candidate("fp16", "onnx_fp16"),
            candidate("int8-1", "ort_int8"),
            candidate("int8-2", "ort_int8"),
        ]
    )
    assert [c.name for c in ordered] == ["ort-1", "openvino", "fp16", "int8-1", "ort-2", "int8-2", "ort-3"]


@pytest.mark.parametrize(
    ("only", "unknown"),
    [
        (["onnx", "openvino-bf16", "ort-int8-static"], []),
        (["onnx-fp16+openvino", "onnx-fp16+nosuch"], ["onnx-fp16+nosuch"]),
        (["onnx_fp16", "torchscript-freeze", "original"], ["onnx_fp16", "torchscript-freeze"]),
    ],
)
def test_names_that_select_no_candidate_are_found_without_the_tools(only: list[str], unknown: list[str]) -> None:
    found, names = unknown_names(only, [Spec("a", "onnxruntime")], ".onnx")
    assert found == unknown
    assert {"onnx-fp16", "openvino", "tensorrt"} <= set(names)
    assert "openvino-bf16" not in names, "a name that extends another one is not listed"
