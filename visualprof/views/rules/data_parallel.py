"""PyTorch's DataParallel: one process drives several devices.

Detected from an event named `DataParallel` in a trace with at least 2 devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.names.tensor_core import match_names

DATA_PARALLEL = pattern(r"(?<![A-Za-z])DataParallel(?![A-Za-z])")


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield a detection if DataParallel uses several devices."""
    if len(context.devices) < 2:
        return
    named = match_names(context.trace, context.trace.events.name, lambda name: bool(DATA_PARALLEL.search(name)))
    if named.any():
        extent = longest_event(context.trace, np.flatnonzero(named))
        yield Detection({"devices": len(context.devices)}, "/overview", extent, severity="medium")


RULE = Rule(
    detect,
    "high",
    {"pytorch": "DistributedDataParallel(model)  # a process for each device: torchrun --nproc-per-node=N"},
    training_only=True,
)
