"""Kernels that only convert tensors between channels-first and channels-last (`nchwToNhwc`, `nhwcToNchw`).

Detected from kernel names; no threshold but that of all findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.findings.named_kernels import detect_named_kernels

PARTS = ("nchwToNhwc", "nhwcToNchw")


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the device time of the layout conversions."""
    return detect_named_kernels(context, PARTS, "layout")


RULE = Rule(
    detect,
    "high",
    {
        "pytorch": "model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
        "paddle": 'paddle.nn.Conv2D(..., data_format="NHWC")',
    },
)
