"""Writes the sample of an inference server: `python -m tests.sample_server visualprof/samples/synthetic-server`.

The steps are annotated as vLLM annotates them. All times follow the plan below; nothing was measured. Decode steps take
longer to prepare on the host than to run on the device, as without CUDA graphs and asynchronous scheduling.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
PREFILL_EVERY, STEPS = 20, 120  # steps
MAX_REQUESTS = 16
PROMPT_TOKENS = 512
LAYERS = 8
HOST_US = {"prefill": 3_000, "decode": 7_000}  # preparation of a step
ATTENTION_US = {"prefill": 500, "decode": 150}  # per layer
PRODUCT_US = {"prefill": 900, "decode": 250}  # per layer
SAMPLING_US = 120
GAP_US = 1_200  # between steps


def steps() -> Iterator[tuple[str, str]]:
    """Yield the phase and the annotation of each step."""
    requests = 0
    for number in range(STEPS):
        if number % PREFILL_EVERY == 0 and requests < MAX_REQUESTS:
            yield "prefill", f"execute_context_4({4 * PROMPT_TOKENS})_generation_0(0)"
            requests += 4
        else:
            yield "decode", f"execute_context_0(0)_generation_{requests}({requests})"


def kernels(phase: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the duration in us of each kernel of a step."""
    for _ in range(LAYERS):
        yield "flash::flash_fwd_splitkv_kernel<bf16>", ATTENTION_US[phase]
        yield "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_tn_align8", PRODUCT_US[phase]
    yield "void at::native::(anonymous namespace)::sample_topk_topp_kernel<float>", SAMPLING_US


def events() -> Iterator[Event]:
    """Yield the events of the recording, with times in us."""
    now, correlation, device_free = 1_000_000.0, 0, 0.0
    for phase, name in steps():
        start, work = now, list(kernels(phase))
        between = HOST_US[phase] / (len(work) + 1)
        for kernel, duration in work:
            now += between
            correlation += 1
            at = max(now + 5, device_free)
            device_free = at + duration
            yield _event("cuda_runtime", "cudaLaunchKernel", now, 4, 1, {"correlation": correlation})
            yield _event("kernel", kernel, at, duration, 107, {"correlation": correlation, "device": 0, "stream": 7})
        now = max(now + between, device_free + 5)  # the tokens are needed to plan the next step
        yield _event("user_annotation", name, start, now - start, 1, {})
        now += GAP_US


def _event(category: str, name: str, start: float, duration: float, thread: int, args: dict[str, int]) -> Event:
    place = {"pid": 0 if thread > 100 else 1, "tid": args.get("stream", thread)}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": round(start, 3),
        "dur": round(duration, 3),
        **place,
        "args": args,
    }


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    device = {"id": 0, "name": "Synthetic GPU", "totalGlobalMem": 80 << 30}
    recording = {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": list(events())}
    with gzip.GzipFile(folder / "engine.pt.trace.json.gz", "wb", mtime=0) as file:
        file.write(json.dumps(recording).encode())


if __name__ == "__main__":
    main()
