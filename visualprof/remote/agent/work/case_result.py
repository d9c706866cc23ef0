"""Completes the result of a benchmark case: how it ended, and how it used the device."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import psutil

from visualprof.messages import msg
from visualprof.remote.agent.child_files import is_regular, remove_path
from visualprof.remote.agent.errors import Outcome
from visualprof.remote.agent.machine.peak_cache import update_best_peak
from visualprof.remote.agent.machine.runtimes import runtimes_folder
from visualprof.remote.agent.work.child_events import is_object, sanitize
from visualprof.remote.agent.work.monitor_samples import read_header, read_history, read_samples
from visualprof.remote.cases import CASE_SCHEMA, STEPS
from visualprof.remote.protocol import Lease

FILE_NAME = "case.json"
MAX_CASE_BYTES = 4 << 20
MAX_JSON_DEPTH = 6
OBSERVED_FIELDS = (
    "memory_used_bytes",
    "utilization",
    "power_w",
    "temperature_c",
    "clock_mhz",
    "energy_j_per_sample",
    "throttled",
)
# Means over the inference: the field, and the monitor's names on a GPU and on the host.
MEAN_FIELDS = (
    ("utilization", "util", "child_cpu"),
    ("power_w", "power_w", "cpu_power_w"),
    ("temperature_c", "temperature_c", ""),
    ("clock_mhz", "sm_mhz", ""),
)


def complete_case(out: Path, monitor: Path, lease: Lease, outcome: Outcome, env: Mapping[str, Any]) -> None:
    """Rewrite `case.json` with the outcome, the host and the use of the device.

    Args:
        out: The result folder.
        monitor: Samples of the monitor.
        lease: Lease of the task.
        outcome: How the case ended.
        env: Result of `result_folder.describe_environment`.

    Raises:
        OSError: The file cannot be written.
    """
    case = _read_case(out / FILE_NAME) or _pending_case(lease)
    gpus = [*(env.get("gpus") or ()), *read_header(monitor).get("gpus", ())]
    gpu = next((gpu for gpu in gpus if gpu["id"] == lease.spec.device), None)
    case |= {
        **{key: outcome[key] or "" for key in ("state", "reason", "error", "hint")},
        "host": str(env.get("hostname") or ""),
        "agent": str(env.get("agent") or ""),
        "finished_ns": time.time_ns(),
        "device_name": case.get("device_name") or (gpu["name"] if gpu else str(env.get("cpu") or "")),
        "memory_total_bytes": gpu["memory_bytes"] if gpu else psutil.virtual_memory().total,
        **measure_device_use(monitor, _inference_window(case)),
        **_best_peak_fields(case),
    }
    if any((_first_gpu(sample) or {}).get("others") for sample in read_samples(monitor)):
        stored = cast("object", case.get("warnings"))
        warnings = cast("list[str]", stored) if isinstance(stored, list) else []
        case["warnings"] = [
            *warnings,
            msg("agent.other_processes_computed_gpu", "other processes used the GPU during the run"),
        ]
    case["steps"] = [_finish_step(row, outcome) for row in _objects(case.get("steps"))]
    remove_path(out / FILE_NAME)
    (out / FILE_NAME).write_text(json.dumps(case, indent=1), "utf-8")


def measure_device_use(monitor: Path, window: tuple[int, int, int] | None) -> dict[str, float | None]:
    """Return how the device was used: peak memory over the whole run, and means over a window.

    Args:
        monitor: Samples of the monitor.
        window: Start in ns, end in ns, number of samples; `None` if the case did not run.
    """
    samples = list(read_samples(monitor))
    start, end, count = window or (0, -1, 0)
    if window and samples and end < samples[0]["t_ns"]:  # resumed: the values of the earlier run are still valid
        return {}
    inside = [sample for sample in samples if start <= sample["t_ns"] <= end]
    use: dict[str, float | None] = {
        "memory_used_bytes": max(_readings(samples, "memory_bytes", "rss_bytes"), default=None)
    }
    for field, on_gpu, on_host in MEAN_FIELDS:
        values = _readings(inside, on_gpu, on_host)
        use[field] = statistics.fmean(values) if values else None
    device = read_history(monitor)
    energy_j, throttled = (device.energy_j(start, end), device.was_throttled(start, end)) if count else (None, None)
    return use | {"energy_j_per_sample": None if energy_j is None else energy_j / count, "throttled": throttled}


def _readings(samples: list[dict[str, Any]], on_gpu: str, on_host: str) -> list[float]:
    """Return the known readings of the first GPU, or of the host without a GPU.

    If the driver reports the share of the task's processes, only that share counts.
    """
    gpus = [gpu for sample in samples if (gpu := _first_gpu(sample)) is not None]
    if not gpus:
        return [sample[on_host] for sample in samples if sample.get(on_host) is not None]
    process_readings = [gpu[f"own_{on_gpu}"] for gpu in gpus if gpu.get(f"own_{on_gpu}") is not None]
    return process_readings or [gpu[on_gpu] for gpu in gpus if gpu.get(on_gpu) is not None]


def _first_gpu(sample: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first GPU of a sample."""
    gpus: list[dict[str, Any]] = sample.get("gpus") or []
    return gpus[0] if gpus else None


