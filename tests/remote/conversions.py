"""Models to convert, conversions as an agent runs them, and how far a made model is from its original."""

from __future__ import annotations

import io
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.remote.agent.bundle import child_archive
from visualprof.remote.agent.machine import runtimes, sandbox
from visualprof.remote.agent.machine.probe import Interpreter, InterpreterInfo, inspect_interpreter
from visualprof.remote.agent.work import conversion
from visualprof.remote.agent.work.conversion import ConversionEnvironment, ConvertedModel
from visualprof.remote.converters import Conversion, converter

Feeds = dict[str, Any]
LEVEL = 0 if sandbox.bubblewrap_problem() else 2


@cache
def seen(python: str) -> InterpreterInfo:
    """Return the capabilities of an interpreter."""
    found = inspect_interpreter(Interpreter(python), print)
    assert found
    return found


def shop(python: str = sys.executable, code: bytes = b"", **limits: Any) -> ConversionEnvironment:
    """Where conversions run. code: another archive of the child."""
    settings: dict[str, Any] = {"level": LEVEL, "memory_bytes": 8 << 30, **limits}
    return ConversionEnvironment(python, seen(python).prefixes, code=code or child_archive(), **settings)


def convert(
    name: str,
    model: Path,
    folder: Path,
    python: str = "",
    data: Feeds | None = None,
    **options: Any,
) -> ConvertedModel:
    """Converts a model, in this Python or an installed runtime; the test is skipped where none has what it takes."""
    pythons = [python] if python else [sys.executable, *runtimes.installed_pythons(runtimes.runtimes_folder())]
    able = next((interpreter for interpreter in pythons if name in seen(interpreter).converters), None)
    if able is None:
        needs = ", ".join(converter(name).needs.values())
        pytest.skip(f"needs {needs}: visualprof agent install-runtime {name}")
    rows = ""
    if data is not None:
        folder.mkdir(parents=True, exist_ok=True)
        rows = str(folder.parent / f"{folder.name}.npz")
        np.savez(rows, **data)
    return conversion.convert(Conversion(name, str(model), options, rows), {}, folder, shop(able))


def with_converter(text: str, name: str = "hostile") -> bytes:
    """The child's code with one converter more."""
    buffer = io.BytesIO(child_archive())
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(f"visualprof/remote/converters/{name}.py", text)
    return buffer.getvalue()


def run(path: Path, feeds: Feeds, optimize: bool = True) -> list[Any]:
    """Return the outputs of a model in ONNX Runtime, or in OpenVINO in f32."""
    if path.suffix == ".xml":
        ov: Any = pytest.importorskip("openvino")
        compiled = ov.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return [np.array(values) for values in compiled(feeds).values()]
    ort: Any = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds))


def difference(made: list[Any], original: list[Any]) -> float:
    """The largest error of any output against its largest value, in float64."""
    assert [(o.shape, o.dtype) for o in made] == [(o.shape, o.dtype) for o in original]
    worst = 0.0
    for first, other in zip(made, original, strict=True):
        a, b = first.astype(np.float64), other.astype(np.float64)
        assert np.isfinite(a).all()
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def small_onnx(path: Path) -> Path:
    """x float32 [batch, 3, 8, 8] -> Conv, Relu, Conv, mean, MatMul, Add, Softmax -> y [batch, 5]; opset 17."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    sizes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 64), "b3": (64,), "w4": (64, 5)}
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.4, size).astype(np.float32), name) for name, size in sizes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("ReduceMean", ["r2"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "w3"], ["h"]),
        helper.make_node("Add", ["h", "b3"], ["a"]),
        helper.make_node("MatMul", ["a", "w4"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])
    graph = helper.make_graph(nodes, "small", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
