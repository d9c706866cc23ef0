"""Where operators ran, as each runtime reports."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES
from tests.recordings import recording_path
from tests.remote.child_runs import code, runtime_python, tiny_onnx
from visualprof.remote.backends import backend
from visualprof.remote.backends.onnxruntime import operators_by_provider
from visualprof.remote.protocol import Spec

Places = dict[str, dict[str, int]]


def places(name: str, model: Path, feeds: dict[str, Any], **spec: Any) -> Places:
    pytest.importorskip(name)
    return backend(name).load(model, Spec("s", name, threads=1, **spec), feeds).operator_placement()


def test_operators_are_counted_by_their_provider(tmp_path: Path) -> None:
    feeds = {"x": np.ones((2, 4), "float32"), "scale": np.array(1, "float32")}
    result = places("onnxruntime", tiny_onnx(tmp_path / "tiny.onnx"), feeds, options={"optimization": "disable"})
    assert result == {"CPUExecutionProvider": {"MatMul": 1, "Relu": 1, "Add": 1}}


def test_operators_left_to_the_cpu_are_separated() -> None:
    """A loop's body counts once, however often it ran; a copy between devices is an operator of its provider."""
    rows = [
        ("Conv", "CUDA", 0),
        ("Conv", "CUDA", 1),
        ("Shape", "CPU", 2),
        ("MemcpyToHost", "CUDA", 3),
        ("Shape", "CPU", 2),
    ]
    events: list[dict[str, Any]] = [
        {
            "cat": "Node",
            "name": f"n{i}_kernel_time",
            "args": {"op_name": kind, "provider": location, "node_index": str(i)},
        }
        for kind, location, i in rows
    ]
    events += [{"cat": "Session", "name": "model_run", "args": {}}, {"cat": "Node", "name": "fence", "args": {}}]
    assert operators_by_provider(events) == {"CUDA": {"Conv": 2, "MemcpyToHost": 1}, "CPU": {"Shape": 1}}


@pytest.mark.slow
def test_layers_of_openvino_are_counted_by_precision() -> None:
    """The model has 12 convolutions, as its README says; in bf16 its inputs and outputs are reordered from f32."""
    feeds = {"input": np.zeros((1, 3, 96, 96), "float32")}
    model = recording_path("models/onnx/resnet10_dynbatch.onnx")
    whole = places("openvino", model, feeds)
    assert whole["CPU f32"]["Convolution"] == 12
    assert not any("bf16" in place for place in whole)
    half = places("openvino", model, feeds, precision="auto")
    if any("bf16" in place for place in half):  # by itself where the processor is fast with it
        assert half["CPU bf16"]["Convolution"] == 12
        assert half["CPU f32"]["Reorder"] >= 2


LITERT = """
import sys
from pathlib import Path
from visualprof.remote.backends.litert import LiteRtSession
from visualprof.remote.protocol import Spec
session = LiteRtSession(Path(sys.argv[1]), Spec("s", "litert", threads=1, options={"delegate": sys.argv[2]}))
session._interpreter.allocate_tensors()
print(session.operator_placement())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "delegate", "wanted"),
    [
        ("tflite_cnn", "xnnpack", {"XNNPACK": {"CONV_2D": 2, "ADD": 2, "MEAN": 1, "FULLY_CONNECTED": 1}}),
        ("tflite_cnn", "none", {"LiteRT": {"CONV_2D": 2, "ADD": 2, "MEAN": 1, "FULLY_CONNECTED": 1}}),
        ("tflite_control", "xnnpack", {"LiteRT": {"WHILE": 1, "GREATER": 1, "IF": 1}, "XNNPACK": {"SUM": 1}}),
    ],
)
def test_operators_of_the_litert_delegate_are_separated(model: str, delegate: str, wanted: Places) -> None:
    command = [runtime_python("litert"), "-c", LITERT, str(FIXTURES / "models" / f"{model}.tflite"), delegate]
    process = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(code())}, capture_output=True, check=True, text=True
    )
    assert process.stdout.strip() == str(wanted)
