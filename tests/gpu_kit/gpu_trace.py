"""A hand-worked recording of two streams, in place of one from a GPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

STEPS, STREAMS = 5, (7, 8)
STEP_US, KERNEL_US, SHIFT_US = 1000, 300, 100  # the second stream's kernel starts later and overlaps 200 us
BUSY_MS = (KERNEL_US + SHIFT_US) / 1e3
KERNELS = STEPS * len(STREAMS)


def write_gpu_trace(path: Path) -> None:
    """Write five steps; each launches one kernel of 300 us on each of two streams, 100 us apart."""
    events: list[dict[str, Any]] = []

    def add(category: str, name: str, start: float, dur: float, *, pid: int = 1, tid: int = 1, **args: Any) -> None:
        row = {"ph": "X", "cat": category, "name": name, "ts": start, "dur": dur, "pid": pid, "tid": tid, "args": args}
        events.append(row)

    for step in range(STEPS):
        begin = 1e6 + step * STEP_US
        add("user_annotation", f"ProfilerStep#{step}", begin, STEP_US - 1)
        add("cpu_op", "aten::mm", begin + 10, 60)
        for i, stream in enumerate(STREAMS):
            correlation = step * len(STREAMS) + i + 1
            start = begin + 100 + i * SHIFT_US
            add("cuda_runtime", "cudaLaunchKernel", begin + 20 + 20 * i, 10, correlation=correlation)
            add("kernel", "spin", start, KERNEL_US, pid=0, tid=stream, device=0, stream=stream, correlation=correlation)
    body = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 80 << 30}], "traceEvents": events}
    path.write_bytes(gzip.compress(json.dumps(body).encode()))
