"""Low occupancy: kernels keep less than 20 % of the possible warps active.

Detected from the mean occupancy of a device that is idle for less than 70 % of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.steps.windows import device_kernels

MIN_OCCUPANCY = 0.2
MAX_IDLE_SHARE = 0.7  # of the step: kernels do not limit a device that is mostly idle


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the devices in use with a low mean occupancy."""
    for device in context.devices:
        if (
            device.occupancy is not None
            and device.occupancy < MIN_OCCUPANCY
            and context.share(context.idle_ns(device.id)) < MAX_IDLE_SHARE
        ):
            rows = device_kernels(context.trace)[device.id].rows
            extent = longest_event(context.trace, rows[context.trace.arg("occupancy", rows, np.nan) < MIN_OCCUPANCY])
            numbers = {"device": device.id, "occupancy": device.occupancy}
            yield Detection(numbers, "/kernel?group=launch", extent)


RULE = Rule(detect, "low")
