"""Kernels of Ascend NPUs that only convert layouts or types of tensors (`TransData`, `Cast`).

Detected from kernel names; no threshold but that of all findings. Source: advisor of Ascend/msprof-analyze
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.findings.named_kernels import detect_named_kernels

PARTS = ("TransData", "CastAiCore")


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the device time of the conversions."""
    return detect_named_kernels(context, PARTS, "conversion")


RULE = Rule(detect, "high", {"pytorch": "torch.npu.config.allow_internal_format = False"})
