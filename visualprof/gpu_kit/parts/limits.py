"""A job that runs out of memory says so, and a job that is stopped gives the device back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import run_job

TITLE = "jobs out of memory, stopped jobs"
BUDGET_S, PRIORITY = 30, 100
NEEDS = ("torch",)
TOLERANCES = {"free memory": 0.01, "": 0.0}
OUTCOME = "limits.json"
START_TIMEOUT_S = 40.0


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Run a job with too large a model, then stop one while it runs."""
    reason = _reason_of_huge_job(accelerator, folder)
    before = _free_bytes(accelerator)
    left = _stop_job(accelerator, folder)
    outcome = {"failure": reason, "processes": left, "free": _free_bytes(accelerator)}
    (folder / OUTCOME).write_text(json.dumps(outcome))
    values = {"failures named out_of_memory": 1.0, "processes after the stop": 0.0}
    if before is not None:
        values["free memory after the stop, bytes"] = float(before)
    return Oracle(values=values, files=[OUTCOME])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the outcome of both jobs."""
    outcome = json.loads((folder / OUTCOME).read_text("utf-8"))
    values = {
        "failures named out_of_memory": float(outcome["failure"] == "out_of_memory"),
        "processes after the stop": float(outcome["processes"]),
        "free memory after the stop, bytes": float(outcome["free"] or 0),
    }
    return {name: values[name] for name in oracle.values}


def _reason_of_huge_job(accelerator: Accelerator, folder: Path) -> str:
    """Return the reason of the failure of a job that allocates more than any device has."""
    from visualprof.remote.protocol import TaskFailure

    model = _save(accelerator, folder, "Huge", "return x + torch.zeros(1 << 44, device=x.device).sum()")
    try:
        _measure(accelerator, model, folder)
    except TaskFailure as failure:
        return failure.reason
    finally:
        model.unlink()
    return ""


def _stop_job(accelerator: Accelerator, folder: Path) -> int:
    """Stop a job while its model runs, like Ctrl-C; return how many of its processes are left after five seconds."""
    model = _save(accelerator, folder, "Endless", "for _ in range(1 << 30):\n            x = x * 0.5\n        return x")
    command = [sys.executable, "-m", "visualprof.gpu_kit.parts.limits", accelerator.kind, str(model)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as job:
        children = _wait_for_children(psutil.Process(job.pid))
        job.send_signal(signal.SIGINT)
        job.wait(30)
    _, alive = psutil.wait_procs(children, 5)
    model.unlink()
    return len(alive)


def _wait_for_children(job: psutil.Process) -> list[psutil.Process]:
    """Return the processes of a job once its child has worked for a moment."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        children = job.children(recursive=True)
        if any(child.cpu_times().user > 2 for child in children):
            return children
        time.sleep(0.2)
    return job.children(recursive=True)


def _save(accelerator: Accelerator, folder: Path, name: str, body: str) -> Path:
    """Save a TorchScript model with this body of `forward`."""
    torch = accelerator.torch
    module = type(name, (torch.nn.Module,), {})()  # methods are defined on the type
    module.register_buffer("one", torch.ones(1, device=accelerator.kind))
    script = torch.jit.script(module)
    script.define(f"def forward(self, x):\n        {body}\n")
    path = folder / "limits.pt"
    torch.jit.save(script, path)
    return path


def _measure(accelerator: Accelerator, model: Path, folder: Path) -> None:
    from visualprof.remote.protocol import Input

    run_job(accelerator, model, "torch", folder / "job", [Input("x", "float32", ["batch", 16])])


def _free_bytes(accelerator: Accelerator) -> int | None:
    """Return the free memory of the device; None on the CPU."""
    accelerator.free_memory()
    return int(accelerator.torch.cuda.mem_get_info()[0]) if accelerator.kind == "cuda" else None


if __name__ == "__main__":
    model_path = Path(sys.argv[2])
    _measure(Accelerator(sys.argv[1]), model_path, model_path.parent)
