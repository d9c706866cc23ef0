"""Advice about a model, compared with a bare loop over the model and over the conversion."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import BATCH, limit_threads
from visualprof.gpu_kit.models import IMAGE_SIZE, cnn

TITLE = "gain of a conversion, as advised"
BUDGET_S, PRIORITY = 30, 200
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
    shape = f"input=float32[batch,3,{IMAGE_SIZE},{IMAGE_SIZE}]"
    ask_for_advice(accelerator, folder, ["model.pt", "--backend", "torch", "--only", CANDIDATE, "--shape", shape])
    with torch.no_grad():
        frozen = torch.jit.freeze(script)
        calls = [lambda m=m: m(images) for m in (script, frozen)]
        plain_ms, frozen_ms = accelerator.alternating_ms(calls, 200, 50)
    figures = {"model, ms": plain_ms, "converted, ms": frozen_ms}
    return Oracle(values={"speed-up by freezing": plain_ms / frozen_ms}, figures=figures, files=[ADVICE])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the measured speed-up of the candidate."""
    return read_speedup(folder, oracle, CANDIDATE)


def ask_for_advice(accelerator: Accelerator, folder: Path, options: Sequence[str]) -> None:
    """Write the answer of `visualprof advise` for the device into the folder of a part."""
    words = f"--device {accelerator.job_device} --threads 1 --batch {BATCH} --budget 30 --format json"
    command = [sys.executable, "-m", "visualprof", "advise", *options, *words.split()]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    (folder / ADVICE).write_text(done.stdout)


def read_speedup(folder: Path, oracle: Oracle, candidate: str) -> dict[str, float]:
    """Return how many times as fast as the original a candidate was, under the oracle's names.

    The result is empty if the candidate was not measured.
    """
    columns: dict[str, list[Any]] = json.loads((folder / ADVICE).read_text("utf-8"))["advice"]
    row = columns["candidate"].index(candidate)
    latency_ns = columns["latency_ns"][row]
    return {} if latency_ns is None else dict.fromkeys(oracle.values, float(columns["original_ns"][row] / latency_ns))
