"""Kernels keep few warps active."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visualprof.views.measure.findings import Detection, Rule, RuleContext, longest_event
from visualprof.views.measure.steps import kernels

LEAST = 0.2
IDLE = 0.7  # of the step: a device that does so little is not held up by its kernels


def look(case: RuleContext) -> Iterator[Detection]:
    """The mean occupancy of a device that is in use."""
    for device in case.devices:
        if device.occupancy is not None and device.occupancy < LEAST and case.share(case.idle(device.id)) < IDLE:
            rows = kernels(case.trace)[device.id].rows
            extent = longest_event(case.trace, rows[case.trace.arg("occupancy", rows, np.nan) < LEAST])
            numbers = {"device": device.id, "occupancy": device.occupancy}
            yield Detection(numbers, "/kernel?group=launch", extent)


RULE = Rule(look, "low")
