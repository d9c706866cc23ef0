"""Kernels on two streams: their number and times, and how long the device was busy."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.gpu_kit.recording import RECORDING, record_steps, recording_values
from visualprof.reader import read_trace

TITLE = "kernels on two streams"
BUDGET_S, PRIORITY = 15, 50
NEEDS = ("torch",)
TOLERANCES = {"calls": 0.0, "steps": 0.0, "device busy": 0.04}
CYCLES = 20_000_000


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record kernels that spin for a number of cycles, at the same time on two streams."""
    if accelerator.kind != "cuda":
        raise Skip(f"PyTorch has no spinning kernel for {accelerator.kind}")
    torch = accelerator.torch
    streams = [torch.cuda.Stream() for _ in range(2)]

    def step() -> None:
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(CYCLES)  # noqa: SLF001 - the only kernel of PyTorch with a known duration
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)

    recorded = record_steps(accelerator, folder, step, memory=False)
    recorded.values["device busy per step, ms"] = accelerator.median_ms(step)
    return recorded


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the values of a recording, and the covered kernel time of a step."""
    trace = read_trace(folder / RECORDING)
    busy_ms = median(answer(trace, "overview").steps.kernel_ns) / 1e6
    return recording_values(trace, oracle) | {"device busy per step, ms": busy_ms}
