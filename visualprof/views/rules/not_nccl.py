"""Collectives through the host: the backend is gloo or MPI on GPUs of compute capability 3.5 or higher.

Detected from the distributed backend in the metadata of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.devices.utilization import compute_capability
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event

MIN_CAPABILITY = 3.5


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield collectives over gloo or MPI on GPUs."""
    backend, on_cuda = context.trace.meta.properties.get("backend", "nccl"), context.trace.meta.device_type == "cuda"
    if (
        backend in ("gloo", "mpi")
        and context.has_gpu_kernels()
        and on_cuda
        and max(map(compute_capability, context.devices)) >= MIN_CAPABILITY
    ):
        extent = longest_event(context.trace, context.events_of(Category.COMM))
        yield Detection({"backend": backend}, "/distributed", extent, severity="medium")


RULE = Rule(detect, "high", {"pytorch": 'torch.distributed.init_process_group("nccl")'})
