"""Run a job on this machine without a server, with the stages, sandbox and monitor of an agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil

from visualprof.gpu_kit import Skip
from visualprof.gpu_kit.accelerator import Accelerator

MEMORY_SHARE = 0.9
BATCH = 8


def run_job(accelerator: Accelerator, model: Path, backend: str, folder: Path, inputs: list[Any]) -> Path:
    """Measure and profile a model as an agent does; return the folder of the result.

    Args:
        accelerator: Device of the job.
        model: The model file.
        backend: Name of the runtime.
        folder: Work folder of the job.
        inputs: Inputs of the model, in the form of the protocol.

    Raises:
        TaskFailure: The job failed.
        Skip: This machine has no such runtime for the device.
    """
    from visualprof.remote.agent import bundle
    from visualprof.remote.agent.machine.nvml import Nvml
    from visualprof.remote.agent.machine.probe import Interpreter
    from visualprof.remote.agent.machine.runtimes import probe_all
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.local_task import TaskFiles, run_local_task
    from visualprof.remote.protocol import Measure, ModelRef, Request, Spec, Sweep

    machine = probe_all([Interpreter(backend=backend)], [], sandbox_level("auto", _ignore), Nvml(), _ignore)
    device = accelerator.kind if accelerator.kind == "cpu" else f"{accelerator.kind}:0"
    spec = Spec(backend, backend, device=device, threads=1 if device == "cpu" else 0)
    if machine.newest_runtime(spec) is None:
        raise Skip(f"this Python has no {backend} for {device}")
    brief = Measure(warmup_s=0.3, min_s=1.5, max_s=3.0, min_n=100)
    request = Request("", ModelRef("", model.name), [spec], inputs=inputs, sweep=Sweep("batch", [BATCH]), measure=brief)
    memory = round(MEMORY_SHARE * psutil.virtual_memory().total)
    return run_local_task(
        request,
        TaskFiles(model),
        ("measure:0",),
        machine=machine,
        memory_bytes=memory,
        code=bundle.child_archive(),
        folder=folder,
    )


def first_point(result: Path) -> dict[str, Any]:
    """Return the first measured point of a result folder."""
    with (result / "points.jsonl").open(encoding="utf-8") as lines:
        return json.loads(next(lines))


def monitor_rows(result: Path) -> list[dict[str, Any]]:
    """Return the samples of the monitor of a result folder."""
    return [json.loads(line) for line in (result / "monitor.jsonl").read_text("utf-8").splitlines()]


def limit_threads(accelerator: Accelerator) -> None:
    """Limit the bare loop on a CPU to one thread, like the job."""
    if not accelerator.is_device:
        os.environ["OMP_NUM_THREADS"] = "1"
        accelerator.torch.set_num_threads(1)


def _ignore(_: str) -> None:
    """Discard a line."""
