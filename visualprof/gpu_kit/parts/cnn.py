"""Training of a convolutional network."""

from __future__ import annotations

from pathlib import Path

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.models import cnn
from visualprof.gpu_kit.recording import TOLERANCES, read_recording, record_steps

TITLE = "training of a CNN"
BUDGET_S, PRIORITY = 25, 10
NEEDS = ("torch",)

__all__ = ["BUDGET_S", "NEEDS", "PRIORITY", "TITLE", "TOLERANCES", "read", "record"]

read = read_recording


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record five steps in fp32."""
    return record_steps(accelerator, folder, cnn(accelerator)[1])
