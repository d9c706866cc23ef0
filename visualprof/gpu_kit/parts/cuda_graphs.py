"""Replays of a CUDA graph: all kernels of all replays are found, with their times."""

from __future__ import annotations

from pathlib import Path

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.recording import TOLERANCES, read_recording, record_steps

TITLE = "replays of a CUDA graph"
BUDGET_S, PRIORITY = 15, 40
NEEDS = ("torch",)
SIDE, LAYERS = 1024, 8

__all__ = ["BUDGET_S", "NEEDS", "PRIORITY", "TITLE", "TOLERANCES", "read", "record"]

read = read_recording


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Capture some products as a graph and record its replays."""
    if accelerator.kind != "cuda":
        raise Skip(f"{accelerator.kind} has no CUDA graphs")
    torch = accelerator.torch
    matrix, graph = torch.rand(SIDE, SIDE, device="cuda") / SIDE, torch.cuda.CUDAGraph()

    def products() -> None:
        result = matrix
        for _ in range(LAYERS):
            result = torch.relu(result @ matrix)

    products()
    with torch.cuda.graph(graph):
        products()
    return record_steps(accelerator, folder, graph.replay, memory=False)
