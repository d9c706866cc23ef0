"""An ONNX model in f16, as advised, compared with a bare loop over a model in f16 that is written by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import BATCH
from visualprof.gpu_kit.parts.advice import ADVICE, ask_for_advice, read_speedup
from visualprof.gpu_kit.parts.agent_onnx import PROVIDERS, WIDTH, open_session, write_model

TITLE = "gain of f16, as advised"
BUDGET_S, PRIORITY = 25, 205
NEEDS = ("torch", "onnxruntime", "onnx")
TOLERANCES = {"speed-up": 0.1}
CANDIDATE = "onnx-fp16"


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Ask for advice with one conversion; time the model in f32 and in f16 in a bare loop."""
    import numpy as np

    runtime: Any = importlib.import_module("onnxruntime")
    provider = PROVIDERS.get(accelerator.kind, "")
    if provider not in runtime.get_available_providers():
        raise Skip(f"ONNX Runtime has no provider for {accelerator.kind}")
    plain, half = folder / "model.onnx", folder / "half.onnx"
    write_model(plain)
    write_model(half, is_half=True)
    shape = f"x=float32[batch,{WIDTH}]"
    options = [plain.name, "--backend", "onnxruntime", "--only", CANDIDATE, "--shape", shape]
    ask_for_advice(accelerator, folder, options)
    rows = {"x": np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32)}
    sessions = [open_session(runtime, provider, model) for model in (plain, half)]
    calls = [lambda session=session: session.run(None, rows) for session in sessions]
    plain_ms, half_ms = accelerator.alternating_ms(calls, 200, 50)
    figures = {"model, ms": plain_ms, "converted, ms": half_ms}
    return Oracle(values={"speed-up by f16": plain_ms / half_ms}, figures=figures, files=[ADVICE])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the measured speed-up of the candidate."""
    return read_speedup(folder, oracle, CANDIDATE)
