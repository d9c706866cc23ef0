"""Small batch: kernels with less than one block per multiprocessor take most of the kernel time.

Detected from the launch attribute `blocks_per_sm`: these kernels take more than 50 % of the kernel time of a device
that is idle for less than 70 % of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.steps import device_kernels

MOST = 0.5  # of the kernels' time
FULL = 1.0  # a block for each multiprocessor
IDLE = 0.7


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the devices in use on which small kernels take most of the time."""
    for device in case.devices if case.has_gpu_kernels() else ():
        rows = device_kernels(case.trace)[device.id].rows
        blocks = case.trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64)
        dur = np.maximum(case.trace.events.dur[rows], 0)
        known, small = int(dur[~np.isnan(blocks)].sum()), blocks < FULL
        ratio = int(dur[small].sum()) / known if known else 0.0
        if ratio > MOST and case.share(case.idle_ns(device.id)) < IDLE:
            numbers = {"device": device.id, "small_kernel_ratio": ratio, "calls": int(small.sum())}
            yield Detection(numbers, "/kernel?group=launch", longest_event(case.trace, rows[small]))


RULE = Rule(
    look,
    "low",
    server_code={
        "vllm": "vllm serve MODEL --max-num-seqs 512 --max-num-batched-tokens 16384",
        "sglang": "sglang.launch_server --max-running-requests 512 --chunked-prefill-size 16384",
        "tensorrt-llm": "trtllm-serve MODEL --max_batch_size 512 --max_num_tokens 16384",
    },
)
