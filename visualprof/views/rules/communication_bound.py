"""Exposed communication: time in which collectives run and no computation does, as on the page Distributed.

Detected from the work of the main device, or from operators without a device; no threshold but that of all findings.
Where the other ranks are known, the view splits it into transfer and waiting.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.reader.trace import Category
from visualprof.views.measure.columns.intervals import subtract
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext
from visualprof.views.measure.launches.device_work import main_work


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the exposed communication."""
    work = main_work(context.trace)
    exposed = subtract(work.communicating, work.computing)
    spent = context.covered_ns(exposed)
    if spent:
        numbers = {"communication_ratio": context.share(spent), "communication_ns": round(spent)}
        extent = context.longest_extent(exposed, context.events_of(Category.COMM))
        yield Detection(numbers, "/distributed", extent, spent, "collective=0")


RULE = Rule(
    detect,
    "medium",
    {
        "pytorch": "DistributedDataParallel(model, bucket_cap_mb=100); with model.no_sync(): ...",
        "paddle": "paddle.DataParallel(model, comm_buffer_size=100)",
    },
    server_code={
        "vllm": "vllm serve MODEL --tensor-parallel-size 2 --data-parallel-size 4",
        "sglang": "sglang.launch_server --tp-size 2 --dp-size 4",
    },
)
