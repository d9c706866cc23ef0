"""Training in TF32: products run on tensor cores."""

from __future__ import annotations

from pathlib import Path

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.models import linear_layers
from visualprof.gpu_kit.recording import TOLERANCES, read_recording, record_steps

TITLE = "training in TF32"
BUDGET_S, PRIORITY = 15, 75
NEEDS = ("torch",)
WIDTH, DEPTH, ROWS = 1024, 4, 512

__all__ = ["BUDGET_S", "NEEDS", "PRIORITY", "TITLE", "TOLERANCES", "read", "record"]

read = read_recording


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record five steps of linear layers."""
    if accelerator.kind != "cuda":
        raise Skip(f"TF32 is a precision of NVIDIA's devices, not of {accelerator.kind}")
    accelerator.torch.backends.cuda.matmul.allow_tf32 = True
    return record_steps(accelerator, folder, linear_layers(accelerator, WIDTH, DEPTH, ROWS))
