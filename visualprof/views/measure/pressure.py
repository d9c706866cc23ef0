"""How much others wanted the CPUs of the machine while a recording was made."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Trace
from visualprof.views.measure.trace_cache import cached_on_trace

BUSY_PRESSURE = 0.1  # from this on a measurement counts as disturbed
PRESSURE_COUNTER = "CPU pressure %"  # as the monitor of a job names it


@cached_on_trace
def cpu_pressure(trace: Trace) -> float | None:
    """Mean share of the time in which some task waited for a CPU; None where nothing sampled it."""
    measured = np.array([track.name == PRESSURE_COUNTER for track in trace.tracks], bool)
    samples = trace.counters.value[measured[trace.counters.track]]
    return float(samples.mean()) / 100 if len(samples) else None
