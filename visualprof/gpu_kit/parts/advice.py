"""Advice about a model, compared with a bare loop over the model and over the conversion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import BATCH, limit_threads
from visualprof.gpu_kit.models import IMAGE_SIZE, cnn

TITLE = "gain of a conversion, as advised"
BUDGET_S, PRIORITY = 35, 200
NEEDS = ("torch",)
TOLERANCES = {"speed-up": 0.1}
ADVICE, CANDIDATE = "advice.json", "torchscript-freeze"


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Ask for advice with one conversion; time the model and its conversion in a bare loop."""
    torch = accelerator.torch
    limit_threads(accelerator)
    model, _ = cnn(accelerator)
    images = torch.rand(BATCH, 3, IMAGE_SIZE, IMAGE_SIZE, device=accelerator.kind)
    with torch.no_grad():
        script = torch.jit.trace(model.eval(), images)
    torch.jit.save(script, folder / "model.pt")
    command = [sys.executable, "-m", "visualprof", "advise", "model.pt", "--backend", "torch", "--device"]
    shape = f"input=float32[batch,3,{IMAGE_SIZE},{IMAGE_SIZE}]"
    words = f"{accelerator.job_device} --threads 1 --batch {BATCH} --only {CANDIDATE} --budget 30 --format json"
    options = [*words.split(), "--shape", shape]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True, cwd=folder)
    (folder / ADVICE).write_text(done.stdout)
    with torch.no_grad():
        frozen = torch.jit.freeze(script)
        calls = [lambda m=m: m(images) for m in (script, frozen)]
        plain_ms, frozen_ms = accelerator.alternating_ms(calls, 200, 50)
    figures = {"model, ms": plain_ms, "converted, ms": frozen_ms}
    return Oracle(values={"speed-up by freezing": plain_ms / frozen_ms}, figures=figures, files=[ADVICE])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the measured speed-up of the candidate."""
    columns: dict[str, list[Any]] = json.loads((folder / ADVICE).read_text("utf-8"))["advice"]
    row = columns["candidate"].index(CANDIDATE)
    if columns["latency_ns"][row] is None:  # it was not measured
        return {}
    speedup = float(columns["original_ns"][row] / columns["latency_ns"][row])
    return dict.fromkeys(oracle.values, speedup)
