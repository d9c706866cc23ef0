"""Other processes competed for the CPUs, so host times include waiting for them.

Detected from the CPU pressure that the monitor of a job sampled, above `BUSY_PRESSURE`.
"""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.views.measure.devices.pressure import BUSY_PRESSURE, cpu_pressure
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext


def detect(context: RuleContext) -> Iterator[Detection]:
    """Yield the CPU pressure if it is high."""
    pressure = cpu_pressure(context.trace)
    if pressure is not None and pressure > BUSY_PRESSURE:
        yield Detection({"cpu_pressure_ratio": pressure}, "", severity="medium")


RULE = Rule(detect, "high")
