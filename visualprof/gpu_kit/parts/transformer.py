"""Training of a transformer in mixed precision."""

from __future__ import annotations

from pathlib import Path

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.models import transformer
from visualprof.gpu_kit.recording import TOLERANCES, read_recording, record_steps

TITLE = "training of a transformer in bf16"
BUDGET_S, PRIORITY = 20, 20
NEEDS = ("torch",)

__all__ = ["BUDGET_S", "NEEDS", "PRIORITY", "TITLE", "TOLERANCES", "read", "record"]

read = read_recording


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record five steps under autocast with bf16."""
    return record_steps(accelerator, folder, transformer(accelerator, autocast=True)[1])
