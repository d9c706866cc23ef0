"""An ONNX model in f16, as advised, compared with a bare loop over a model in f16 that is written by hand."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from statistics import median
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import BATCH
from visualprof.gpu_kit.parts.advice import ADVICE, advised_speedup, ask_for_advice
from visualprof.gpu_kit.parts.agent_onnx import PROVIDERS, WIDTH, open_session, write_model

TITLE = "gain of f16, as advised"
BUDGET_S, PRIORITY = 25, 205
NEEDS = ("torch", "onnxruntime", "onnx")
TOLERANCES = {"speed-up": 0.1}
CANDIDATE, REPEATS = "onnx-fp16", 200


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Ask for advice with one conversion; time the model in f32 and in f16 in a bare loop, call by call."""
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
    plain_ms, half_ms = _alternating_ms(runtime, provider, (plain, half))
    figures = {"model, ms": plain_ms, "converted, ms": half_ms}
    return Oracle(values={"speed-up by f16": plain_ms / half_ms}, figures=figures, files=[ADVICE])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the measured speed-up of the candidate."""
    return dict.fromkeys(oracle.values, speedup) if (speedup := advised_speedup(folder, CANDIDATE)) else {}


def _alternating_ms(runtime: Any, provider: str, models: tuple[Path, ...]) -> list[float]:
    """Return the median of calls of each model. The models take turns, so that both meet the same load."""
    import numpy as np

    sessions = [open_session(runtime, provider, model) for model in models]
    rows = {"x": np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32)}
    durations_ms: list[list[float]] = [[] for _ in models]
    for _ in range(REPEATS):
        for session, durations in zip(sessions, durations_ms, strict=True):
            start = time.perf_counter()
            session.run(None, rows)
            durations.append((time.perf_counter() - start) * 1e3)
    return [median(durations[REPEATS // 4 :]) for durations in durations_ms]
