"""Products without tensor cores on a device that has them (compute capability 7.0 or higher).

Detected from kernels of operators with a tensor-core implementation, if no kernel uses tensor cores, and the names of
these kernels say so. The predicted speed-up is 2. Source: torch-tb-profiler
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.devices.utilization import compute_capability
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, speedup_change, time_by_name
from visualprof.views.measure.launches.launch import is_kernel
from visualprof.views.measure.names.tensor_core import can_use_tensor_core, match_names, tensor_core_masks

MIN_CAPABILITY = 7.0
MIN_BFLOAT16_CAPABILITY = 8.0
SPEEDUP = 2.0  # minimum speed-up of a product with float16 or TF32 on such devices


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the eligible kernels. Kernels that run concurrently on several streams count once."""
    if not context.has_gpu_kernels() or context.trace.meta.device_type != "cuda":
        return
    capable = [device for device in context.devices if compute_capability(device) >= MIN_CAPABILITY]
    events, joined = context.trace.events, context.launches
    owned = (joined.op >= 0) & (events.category[joined.work] == Category.KERNEL)
    rows = joined.work[owned][match_names(context.trace, events.name[joined.op[owned]], can_use_tensor_core)]
    used, unknown = tensor_core_masks(context.trace, events.name[rows])
    if (used | unknown).any():
        return
    spans = context.event_spans(rows)
    spent = context.covered_ns(spans)
    if capable and all(device.tensor_core_ratio == 0 for device in capable) and spent:
        eligible, kernels = int(events.dur[rows].sum()), int(events.dur[is_kernel(context.trace)].sum())
        numbers = {"eligible_ratio": eligible / kernels, "eligible_ns": eligible}
        change = speedup_change(time_by_name(context.trace, rows), 1 / SPEEDUP)
        extent, most = context.longest_extent(spans, rows), spent * (1 - 1 / SPEEDUP)
        yield Detection(
            numbers, "/operator?sort=device_self_ns", extent, most, change, code=half_precision_code(context)
        )


def half_precision_code(context: RuleContext) -> dict[str, str]:
    """Return the remedy for devices without bfloat16, which need float16 and scaled gradients; {} for others."""
    if max(map(compute_capability, context.devices), default=0.0) >= MIN_BFLOAT16_CAPABILITY:
        return {}
    return FLOAT16_CODE


FLOAT16_CODE = {
    "pytorch": 'with torch.autocast("cuda", torch.float16): ...; scaler = torch.amp.GradScaler()',
    "paddle": 'with paddle.amp.auto_cast(dtype="float16"): ...; scaler = paddle.amp.GradScaler()',
}


RULE = Rule(
    detect,
    "medium",
    {
        "pytorch": 'torch.set_float32_matmul_precision("high"); with torch.autocast("cuda", torch.bfloat16): ...',
        "paddle": 'with paddle.amp.auto_cast(dtype="bfloat16"): ...',
        "megengine": "with megengine.amp.autocast(): ...",
    },
    server_code={"vllm": "vllm serve MODEL --dtype bfloat16", "sglang": "sglang.launch_server --dtype bfloat16"},
)
