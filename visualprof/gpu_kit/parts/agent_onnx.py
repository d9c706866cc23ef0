"""An ONNX model measured by a job, compared with a bare loop over the runtime."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from statistics import median
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import BATCH, LATENCY, keep_result, median_latency_ms, run_job

TITLE = "latency of an ONNX job"
BUDGET_S, PRIORITY = 25, 70
NEEDS = ("torch", "onnxruntime", "onnx")
TOLERANCES = {LATENCY: 0.02}
LAYERS, WIDTH, REPEATS = 6, 1024, 200
PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Measure the model as a job and in a bare loop, before and after the job."""
    from visualprof.remote.protocol import Input

    runtime: Any = importlib.import_module("onnxruntime")
    provider = PROVIDERS.get(accelerator.kind, "")
    if provider not in runtime.get_available_providers():
        raise Skip(f"ONNX Runtime has no provider for {accelerator.kind}")
    model = folder / "model.onnx"
    write_model(model)
    before_ms = _loop_ms(runtime, provider, model)
    result = run_job(accelerator, model, "onnxruntime", folder / "job", [Input("x", "float32", ["batch", WIDTH])])
    after_ms = _loop_ms(runtime, provider, model)
    files = keep_result(result, folder)
    figures = {"bare loop before, ms": before_ms, "bare loop after, ms": after_ms}
    values = {LATENCY: (before_ms + after_ms) / 2}
    return Oracle(values=values, figures=figures, files=files)


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the latency that the job reports."""
    return dict.fromkeys(oracle.values, median_latency_ms(folder))


def write_model(path: Path, *, is_half: bool = False) -> None:
    """Write a model of linear layers with inputs and outputs in f32; `is_half`: the layers are in f16."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    precision = np.float16 if is_half else np.float32
    weights = (np.random.default_rng(0).standard_normal((WIDTH, WIDTH)) / WIDTH).astype(precision)
    shape = ["batch", WIDTH]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", f"x{LAYERS}")]
    names = ["x", *(f"x{i}" for i in range(1, LAYERS + 1))]
    inner = ["h", *names[1:-1], "y"] if is_half else names
    nodes = [helper.make_node("MatMul", [inner[i], "w"], [inner[i + 1]]) for i in range(LAYERS)]
    if is_half:
        first = helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)
        nodes = [first, *nodes, helper.make_node("Cast", ["y"], names[-1:], to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def _loop_ms(runtime: Any, provider: str, model: Path) -> float:
    """Return the median of calls that take the inputs from the host and return the outputs there, as a job's do."""
    import numpy as np

    session = open_session(runtime, provider, model)
    rows = {"x": np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32)}
    durations_ms: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        session.run(None, rows)
        durations_ms.append((time.perf_counter() - start) * 1e3)
    return median(durations_ms[REPEATS // 4 :])


def open_session(runtime: Any, provider: str, model: Path) -> Any:
    """Return a session as a job opens it; on a CPU with one thread."""
    options = runtime.SessionOptions()
    if provider == PROVIDERS["cpu"]:
        options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(model), options, providers=[provider])
