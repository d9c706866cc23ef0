"""A training step under `torch.compile`: the kernels that the compiler generated are found, with their times."""

from __future__ import annotations

from pathlib import Path

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.models import WIDTH, training_step
from visualprof.gpu_kit.recording import TOLERANCES, read_recording, record_steps

TITLE = "training under torch.compile"
BUDGET_S, PRIORITY = 35, 80
NEEDS = ("torch", "triton")

__all__ = ["BUDGET_S", "NEEDS", "PRIORITY", "TITLE", "TOLERANCES", "read", "record"]

read = read_recording


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record five steps of a compiled network."""
    if not accelerator.is_device:
        raise Skip("on a CPU torch.compile needs a compiler")
    torch = accelerator.torch
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = torch.compile(torch.nn.Sequential(*layers).to(accelerator.kind))
    return record_steps(
        accelerator, folder, training_step(accelerator, model, torch.rand(64, WIDTH, device=accelerator.kind))
    )
