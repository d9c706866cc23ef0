"""Machines, jobs and measurements that the fake server of the Run, Agents and Evaluation pages shows."""

from __future__ import annotations

import time
from typing import Any

Json = dict[str, Any]
NO_LOAD: dict[str, object] = {"concurrency": [], "rates": [], "percentile": 0, "limit_ms": 0, "mlperf": ""}
HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "a_model_whose_name_goes_on_and_on_" * 6 + ".onnx"
CJK = "人脸检测模型_v2.onnx"


def ago(seconds: float) -> int:
    return time.time_ns() - int(seconds * 1e9)


def runtime(backend: str, version: str, *devices: str) -> Json:
    python = f"/home/lab/.visualprof/runtimes/{backend}-{version}/bin/python"
    return {
        "backend": backend,
        "version": version,
        "python": python,
        "python_version": "3.11.7",
        "devices": ["cpu", *devices],
    }


def agent(id: str, name: str, platform: str, runtimes: list[Json], **more: Any) -> Json:
    capabilities = {
        "platform": platform,
        "machine": "aarch64" if platform == "arm" else "x86_64",
        "system": "Linux 6.8",
        "hostname": name,
        "cpu": more.pop("cpu", "Intel(R) Xeon(R) Platinum 8480+"),
        "cores": more.pop("cores", 16),
        "memory_bytes": more.pop("memory", 128 << 30),
        "sandbox": more.pop("sandbox", 2),
        "version": "0.1.0",
        "gpus": more.pop("gpus", []),
        "runtimes": runtimes,
        "tags": [],
    }
    row: Json = {
        "id": id,
        "name": name,
        "address": "192.168.7.21",
        "public": True,
        "local": False,
        "standing": "works",
        "online": True,
        "last_seen_ns": ago(4),
        "registered_ns": ago(86_400),
        "capabilities": capabilities,
        "tasks": [],
        "owner": None,
        "changeable": True,
        "grants": [],
        "bookings": [],
    }
    return {"lost": not more.get("online", True), **row, **more}


def agents() -> list[Json]:
    h200 = {"id": "cuda:0", "name": "NVIDIA H200", "memory_bytes": 141 << 30, "driver": "570.124.06"}
    return [
        agent(
            "a1",
            "lab-x86",
            "x86",
            [runtime("onnxruntime", "1.31.1"), runtime("openvino", "2026.4.1"), runtime("megengine", "1.13.0")],
            local=True,
        ),
        agent(
            "a2",
            "gpu-box",
            "cuda",
            [runtime("torch", "2.13.0", "cuda:0"), runtime("onnxruntime", "1.23.2", "cuda:0")],
            gpus=[h200],
            cores=96,
            memory=1 << 40,
            sandbox=1,
            tasks=[
                {
                    "task": "t-run-2",
                    "job": "j-run",
                    "name": "ResNet-50 nightly",
                    "spec": "torch-gpu-box-cuda0",
                    "phase": "measuring",
                    "progress": 0.42,
                }
            ],
        ),
        agent(
            "a3",
            "树莓派-5",
            "arm",
            [runtime("onnxruntime", "1.23.2")],
            cpu="Cortex-A76",
            cores=4,
            memory=8 << 30,
            sandbox=0,
            public=False,
            online=False,
            last_seen_ns=ago(5400),
        ),
    ]


def task(id: str, state: str, **more: Any) -> Json:
    row: Json = {
        "id": id,
        "spec": "onnxruntime-1.31.1",
        "backend": "onnxruntime",
        "version": "1.31.1",
        "device": "cpu",
        "state": state,
        "phase": None,
        "progress": 0.0,
        "attempt": 1,
        "agent": "a1",
        "agent_name": "lab-x86",
        "reason": None,
        "error": None,
        "hint": None,
        "warnings": [],
        "updated_ns": ago(3),
        "points": 0,
        "run": None,
        "log_bytes": 0,
    }
    return row | more


def job(id: str, state: str, tasks: list[Json], **more: Any) -> Json:
    row = {
        "id": id,
        "name": "",
        "model": "resnet10_dynbatch.onnx",
        "model_blob": "0" * 64,
        "graph": None,
        "data": [],
        "state": state,
        "progress": 0.0,
        "submitted_ns": ago(60),
        "updated_ns": max((t["updated_ns"] for t in tasks), default=ago(60)),
        "sample": False,
        "case": "",
        "tasks": tasks,
    }
    return row | more


