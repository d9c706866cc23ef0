"""A step that waits for its DataLoader, held against the time that the loop itself waited."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.models import cnn
from visualprof.gpu_kit.recording import RECORDING, record_steps

TITLE = "waiting for the DataLoader"
BUDGET_S = 60
NEEDS = ("torch",)
TOLERANCES = {"waiting": 0.03, "finding": 0.0}
DELAY_S = 0.03


class SlowImages:
    """Images that take some time to load."""

    def __len__(self) -> int:
        """Return the number of images."""
        return 1 << 20

    def __getitem__(self, _: int) -> int:
        """Return an image after the delay."""
        time.sleep(DELAY_S)
        return 0


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record steps that take one batch each from a DataLoader without workers."""
    _, train = cnn(accelerator, batch=8)
    images: Any = SlowImages()
    batches = iter(accelerator.torch.utils.data.DataLoader(images, 1))
    waits: list[float] = []

    def step() -> None:
        start = time.perf_counter()
        next(batches)
        waits.append((time.perf_counter() - start) * 1e3)
        train()

    recorded = record_steps(accelerator, folder, step, memory=False)
    values = {"waiting for data per step, ms": median(waits[-5:]), "finding about the DataLoader": 1.0}
    return Oracle(values=values, figures=recorded.figures, files=[RECORDING])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the overview's waiting time per step, and whether the first finding is about the DataLoader."""
    from visualprof.reader import read_trace
    from visualprof.views import view

    trace = read_trace(folder / RECORDING)
    overview: Any = view("overview").answer(trace, view("overview").parse({}))
    findings: Any = view("findings").answer(trace, view("findings").parse({}))
    ids = [finding.id for finding in findings.findings[:1]]
    names = list(oracle.values)
    return {names[0]: median(overview.steps.dataloader_ns) / 1e6, names[1]: float("dataloader_bound" in ids)}
