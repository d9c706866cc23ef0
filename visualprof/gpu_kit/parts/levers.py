"""Levers of the plan: the forecast of each, compared with the step that was measured with the lever."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.gpu_kit.models import Step, cnn, linear_layers, slow_batches, wide_cnn
from visualprof.gpu_kit.pairs import Pair, forecast, record_pairs
from visualprof.gpu_kit.recording import RECORDING
from visualprof.reader import read_trace
from visualprof.reader.trace import Trace

TITLE = "forecasts of the plan's levers"
BUDGET_S, PRIORITY = 40, 120
NEEDS = ("torch",)
TOLERANCES = {"step after": 0.15, "unchanged step": 0.03}
LEVERS, BATCH_LEVER, BATCH_CHANGE = "levers.json", "larger_batch", "gpu*2"
LOADING_S, WORKERS, SMALL_KERNELS = 0.008, 8, 200


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record each step before and after pulling its lever."""
    if accelerator.kind != "cuda":
        raise Skip(f"the levers are those of CUDA devices, not of {accelerator.kind}")
    recorded = record_pairs(accelerator, folder, PAIRS)
    (folder / LEVERS).write_text(json.dumps({name: pair.change for name, pair in PAIRS.items()}))
    predicted = read(folder, recorded)
    errors = [abs(predicted[name] / value - 1) for name, value in recorded.values.items() if name in predicted]
    recorded.figures["median error of the forecasts"] = median(errors) if errors else 1.0
    recorded.files.append(LEVERS)
    return recorded


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the forecasts of the levers that the plan offers, and the replayed steps without a change."""
    values: dict[str, float] = {}
    for name, lever in json.loads((folder / LEVERS).read_text("utf-8")).items():
        trace = read_trace(folder / f"{name}-before.{RECORDING}")
        change = _change(trace, lever)
        values |= forecast(trace, name, change) if change else {}
    return {name: values[name] for name in oracle.values if name in values}


def _change(trace: Trace, lever: str) -> str:
    """Return the change that the plan replays for a lever; "" if the plan does not offer the lever."""
    if lever == BATCH_LEVER:
        return BATCH_CHANGE
    rungs = answer(trace, "plan").rungs.columns
    changes = [change for name, change in zip(rungs.lever, rungs.change, strict=True) if name == lever]
    return changes[0] or "" if changes else ""


def _loading(accelerator: Accelerator, workers: int) -> Step:
    """Return a training step that takes its batches from a DataLoader."""
    batches, train = slow_batches(accelerator, LOADING_S, workers), cnn(accelerator)[1]

    def step() -> None:
        next(batches)
        train()

    return step


def _small_kernels(accelerator: Accelerator) -> Step:
    """Return a step of many small kernels."""
    torch = accelerator.torch
    matrix = torch.rand(64, 64, device=accelerator.kind)

    def step() -> None:
        result = matrix
        for _ in range(SMALL_KERNELS):
            result = torch.relu(result)

    return step


def _graph(accelerator: Accelerator) -> Step:
    """Return the replay of the same kernels as one CUDA graph."""
    torch, step = accelerator.torch, _small_kernels(accelerator)
    graph = torch.cuda.CUDAGraph()
    step()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


PAIRS = {
    "bf16": Pair(
        "mixed_precision",
        lambda accelerator: linear_layers(accelerator, 4096, 4, 1024),
        lambda accelerator: linear_layers(accelerator, 4096, 4, 1024, autocast=True),
    ),
    "channels last": Pair(
        "channels_last",
        lambda accelerator: wide_cnn(accelerator, channels_last=False),
        lambda accelerator: wide_cnn(accelerator, channels_last=True),
    ),
    "fused optimizer": Pair(
        "fused_optimizer",
        lambda accelerator: linear_layers(accelerator, 64, 200, 64),
        lambda accelerator: linear_layers(accelerator, 64, 200, 64, fused=True),
    ),
    "CUDA graph": Pair("fewer_launches", _small_kernels, _graph),
    "workers": Pair(
        "dataloader_workers",
        lambda accelerator: _loading(accelerator, 0),
        lambda accelerator: _loading(accelerator, WORKERS),
    ),
    "batch": Pair(
        BATCH_LEVER,
        lambda accelerator: linear_layers(accelerator, 2048, 4, 4096),
        lambda accelerator: linear_layers(accelerator, 2048, 4, 8192),
    ),
}
