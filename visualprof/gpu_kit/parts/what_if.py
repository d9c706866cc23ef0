"""Forecasts of changes, compared with the step time that was measured after the change."""

from __future__ import annotations

import json
from pathlib import Path

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import limit_threads
from visualprof.gpu_kit.models import Step, cnn, slow_batches
from visualprof.gpu_kit.pairs import Pair, forecast, record_pairs
from visualprof.gpu_kit.recording import RECORDING
from visualprof.reader import read_trace

TITLE = "forecasts of changes"
BUDGET_S, PRIORITY = 30, 110
NEEDS = ("torch",)
TOLERANCES = {"step after": 0.15, "unchanged step": 0.03}
LOADING_S, HOST_WORK = 0.02, "augment"
CHANGES = "changes.json"


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record each step before and after its change."""
    limit_threads(accelerator)
    recorded = record_pairs(accelerator, folder, PAIRS)
    (folder / CHANGES).write_text(json.dumps({name: pair.change for name, pair in PAIRS.items()}))
    recorded.files.append(CHANGES)
    return recorded


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the forecasts from the recordings before the changes, and the replayed steps without a change."""
    values: dict[str, float] = {}
    for name, change in json.loads((folder / CHANGES).read_text("utf-8")).items():
        values |= forecast(read_trace(folder / f"{name}-before.{RECORDING}"), name, change)
    return {name: values[name] for name in oracle.values if name in values}


def _plain(accelerator: Accelerator) -> Step:
    return cnn(accelerator, batch=16)[1]


def _with_loader(accelerator: Accelerator) -> Step:
    """Return a step that waits for a batch from a DataLoader without workers."""
    batches, train = slow_batches(accelerator, LOADING_S), _plain(accelerator)

    def step() -> None:
        next(batches)
        train()

    return step


def _with_host_work(accelerator: Accelerator) -> Step:
    """Return a step that first computes on the host."""
    train, torch = _plain(accelerator), accelerator.torch
    matrix = torch.rand(400, 400)

    def step() -> None:
        with torch.profiler.record_function(HOST_WORK):
            for _ in range(20):
                (matrix @ matrix).tanh()
        train()

    return step


def _with_items(accelerator: Accelerator) -> Step:
    """Return a step that waits for the device after each of many small operations."""
    train, torch = _plain(accelerator), accelerator.torch
    total = torch.zeros(1, device=accelerator.kind)

    def step() -> None:
        train()
        for _ in range(200):
            total.item()

    return step


PAIRS = {
    "data loading": Pair("dataloader=0", _with_loader, _plain),
    "host work": Pair(f"host[{HOST_WORK}]=0", _with_host_work, _plain),
    "item": Pair("operator[aten::item]=0", _with_items, _plain),
}
