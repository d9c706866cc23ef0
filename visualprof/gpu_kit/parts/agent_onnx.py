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


def write_model(path: Path) -> None:
    """Write a model of linear layers."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH
    shape = ["batch", WIDTH]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", f"x{LAYERS}")]
    nodes = [helper.make_node("MatMul", [f"x{i}" if i else "x", "w"], [f"x{i + 1}"]) for i in range(LAYERS)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def _loop_ms(runtime: Any, provider: str, model: Path) -> float:
    """Return the median of calls that take the inputs from the host and return the outputs there, as a job's do."""
    import numpy as np

    options = runtime.SessionOptions()
    if provider == PROVIDERS["cpu"]:
        options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(model), options, providers=[provider])
    rows = {"x": np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32)}
    durations_ms: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        session.run(None, rows)
        durations_ms.append((time.perf_counter() - start) * 1e3)
    return median(durations_ms[REPEATS // 4 :])
