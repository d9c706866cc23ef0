"""Many small kernels: launch calls take longer than the kernels that they launch, and the device waits.

Detected from at least 100 launch calls, if more than half are longer than their kernels and a device is idle for more
than 20 % of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.columns.intervals import merge, subtract
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, densest_burst
from visualprof.views.measure.findings.optimizers import unfused_optimizer
from visualprof.views.measure.steps.windows import device_kernels

MIN_LAUNCHES = 100  # launches
MIN_IDLE_SHARE = 0.2  # of the step


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the calls that take longer than all the kernels they launch."""
    joined, events = context.launches, context.trace.events
    chosen = (joined.call >= 0) & (events.category[joined.work] == Category.KERNEL)
    work, call = joined.work[chosen], joined.call[chosen]
    calls = distinct(call)
    if not context.has_gpu_kernels() or len(calls) < MIN_LAUNCHES:
        return
    short = np.bincount(call, events.dur[work])[calls] < events.dur[calls]
    idle = max(context.idle_ns(device.id) for device in context.devices)
    if short.mean() > 0.5 and context.share(idle) > MIN_IDLE_SHARE:
        busy = merge(*(device_kernels.spans for device_kernels in device_kernels(context.trace).values()))
        spent = round(context.covered_ns(subtract(context.event_spans(calls[short]), busy)))
        kernel_mean = round(float(events.dur[work].mean()))
        ratio = float(short.mean())
        numbers = {"calls": len(calls), "short_kernel_ratio": ratio, "kernel_mean_ns": kernel_mean, "launch_ns": spent}
        burst, code = densest_burst(context.trace, calls[short]), _code(context)
        yield Detection(numbers, "/idle", burst, idle, "launch=0", code=code)


def _code(context: RuleContext) -> dict[str, str]:
    """Return the remedy with the optimizer of the recording, if that has a fused implementation."""
    optimizer = unfused_optimizer(context.trace)
    return {} if optimizer is None else {"pytorch": f"{RULE.code['pytorch']}; {optimizer.fused_code}"}


RULE = Rule(
    detect,
    "medium",
    {
        "pytorch": 'model = torch.compile(model, mode="reduce-overhead")',
        "paddle": "model = paddle.jit.to_static(model, full_graph=True)",
        "megengine": "@megengine.jit.trace(symbolic=True)",
        "onnxruntime": 'providers=[("CUDAExecutionProvider", {"enable_cuda_graph": "1"})]',
    },
    server_code={
        "vllm": "vllm serve MODEL --max-cudagraph-capture-size 512  # without --enforce-eager",
        "sglang": "sglang.launch_server --cuda-graph-max-bs 512  # without --disable-cuda-graph",
        "tensorrt-llm": "cuda_graph_config: {enable_padding: true, max_batch_size: 512}",
    },
)
