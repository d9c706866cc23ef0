"""CPU pressure: how much other tasks competed for the CPUs during a recording."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Trace
from visualprof.views.measure.columns.trace_cache import cached_on_trace

BUSY_PRESSURE = 0.1  # a measurement with more CPU pressure counts as disturbed
PRESSURE_COUNTER = "CPU pressure %"  # name used by the monitor of a job


@cached_on_trace
def cpu_pressure(trace: Trace) -> float | None:
    """Return the mean share of the time in which some task waited for a CPU; `None` if it was not sampled."""
    is_pressure = np.array([track.name == PRESSURE_COUNTER for track in trace.tracks], bool)
    samples = trace.counters.value[is_pressure[trace.counters.track]]
    return float(samples.mean()) / 100 if len(samples) else None
