"""The plan of a slow training step, followed rung by rung: each predicted step is compared with the measured one."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.gpu_kit.local_job import limit_threads
from visualprof.gpu_kit.models import Step, linear_layers, slow_batches
from visualprof.gpu_kit.pairs import record_as
from visualprof.gpu_kit.recording import RECORDING
from visualprof.reader import read_trace

TITLE = "the rungs of a plan"
BUDGET_S, PRIORITY = 25, 130
NEEDS = ("torch",)
UNCHANGED = "step as recorded, ms"
TOLERANCES = {"step after": 0.2, UNCHANGED: 0.03}
RUNGS, BEFORE = "rungs.json", f"before.{RECORDING}"
LOADING_S, ITEMS = 0.01, 50
DEVICE_SIZES, HOST_SIZES = (2048, 512), (256, 128)  # width and rows, so that loading is a large part of the step
DEVICE_WORKERS, HOST_WORKERS = 8, 3  # on a CPU, more workers would take processor time from the training
LOADING, WAITING = "dataloader_workers", "no_synchronization"
PRECISION, OPTIMIZER = "mixed_precision", "fused_optimizer"
LEVERS = {LOADING, WAITING, PRECISION, OPTIMIZER}


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record the step, and measure it again after each rung of its plan that this program can follow.

    Raises:
        Skip: The plan starts with something else.
    """
    limit_threads(accelerator)
    before_ms = record_as(accelerator, folder, _step(accelerator, ()), "before")
    names: list[str] = []
    values = {UNCHANGED: before_ms}
    files = [BEFORE, RUNGS]
    for lever, _ in _rungs(folder / BEFORE):
        if lever not in LEVERS:
            break
        names.append(lever)
        after = f"after-{len(names)}"
        values[_label(names)] = record_as(accelerator, folder, _step(accelerator, names), after)
        files.append(f"{after}.{RECORDING}")
    if not names:
        raise Skip("the plan has no rung that this program can follow")
    (folder / RUNGS).write_text(json.dumps(names))
    return Oracle(values=values, files=files)


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the predicted step after each rung, as long as the plan has the same rungs."""
    names: list[str] = json.loads((folder / RUNGS).read_text("utf-8"))
    values = {UNCHANGED: answer(read_trace(folder / BEFORE), "plan").baseline_ns / 1e6}
    for i, (name, (lever, step_ns)) in enumerate(zip(names, _rungs(folder / BEFORE), strict=False)):
        if name != lever:
            break
        values[_label(names[: i + 1])] = step_ns / 1e6
    return {name: values[name] for name in oracle.values if name in values}


def _rungs(path: Path) -> list[tuple[str, float]]:
    """Return the rungs of the plan with a predicted step time, and that time in ns."""
    columns = answer(read_trace(path), "plan").rungs.columns
    return [(lever, ns) for lever, ns in zip(columns.lever, columns.step_ns, strict=True) if ns is not None]


def _label(names: list[str]) -> str:
    return f"step after {len(names)}. {names[-1]}, ms"


def _step(accelerator: Accelerator, levers: Collection[str]) -> Step:
    """Return the training step with some of its faults removed."""
    options = {"fused": True} if OPTIMIZER in levers else {}
    width, rows = DEVICE_SIZES if accelerator.is_device else HOST_SIZES
    train = linear_layers(accelerator, width, 4, rows, autocast=PRECISION in levers, **options)
    workers = DEVICE_WORKERS if accelerator.is_device else HOST_WORKERS
    batches = slow_batches(accelerator, LOADING_S, workers if LOADING in levers else 0)
    total = accelerator.torch.zeros(1, device=accelerator.kind)

    def step() -> None:
        next(batches)
        train()
        for _ in range(0 if WAITING in levers else ITEMS):
            total.item()

    return step