def _best_peak_fields(case: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the best peak that this machine has reached and the resulting MFU, if the peak was measured."""
    peak, flops = case.get("peak_flops"), case.get("flops_per_s")
    if case.get("peak_source") != "measured" or not isinstance(peak, float):
        return {}
    settings = {row.get("key"): row.get("value") for row in _objects(case.get("settings"))}
    threads = str(settings.get("threads") or "0")
    device, precision = str(case.get("device_name")), str(case.get("precision"))
    best = update_best_peak(
        runtimes_folder() / ".peaks", device, precision, int(threads) if threads.isdecimal() else 0, peak
    )
    return {"peak_flops": best, "mfu": flops / best if isinstance(flops, float) and flops <= best else None}


def _inference_window(case: dict[str, Any]) -> tuple[int, int, int] | None:
    """Return start, end and number of samples of the inference; without inference, of the validation."""
    for name in ("inference", "validation"):
        if is_object(phase := case.get(name)):
            window = phase.get("start_ns"), phase.get("end_ns"), phase.get("samples")
            if all(isinstance(value, int) and value > 0 for value in window):
                return cast("tuple[int, int, int]", window)
    return None


def _read_case(file: Path) -> dict[str, Any] | None:
    """Return the child's file, which may contain anything; `None` if it is invalid."""
    try:
        content = json.loads(file.read_bytes()) if is_regular(file) and file.stat().st_size < MAX_CASE_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return sanitize(content, MAX_JSON_DEPTH) if is_object(content) and content.get("schema") == CASE_SCHEMA else None


def _pending_case(lease: Lease) -> dict[str, Any]:
    """Return the initial result, for a child that did not write its own."""
    case, steps = lease.request.case, [{"name": name, "state": "pending"} for name in STEPS]
    return {
        "schema": CASE_SCHEMA,
        "case": case.name,
        "framework": case.framework,
        "vendor": case.vendor,
        "compiler": None,
        "precision": "fp32",
        "batch_size": 0,
        "device": lease.spec.device,
        "step": STEPS[0],
        "steps": [{**steps[0], "state": "running"}, *steps[1:]],
    }


def _objects(rows: object) -> list[dict[str, Any]]:
    return [row for row in cast("list[object]", rows) if is_object(row)] if isinstance(rows, list) else []


def _finish_step(row: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Return a step with its end state, if it was still running when the child ended."""
    if row.get("state") != "running":
        return row
    return row | {"state": outcome["state"], "why": outcome["error"] or outcome["state"]}
