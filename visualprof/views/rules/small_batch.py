"""Small batch: kernels with less than one block per multiprocessor take most of the kernel time.

Detected from the launch attribute `blocks_per_sm`: these kernels take more than 50 % of the kernel time of a device
that is idle for less than 70 % of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.steps.windows import device_kernels

MIN_SMALL_SHARE = 0.5  # of the kernels' time
FULL_BLOCKS_PER_SM = 1.0  # one block per multiprocessor
MAX_IDLE_SHARE = 0.7


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the devices in use on which small kernels take most of the time."""
    for device in context.devices if context.has_gpu_kernels() else ():
        rows = device_kernels(context.trace)[device.id].rows
        blocks = context.trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64)
        dur = np.maximum(context.trace.events.dur[rows], 0)
        known_ns, small = int(dur[~np.isnan(blocks)].sum()), blocks < FULL_BLOCKS_PER_SM
        ratio = int(dur[small].sum()) / known_ns if known_ns else 0.0
        if ratio > MIN_SMALL_SHARE and context.share(context.idle_ns(device.id)) < MAX_IDLE_SHARE:
            numbers = {"device": device.id, "small_kernel_ratio": ratio, "calls": int(small.sum())}
            yield Detection(numbers, "/kernel?group=launch", longest_event(context.trace, rows[small]))


RULE = Rule(
    detect,
    "low",
    server_code={
        "vllm": "vllm serve MODEL --max-num-seqs 512 --max-num-batched-tokens 16384",
        "sglang": "sglang.launch_server --max-running-requests 512 --chunked-prefill-size 16384",
        "tensorrt-llm": "trtllm-serve MODEL --max_batch_size 512 --max_num_tokens 16384",
    },
)
