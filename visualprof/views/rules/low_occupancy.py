"""Low occupancy: kernels keep less than 20 % of the possible warps active.

Detected from the mean occupancy of a device that is idle for less than 70 % of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.steps import device_kernels

LEAST = 0.2
IDLE = 0.7  # of the step: a device that does so little is not held up by its kernels


def look(case: RuleContext) -> Iterator[Detection]:
    """Yield the devices in use with a low mean occupancy."""
    for device in case.devices:
        if device.occupancy is not None and device.occupancy < LEAST and case.share(case.idle_ns(device.id)) < IDLE:
            rows = device_kernels(case.trace)[device.id].rows
            extent = longest_event(case.trace, rows[case.trace.arg("occupancy", rows, np.nan) < LEAST])
            numbers = {"device": device.id, "occupancy": device.occupancy}
            yield Detection(numbers, "/kernel?group=launch", extent)


RULE = Rule(look, "low")
