"""Run a job on this machine without a server, with the stages, sandbox and monitor of an agent."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Skip
from visualprof.gpu_kit.accelerator import Accelerator

BATCH = 8
LATENCY = "median latency, ms"
RESULT_FILES = ("points.jsonl", "monitor.jsonl", "env.json")


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
    from visualprof.remote.agent.machine.processes import default_memory_bytes
    from visualprof.remote.agent.machine.runtimes import probe_all
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.local_task import TaskFiles, run_local_task
    from visualprof.remote.protocol import Measure, ModelRef, Request, Spec, Sweep

    machine = probe_all([Interpreter(backend=backend)], [], sandbox_level("auto", _ignore), Nvml(), _ignore)
    device = accelerator.job_device
    spec = Spec(backend, backend, device=device, threads=0 if accelerator.is_device else 1)
    if machine.newest_runtime(spec) is None:
        raise Skip(f"this Python has no {backend} for {device}")
    brief = Measure(warmup_s=0.3, min_s=1.5, max_s=3.0, min_n=100)
    request = Request("", ModelRef("", model.name), [spec], inputs=inputs, sweep=Sweep("batch", [BATCH]), measure=brief)
    return run_local_task(
        request,
        TaskFiles(model),
        ("measure:0",),
        machine=machine,
        memory_bytes=default_memory_bytes(),
        code=bundle.child_archive(),
        folder=folder,
    )


def keep_result(result: Path, folder: Path) -> list[str]:
    """Move the files about the measured point from a result folder into the folder of a part; return their names."""
    for name in RESULT_FILES:
        shutil.move(result / name, folder / name)
    return list(RESULT_FILES)


def first_point(folder: Path) -> dict[str, Any]:
    """Return the first measured point."""
    with (folder / "points.jsonl").open(encoding="utf-8") as lines:
        return json.loads(next(lines))


def median_latency_ms(folder: Path) -> float:
    """Return the median latency of the first measured point."""
    return first_point(folder)["p50_ns"] / 1e6


def limit_threads(accelerator: Accelerator) -> None:
    """Limit the bare loop on a CPU to one thread, like the job."""
    if not accelerator.is_device:
        os.environ["OMP_NUM_THREADS"] = "1"
        accelerator.torch.set_num_threads(1)


def _ignore(_: str) -> None:
    """Discard a line."""
