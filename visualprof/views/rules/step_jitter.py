"""Step jitter: the longest of at least 5 steps takes more than 1.5 times the median."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Extent, Rule, RuleContext

MIN_STEPS = 5  # steps
MIN_LONGEST_RATIO = 1.5  # medians


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the difference between the mean and the median of the typical steps."""
    length, median = context.part_ns["total"][context.is_typical], context.step_ns
    if len(context.windows) >= MIN_STEPS and len(length) and length.max() > MIN_LONGEST_RATIO * median:
        worst = int(np.flatnonzero(context.is_typical)[np.argmax(length)])
        step, longest = context.windows.names[worst], int(length.max())
        numbers = {"step": step, "median_step_ns": round(median), "longest_step_ns": longest}
        extent = Extent(int(context.windows.start[worst]), int(context.windows.end[worst]))
        most = min(max(0.0, float(length.mean()) - median), median)
        yield Detection(numbers, f"/overview?step={step}", extent, most)


RULE = Rule(
    detect,
    "low",
    server_code={
        "vllm": "vllm serve MODEL --enable-chunked-prefill --max-num-batched-tokens 2048",
        "sglang": "sglang.launch_server --chunked-prefill-size 2048 --enable-mixed-chunk",
    },
)
