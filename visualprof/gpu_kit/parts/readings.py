"""Readings of the driver while the device works, compared with nvidia-smi, the energy counter and the allocator."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator

TITLE = "readings of the driver"
BUDGET_S, PRIORITY = 20, 90
NEEDS = ("torch",)
POWER, CLOCK, TEMPERATURE, BUSY = "power, W", "SM clock, MHz", "temperature, C", "utilization"
ENERGY, ALLOCATION, THROTTLED = "energy, J", "memory of an allocation, bytes", "whether it is throttled"
TOLERANCES = {
    POWER: 0.04,
    CLOCK: 0.04,
    TEMPERATURE: 0.04,
    BUSY: 0.04,
    ENERGY: 0.04,
    ALLOCATION: 0.01,
    THROTTLED: 0.0,
}
SAMPLES = "readings.json"
SMI_FIELDS = ("power.draw", "clocks.sm", "temperature.gpu", "utilization.gpu", "clocks_throttle_reasons.active")
WARM_UP_S, WORK_S, INTERVAL_S, SIDE, BLOCK_BYTES = 2.0, 6.0, 0.1, 8192, 4 << 30


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Read the driver while matrix products run; nvidia-smi reads it at the same time."""
    from visualprof.remote.agent.machine.nvml import Nvml

    if accelerator.kind != "cuda":
        raise Skip(f"the readings are those of NVIDIA's driver, not of {accelerator.kind}")
    if not shutil.which("nvidia-smi"):
        raise Skip("nvidia-smi is missing")
    nvml = Nvml()
    device, torch = accelerator.job_device, accelerator.torch
    number = nvml.uuid(device)
    if number is None:
        raise Skip(f"NVML does not know {device}: {nvml.problem}")
    before = nvml.sample(device)["memory_bytes"]
    block = torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=device)
    accelerator.synchronize()
    allocated = nvml.sample(device)["memory_bytes"] - before
    matrix = torch.rand(SIDE, SIDE, device=device)
    stop = threading.Event()
    work = threading.Thread(target=_work, args=(stop, lambda: torch.mm(matrix, matrix), accelerator.synchronize))
    work.start()
    time.sleep(WARM_UP_S)
    samples, others, joules = _read_both(nvml, device, number)
    stop.set()
    work.join()
    (folder / SAMPLES).write_text(json.dumps({"samples": samples, "allocated": allocated}))
    values = {name: median(row[i] for row in others) for i, name in enumerate((POWER, CLOCK, TEMPERATURE))}
    values[BUSY] = median(row[3] for row in others) / 100
    values[THROTTLED] = float(median(row[4] for row in others))
    values |= {ALLOCATION: float(block.nbytes)} | ({} if joules is None else {ENERGY: joules})
    return Oracle(values=values, figures={"readings": float(len(samples))}, files=[SAMPLES])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the medians of the readings, the integral of the power, and whether most readings are throttled."""
    recorded: dict[str, Any] = json.loads((folder / SAMPLES).read_text("utf-8"))
    samples: list[dict[str, Any]] = recorded["samples"]
    keys = {POWER: "power_w", CLOCK: "sm_mhz", TEMPERATURE: "temperature_c", BUSY: "util"}
    values = {name: _median(samples, key) for name, key in keys.items()}
    values[ENERGY] = _energy_j(samples)
    values[ALLOCATION] = recorded["allocated"]
    values[THROTTLED] = median(float(bool(sample["throttle"])) for sample in samples)
    return {name: value for name, value in values.items() if name in oracle.values and value is not None}


def _work(stop: threading.Event, product: Callable[[], object], synchronize: Callable[[], None]) -> None:
    """Keep the device busy."""
    while not stop.is_set():
        for _ in range(8):
            product()
        synchronize()


def _read_both(nvml: Any, device: str, number: str) -> tuple[list[dict[str, Any]], list[list[float]], float | None]:
    """Return our readings, the readings of nvidia-smi, and the joules that the driver counted meanwhile."""
    from visualprof.remote.child.energy import energy_meter

    meter, samples = energy_meter(device), list[dict[str, Any]]()
    query = [f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits", "-i", number]
    with subprocess.Popen(["nvidia-smi", *query, "-lms", "100"], stdout=subprocess.PIPE, text=True) as smi:
        meter.used_j()
        end = time.monotonic() + WORK_S
        while time.monotonic() < end:
            samples.append({"t_ns": time.time_ns(), **nvml.sample(device)})
            time.sleep(INTERVAL_S)
        joules = meter.used_j()
        smi.terminate()
        text = smi.communicate()[0]
    return samples, [row for line in text.splitlines() if (row := _smi_row(line))], joules


def _smi_row(line: str) -> list[float]:
    """Return a line of nvidia-smi as numbers, with 1 for a throttled device; [] for an incomplete line."""
    from visualprof.remote.agent.machine.nvml import THROTTLE_REASONS

    cells = [cell.strip() for cell in line.split(",")]
    try:
        reasons = int(cells[4], 16)
        return [*map(float, cells[:4]), float(any(reasons & bit for bit in THROTTLE_REASONS))]
    except (IndexError, ValueError):
        return []


def _median(samples: list[dict[str, Any]], key: str) -> float | None:
    numbers = [sample[key] for sample in samples if sample[key] is not None]
    return float(median(numbers)) if numbers else None


def _energy_j(samples: list[dict[str, Any]]) -> float | None:
    """Return the power integrated over the samples, as for the points of a job."""
    from visualprof.remote.agent.work.monitor_samples import DeviceHistory

    times = [sample["t_ns"] for sample in samples]
    history = DeviceHistory(times, [sample["power_w"] for sample in samples], [None] * len(samples))
    return history.energy_j(times[0], times[-1])
