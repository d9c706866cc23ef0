"""A step that waits for its DataLoader, compared with the waiting time of the loop."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.gpu_kit.models import linear_layers, slow_batches
from visualprof.gpu_kit.recording import RECORDING, STEPS, record_steps
from visualprof.reader import read_trace

TITLE = "waiting for the DataLoader"
BUDGET_S, PRIORITY = 15, 160
NEEDS = ("torch",)
WAIT, FINDING = "waiting for data per step, ms", "finding about the DataLoader"
TOLERANCES = {WAIT: 0.03, FINDING: 0.0}
DELAY_S = 0.03


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record steps that take one batch each from a DataLoader without workers."""
    train = linear_layers(accelerator, 64, 2, 8)  # short, so that loading bounds the step also on a busy host
    batches = slow_batches(accelerator, DELAY_S)
    waits: list[float] = []

    def step() -> None:
        start = time.perf_counter()
        next(batches)
        waits.append((time.perf_counter() - start) * 1e3)
        train()

    recorded = record_steps(accelerator, folder, step, memory=False)
    values = {WAIT: median(waits[-STEPS:]), FINDING: 1.0}
    return Oracle(values=values, figures=recorded.figures, files=[RECORDING])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the overview's waiting time per step, and whether the first finding is about the DataLoader."""
    trace = read_trace(folder / RECORDING)
    ids = [finding.id for finding in answer(trace, "findings").findings[:1]]
    waited_ms = median(answer(trace, "overview").steps.dataloader_ns) / 1e6
    values = {WAIT: waited_ms, FINDING: float("dataloader_bound" in ids)}
    return {name: values[name] for name in oracle.values}
