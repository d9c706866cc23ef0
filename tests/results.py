"""Folders of results as docs/result-folder.md lays them out, of any numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

T0 = 1_795_147_594_000_000_000
SECOND = 10**9
Json = dict[str, Any]


def nearest_rank(samples: np.ndarray, percent: float) -> int:
    """The smallest sample that so many percent are at or below."""
    return int(np.percentile(samples, percent, method="inverted_cdf"))


def point(batch: int, samples: Sequence[int] | np.ndarray, offset: int = 0, **more: Any) -> Json:
    """A line of points.jsonl over some latencies."""
    latencies = np.asarray(samples, np.int64)
    n, duration = len(latencies), int(latencies.sum())
    enough = {50: 11, 90: 64, 95: 130, 99: 662}
    values_by_name = {f"p{p}_ns": nearest_rank(latencies, p) if n >= least else None for p, least in enough.items()}
    return {
        "batch": batch,
        "n": n,
        "duration_ns": duration,
        "load_ns": 5_000_000,
        "first_ns": 2 * int(latencies[0]),
        "warmup_n": 10,
        "qps": n / duration * 1e9,
        "samples_per_s": batch * n / duration * 1e9,
        "whole_samples_per_s": batch * n / duration * 9e8,
        "mean_ns": int(latencies.mean()),
        "min_ns": int(latencies.min()),
        "max_ns": int(latencies.max()),
        **values_by_name,
        "p999_ns": None,
        "trusted": [p for p, least in enough.items() if n >= least],
        "iqr_ns": 10,
        "window_p50_ns": [values_by_name["p50_ns"]] * 3,
        "stable": True,
        "involuntary_switches": 1,
        "pressure": 0.01,
        "host_busy": False,
        "rss_bytes": 10**8,
        "gpu_memory_bytes": None,
        "energy_j_per_sample": None,
        "throttled": False,
        "start_ns": T0 + SECOND,
        "end_ns": T0 + 3 * SECOND,
        "latencies": [offset, n],
        **more,
    }


def write_result(
    folder: Path,
    latencies: Mapping[int, Sequence[int] | np.ndarray],
    *,
    spec: Json | None = None,
    env: Json | None = None,
    status: Json | None = None,
    points: Mapping[int, Json] | None = None,
    job: Json | None = None,
) -> Path:
    """A folder of a result. latencies: by batch. points: what differs of some of them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[Json] = []
    raw = b""
    for batch, samples in latencies.items():
        lines.append(point(batch, samples, len(raw)) | (points or {}).get(batch, {}))
        raw += np.asarray(samples, "<u4").tobytes()
    chosen = {"id": folder.name, "backend": "onnxruntime", "device": "cpu", "precision": "", "threads": 1}
    files: dict[str, Json] = {
        "job.json": {
            "schema": "visualprof.job/1",
            "job": "j1",
            "task": "t1",
            "attempt": 1,
            "name": "sweep",
            "model": {"name": "m.onnx", "sha256": "ab" * 32, "format": "onnx", "file": "m.onnx"},
            "spec": chosen | (spec or {}),
            "request": {},
            **(job or {}),
        },
        "env.json": {
            "agent": "laptop",
            "agent_id": "a1",
            "cpu": "a CPU",
            "cores": 2,
            "gpus": [],
            "backend": "onnxruntime",
            "version": "1.2.3",
            "device": chosen["device"],
            "effective": {"precision": "as the model"},
            **(env or {}),
        },
        "status.json": {
            "schema": "visualprof.job/1",
            "state": "succeeded",
            "reason": None,
            "error": None,
            "hint": None,
            "warnings": [],
            "started_ns": T0,
            "finished_ns": T0 + 9 * SECOND,
            "profiles": [],
            **(status or {}),
        },
    }
    for name, body in files.items():
        (folder / name).write_text(json.dumps(body))
    (folder / "points.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "latencies.bin").write_bytes(raw)
    return folder


def write_monitor(folder: Path, samples: int = 40) -> None:
    """Two samples a second from T0 on; CPU in percent is the number of the sample."""
    header: Json = {"schema": "visualprof.monitor/1", "interval_ms": 500, "gpus": [{"id": "cuda:0", "name": "H200"}]}
    lines: list[Json] = [
        {
            "t_ns": T0 + i * SECOND // 2,
            "phase": "measuring",
            "batch": 1,
            "cpu": i / 100,
            "gpus": [{"util": 0.5, "sm_mhz": 1000 + i}],
        }
        for i in range(samples)
    ]
    (folder / "monitor.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)))
