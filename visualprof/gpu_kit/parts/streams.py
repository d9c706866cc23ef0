"""Kernels on two streams: their number and times, and how long the device was busy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.recording import RECORDING, read_recording, record_steps

TITLE = "kernels on two streams"
BUDGET_S = 40
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
    from visualprof.reader import read_trace
    from visualprof.views import view

    overview: Any = view("overview").answer(read_trace(folder / RECORDING), view("overview").parse({}))
    busy_ms = sorted(overview.steps.kernel_ns)[len(overview.steps.kernel_ns) // 2] / 1e6
    return read_recording(folder, oracle) | {"device busy per step, ms": busy_ms}
