"""Steps before and after a change, and the forecast of the change from the recording before it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.gpu_kit.models import Step
from visualprof.gpu_kit.recording import RECORDING, record_steps
from visualprof.reader.trace import Trace


class Pair(msgspec.Struct):
    """A step before and after a change.

    Attributes:
        change: The change, in the words of `visualprof whatif`, or a lever of the plan.
        before: Makes the step before the change.
        after: Makes the step after it.
    """

    change: str
    before: Callable[[Accelerator], Step]
    after: Callable[[Accelerator], Step]


def record_pairs(accelerator: Accelerator, folder: Path, pairs: Mapping[str, Pair]) -> Oracle:
    """Record each step before and after its change; the oracle is the measured time of both."""
    values: dict[str, float] = {}
    figures: dict[str, float] = {}
    files: list[str] = []
    for name, pair in pairs.items():
        before = record_as(accelerator, folder, pair.before(accelerator), f"{name}-before")
        after = record_as(accelerator, folder, pair.after(accelerator), f"{name}-after")
        values |= {f"step after {name}, ms": after, f"unchanged step of {name}, ms": before}
        figures[f"gain of {name}"] = 1 - after / before
        files += [f"{name}-before.{RECORDING}", f"{name}-after.{RECORDING}"]
    return Oracle(values=values, figures=figures, files=files)


def record_as(accelerator: Accelerator, folder: Path, step: Step, name: str) -> float:
    """Record a step; return its duration by the clock in milliseconds, while it was recorded."""
    figures = record_steps(accelerator, folder, step, memory=False).figures
    shutil.move(folder / RECORDING, folder / f"{name}.{RECORDING}")
    return figures["step while recording, ms"]


def forecast(trace: Trace, name: str, change: str) -> dict[str, float]:
    """Return the replayed step without a change, and the forecast of the change if there is one, in milliseconds."""
    step = answer(trace, "whatif", change=change).step
    values = {f"unchanged step of {name}, ms": step.simulated_ns / 1e6}
    if step.predicted_ns is not None:
        values[f"step after {name}, ms"] = step.predicted_ns / 1e6
    return values
