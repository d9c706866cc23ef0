"""Result folders with known numbers, for the Evaluation page and its pictures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import SAMPLES

PROFILE = SAMPLES / "onnxruntime-cpu" / "if_loop.json.gz"
ENOUGH = {"p50_ns": 11, "p90_ns": 64, "p95_ns": 130, "p99_ns": 662}
START = 1_795_000_000_000_000_000


def latencies(batch: int, n: int, base_ns: float, seed: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Mostly alike, with a tail; sublinear in the batch."""
    random = np.random.default_rng(seed)
    latencies_ns = base_ns * batch**0.8 * (1 + random.gamma(1.2, 0.04, n)) * np.where(random.random(n) < 0.01, 3, 1)
    return latencies_ns.astype(np.uint32)


def point(batch: int, taken: np.ndarray[Any, np.dtype[np.uint32]], offset: int, **more: Any) -> dict[str, Any]:
    """A line of points.jsonl about these runs."""
    n, total = len(taken), int(taken.sum())
    shares = {"p50_ns": 50, "p90_ns": 90, "p95_ns": 95, "p99_ns": 99}
    percentiles = {k: int(np.percentile(taken, p)) if n >= ENOUGH[k] else None for k, p in shares.items()}
    start = START + batch * 10_000_000_000
    row = {
        "batch": batch,
        "n": n,
        "duration_ns": total,
        "load_ns": 41_000_000,
        "first_ns": int(taken[0]) * 3,
        "warmup_n": 20,
        "qps": n / total * 1e9,
        "samples_per_s": n * batch / total * 1e9,
        "whole_samples_per_s": n * batch / total * 0.8e9,
        "mean_ns": total // n,
        "min_ns": int(taken.min()),
        "max_ns": int(taken.max()),
        **percentiles,
        "p999_ns": None,
        "trusted": [p for k, p in shares.items() if n >= ENOUGH[k]],
        "iqr_ns": int(taken.std()),
        "window_p50_ns": [int(np.median(part)) for part in np.array_split(taken, 3)],
        "stable": True,
        "involuntary_switches": 3,
        "pressure": 0.02,
        "host_busy": False,
        "rss_bytes": 210 << 20,
        "gpu_memory_bytes": None,
        "energy_j_per_sample": None,
        "throttled": None,
        "start_ns": start,
        "end_ns": start + total,
        "latencies": [offset, n],
    }
    return row | more


def sample(t_ns: int, batch: int, gpu: bool) -> dict[str, Any]:
    """A line of monitor.jsonl."""
    wave = (t_ns // 100_000_000) % 7
    environment = {
        "util": 0.6 + 0.05 * wave,
        "mem_util": 0.2,
        "sm_mhz": 1980 - 15 * wave,
        "mem_mhz": 2619,
        "memory_bytes": 2 << 30,
        "power_w": 310 + wave,
        "temperature_c": 46,
        "throttle": 0,
    }
    return {
        "t_ns": t_ns,
        "phase": "measuring",
        "batch": batch,
        "cpu": 0.3 + 0.02 * wave,
        "child_cpu": 0.26,
        "load1": 1.2,
        "pressure": 0.02,
        "rss_bytes": 210 << 20,
        "involuntary_switches": 3,
        "gpus": [environment] if gpu else [],
    }


def environment(
    agent: str, backend: str, version: str, device: str, effective: dict[str, str] | None
) -> dict[str, Any]:
    """Return env.json: the machine and the runtime of a result."""
    return {
        "agent": agent,
        "agent_id": "a1",
        "platform": "cuda" if device.startswith("cuda") else "x86",
        "machine": "x86_64",
        "system": "Linux",
        "hostname": agent,
        "cpu": "Xeon Platinum 8480+",
        "cores": 16,
        "python": "3.11.7",
        "backend": backend,
        "gpus": [{"id": "cuda:0", "name": "NVIDIA H200"}] if device.startswith("cuda") else [],
        "version": version,
        "device": device,
        "effective": effective or {"precision": "f32"},
        "sandbox": 2,
        "visualprof": "0.1.0",
    }


def result(
    folder: Path,
    spec: str,
    base_ns: float,
    *,
    job: str = "j1",
    name: str = "resnet10",
    backend: str = "onnxruntime",
    version: str = "1.31.1",
    device: str = "cpu",
    agent: str = "lab-x86",
    effective: dict[str, str] | None = None,
    changes: dict[int, dict[str, Any]] | None = None,
    runs: dict[int, int] | None = None,
    finished_ns: int = START,
    profiled: bool = True,
) -> Path:
    """A finished result: `<folder>/<job>/<spec>`. changes, runs: of the point of a batch."""
    out = folder / f"{name}-{job}" / spec
    out.mkdir(parents=True)
    gpu = device.startswith("cuda")
    wanted = {"id": spec, "backend": backend, "version": version, "device": device, "precision": "", "threads": 2}
    model = {"name": f"{name}.onnx", "sha256": "0" * 64, "format": "onnx", "file": f"{name}.onnx"}
    about = {"schema": "visualprof.job/1", "job": job, "task": f"{job}-{spec}", "attempt": 1, "name": name}
    configuration = environment(agent, backend, version, device, effective)
    lines: list[dict[str, Any]] = []
    raw = b""
    for number, batch in enumerate((1, 2, 4, 8, 16)):
        samples = latencies(batch, (runs or {}).get(batch, 900), base_ns, number)
        lines.append(point(batch, samples, len(raw), **(changes or {}).get(batch, {})))
        raw += samples.tobytes()
    profiles = [{"pass": "timeline", "file": "timeline.json.gz", "start_ns": START, "batch": 1, "runs": 20}]
    status = {
        "schema": "visualprof.status/1",
        "state": "succeeded",
        "reason": None,
        "error": None,
        "hint": None,
        "warnings": [],
        "started_ns": finished_ns - 60_000_000_000,
        "finished_ns": finished_ns,
        "load_ns": 41_000_000,
        "profiles": profiles if profiled else [],
    }
    devices = [{"id": "cuda:0", "name": "NVIDIA H200", "uuid": "u"}] if gpu else []
    head: dict[str, Any] = {"schema": "visualprof.monitor/1", "interval_ms": 100, "pid": 1, "gpus": devices}
    ticks = [(line["start_ns"] + t, line["batch"]) for line in lines for t in range(0, 3_000_000_000, 100_000_000)]
    seen = [head, *(sample(t, batch, gpu) for t, batch in ticks)]
    if profiled:
        shutil.copy(PROFILE, out / "timeline.json.gz")
    (out / "monitor.jsonl").write_text("".join(json.dumps(each) + "\n" for each in seen))
    (out / "points.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (out / "latencies.bin").write_bytes(raw)
    (out / "env.json").write_text(json.dumps(configuration))
    (out / "status.json").write_text(json.dumps(status))
    (out / "job.json").write_text(json.dumps(about | {"model": model, "spec": wanted, "request": {}}))
    return out
