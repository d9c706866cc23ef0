"""Step jitter: the longest of at least 5 steps takes more than 1.5 times the median."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings import Detection, Extent, Rule, RuleContext

FEWEST = 5  # steps
LONG = 1.5  # medians


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the difference between the mean and the median of the typical steps."""
    length, median = case.part_ns["total"][case.is_typical], case.step_ns
    if len(case.windows) >= FEWEST and len(length) and length.max() > LONG * median:
        worst = int(np.flatnonzero(case.is_typical)[np.argmax(length)])
        step, longest = case.windows.names[worst], int(length.max())
        numbers = {"step": step, "median_step_ns": round(median), "longest_step_ns": longest}
        extent = Extent(int(case.windows.start[worst]), int(case.windows.end[worst]))
        most = min(max(0.0, float(length.mean()) - median), median)
        yield Detection(numbers, f"/overview?step={step}", extent, most)


RULE = Rule(
    look,
    "low",
    server_code={
        "vllm": "vllm serve MODEL --enable-chunked-prefill --max-num-batched-tokens 2048",
        "sglang": "sglang.launch_server --chunked-prefill-size 2048 --enable-mixed-chunk",
    },
)
