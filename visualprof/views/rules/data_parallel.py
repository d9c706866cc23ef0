"""PyTorch's DataParallel: one process drives several devices.

Detected from an event named `DataParallel` in a trace with at least 2 devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.views.measure.findings import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.tensor_core import match_names

NAME = pattern(r"(?<![A-Za-z])DataParallel(?![A-Za-z])")


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield a detection if DataParallel uses several devices."""
    if len(case.devices) < 2:
        return
    named = match_names(case.trace, case.trace.events.name, lambda name: bool(NAME.search(name)))
    if named.any():
        extent = longest_event(case.trace, np.flatnonzero(named))
        yield Detection({"devices": len(case.devices)}, "/overview", extent, severity="medium")


RULE = Rule(
    look,
    "high",
    {"pytorch": "DistributedDataParallel(model)  # a process for each device: torchrun --nproc-per-node=N"},
    training_only=True,
)
