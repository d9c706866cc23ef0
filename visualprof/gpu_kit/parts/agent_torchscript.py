"""A TorchScript model measured by a job, compared with a bare loop over the same module."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import (
    BATCH,
    LATENCY,
    first_point,
    keep_result,
    limit_threads,
    median_latency_ms,
    run_job,
)
from visualprof.gpu_kit.models import WIDTH

TITLE = "latency of a TorchScript job"
BUDGET_S, PRIORITY = 30, 60
NEEDS = ("torch",)
ENERGY = "energy per row, J"
TOLERANCES = {LATENCY: 0.02, ENERGY: 0.15}
ENERGY_S = 2.0
LAYERS, REPEATS = 6, 200


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Measure the model as a job and in a bare loop, before and after the job."""
    from visualprof.remote.protocol import Input

    torch = accelerator.torch
    limit_threads(accelerator)
    width = 8 * WIDTH
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    module = torch.nn.Sequential(*layers).eval().to(accelerator.kind)
    rows = torch.rand(BATCH, width, device=accelerator.kind)
    with torch.no_grad():
        script = torch.jit.freeze(torch.jit.trace(module, rows))
    torch.jit.save(script, folder / "model.pt")
    before_ms = _loop_ms(accelerator, script, rows)
    result = run_job(
        accelerator, folder / "model.pt", "torch", folder / "job", [Input("input", "float32", ["batch", width])]
    )
    after_ms = _loop_ms(accelerator, script, rows)
    files = keep_result(result, folder)
    values = {LATENCY: (before_ms + after_ms) / 2}
    if accelerator.kind == "cuda":
        with torch.no_grad():
            joules = _energy_per_row(lambda: script(rows), accelerator.synchronize)
        values |= {} if joules is None else {ENERGY: joules}
    return Oracle(
        values=values,
        figures={
            "bare loop before, ms": before_ms,
            "bare loop after, ms": after_ms,
            "runs": float(first_point(folder)["n"]),
        },
        files=files,
    )


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the latency that the job reports."""
    values = {LATENCY: median_latency_ms(folder), ENERGY: first_point(folder)["energy_j_per_sample"]}
    return {name: values[name] for name in oracle.values if values[name] is not None}


def _energy_per_row(call: Callable[[], object], synchronize: Callable[[], object]) -> float | None:
    """Return the joules per row of a bare loop; None without a counter of energy."""
    from visualprof.remote.child.energy import energy_meter

    meter, runs = energy_meter("cuda:0"), 0
    meter.used_j()
    deadline = time.monotonic() + ENERGY_S
    while time.monotonic() < deadline:
        call()
        synchronize()
        runs += 1
    joules = meter.used_j()
    return None if joules is None else joules / (runs * BATCH)


def _loop_ms(accelerator: Accelerator, script: Any, rows: Any) -> float:
    with accelerator.torch.no_grad():
        return accelerator.median_ms(lambda: script(rows), REPEATS, REPEATS // 4)