def running_tasks() -> list[Json]:
    return [
        task("t-run-1", "running", phase="measuring", progress=0.66, points=4, log_bytes=900),
        task(
            "t-run-2",
            "running",
            spec="torch-gpu-box-cuda0",
            backend="torch",
            version="2.13.0",
            device="cuda:0",
            agent="a2",
            agent_name="gpu-box",
            phase="profiling",
            progress=0.92,
            points=5,
            attempt=2,
            log_bytes=300,
        ),
        task(
            "t-run-3",
            "waiting",
            spec="openvino-树莓派-5",
            backend="openvino",
            version=None,
            agent=None,
            agent_name=None,
        ),
    ]


def jobs() -> list[Json]:
    """Return a job in each state, some with hostile names."""
    crashed = task(
        "t-crash",
        "failed",
        reason="crashed",
        error="the process ended by SIGSEGV while it was measuring batch 16",
        hint="its last lines are in the log; does the model run with this runtime at all?",
        log_bytes=700,
        points=2,
        updated_ns=ago(400),
    )
    hostile = task(
        "t-bad",
        "failed",
        spec="x" * 48,
        reason="model_error",
        error=f"INVALID_GRAPH: node {HOSTILE} has no input {'y' * 400}",
        agent_name=HOSTILE,
        log_bytes=64,
        updated_ns=ago(4000),
    )
    done = task("t-done", "succeeded", points=5, progress=1.0, run="resnet10", log_bytes=500, updated_ns=ago(7200))
    slow = task(
        "t-slow",
        "succeeded",
        spec="openvino-2026.4.1",
        backend="openvino",
        version="2026.4.1",
        points=5,
        progress=1.0,
        run="elsewhere",
        warnings=["openvino chose bf16 by itself; ask for f32 to compare"],
        updated_ns=ago(7100),
    )
    return [
        job("j-run", "running", running_tasks(), name="ResNet-50 nightly", progress=0.53, data=["images.npy"]),
        job("j-wait", "waiting", [task("t-wait", "waiting", agent=None, agent_name=None, version=None)], model=CJK),
        job("j-crash", "failed", [crashed], model="detector.onnx", progress=0.4, data=["images.npy", "sizes.npy"]),
        job("j-bad", "failed", [hostile], name=HOSTILE, model=LONG),
        job("j-done", "succeeded", [done, slow], progress=1.0, submitted_ns=ago(7400)),
        job("j-gone", "cancelled", [task("t-gone", "cancelled", updated_ns=ago(200_000))], model="old.mge"),
    ]


def request(name: str = "") -> Json:
    return {
        "key": "k",
        "model": {"blob": "0" * 64, "name": "resnet10_dynbatch.onnx", "parts": []},
        "specs": [
            {
                "id": "onnxruntime-1.31.1",
                "backend": "onnxruntime",
                "version": "1.31.1",
                "agent": "a1",
                "platform": "",
                "device": "cpu",
                "precision": "",
                "threads": 2,
                "options": {},
            }
        ],
        "name": name,
        "inputs": [{"name": "input", "dtype": "float32", "dims": ["batch", 3, 96, 96], "fill": "random", "blob": ""}],
        "dims": {},
        "sweep": {"dim": "batch", "values": [1, 2, 4, 8, 16]},
        "measure": {"warmup_s": 0.2, "min_s": 1.0, "max_s": 60.0, "min_n": 662, "load": NO_LOAD},
        "profile": {"runs": 20, "at": 0},
        "monitor_interval_s": 0.1,
        "timeout_s": 900.0,
        "retries": 2,
    }


def points(row: Json) -> list[Json]:
    rows: list[Json] = []
    for t in row["tasks"]:
        for i in range(t["points"]):
            batch, p50 = 2**i, 160_000 * 2**i * (0.8**i)
            rows.append(
                {
                    "task": t["id"],
                    "spec": t["spec"],
                    "batch": batch,
                    "qps": 1e9 / p50,
                    "p50_ns": int(p50),
                    "stable": i != 3,
                    "samples_per_s": batch * 1e9 / p50,
                    **dict.fromkeys(("mean_ns", "p90_ns", "p95_ns", "p99_ns", "throttled")),
                    "host_busy": i == 2,
                }
            )
    return rows


LOG = (
    "\x1b[32mINFO\x1b[0m loading resnet10_dynbatch.onnx\n"
    "warming up: 10 %\rwarming up: 100 %\n"
    f"input {HOSTILE} is float32\n" + "".join(f"batch 16: window {i}\n" for i in range(40)) + "Segmentation fault\n"
)
