"""A TensorRT engine measured by a job, compared with a bare loop over the same engine."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from statistics import median
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import BATCH, LATENCY, keep_result, median_latency_ms, run_job
from visualprof.gpu_kit.parts.agent_onnx import WIDTH, write_model

TITLE = "latency of a TensorRT job"
BUDGET_S, PRIORITY = 30, 210
NEEDS = ("torch", "tensorrt", "onnx")
TOLERANCES = {LATENCY: 0.02}
REPEATS = 300


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Build an engine; measure it as a job and in a bare loop, before and after the job."""
    from visualprof.remote.protocol import Input

    if accelerator.kind != "cuda":
        raise Skip(f"TensorRT runs on CUDA, not on {accelerator.kind}")
    trt: Any = importlib.import_module("tensorrt")
    model, engine = folder / "model.onnx", folder / "model.engine"
    write_model(model)
    engine.write_bytes(_build(trt, model))
    before_ms = _loop_ms(accelerator, trt, engine)
    result = run_job(accelerator, engine, "tensorrt", folder / "job", [Input("x", "float32", ["batch", WIDTH])])
    after_ms = _loop_ms(accelerator, trt, engine)
    files = keep_result(result, folder)
    figures = {"bare loop before, ms": before_ms, "bare loop after, ms": after_ms}
    return Oracle(values={LATENCY: (before_ms + after_ms) / 2}, figures=figures, files=files)


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the latency that the job reports."""
    return dict.fromkeys(oracle.values, median_latency_ms(folder))


def _build(trt: Any, model: Path) -> bytes:
    """Return an engine for the batch size of the job, built with TensorRT's defaults.

    Raises:
        Skip: TensorRT cannot build it.
    """
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    if not trt.OnnxParser(network, logger).parse_from_file(str(model)):
        raise Skip("this TensorRT cannot read the model")
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    profile.set_shape("x", *[(BATCH, WIDTH)] * 3)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise Skip("this TensorRT cannot build the model")
    return bytes(plan)


def _loop_ms(accelerator: Accelerator, trt: Any, engine_file: Path) -> float:
    """Return the median of runs on tensors of PyTorch, each followed by a wait for the device, as in a job."""
    torch = accelerator.torch
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(engine_file.read_bytes())
    context, stream = engine.create_execution_context(), torch.cuda.Stream()
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    tensors = {name: torch.rand(BATCH, WIDTH, device="cuda") for name in names}
    context.set_input_shape("x", (BATCH, WIDTH))
    for name, tensor in tensors.items():
        context.set_tensor_address(name, tensor.data_ptr())
    accelerator.synchronize()
    durations_ms: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        context.execute_async_v3(stream.cuda_stream)
        stream.synchronize()
        durations_ms.append((time.perf_counter() - start) * 1e3)
    return median(durations_ms[REPEATS // 4 :])
