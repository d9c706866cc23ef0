"""Loads and times of the steps of an inference server."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Trace
from visualprof.reader.trace.serving import ServingStep
from visualprof.views.measure.launches.launch import is_device_work
from visualprof.views.measure.steps.serving_device_time import cache_time, sampling_time
from visualprof.views.measure.steps.serving_steps import ServingSteps
from visualprof.views.measure.steps.windows import StepWindows, step_windows

PHASES = ("prefill", "mixed", "decode", "draft", "denoise", "idle", "unknown")


class TimedSteps(msgspec.Struct, frozen=True):
    """Steps (n,) with their windows; NaN is unknown.

    Attributes:
        phase: Index into PHASES.
        gaps: Gaps after each step, on the host and on devices.
    """

    windows: StepWindows
    loads: list[ServingStep]
    phase: Ints
    cache: Floats
    sampling: Floats
    host_gap: Floats
    device_gap: Floats

    @property
    def total(self) -> Ints:
        """Return the duration of each step, ns."""
        return self.windows.end - self.windows.start

    def load_values(self, kind: Literal["prefill", "decode"], key: str) -> Floats:
        """Return a metric of the load of each step."""
        return numbers([getattr(getattr(load, kind), key) for load in self.loads])


def numbers(values: list[int | None]) -> Floats:
    """Return numbers (n,), NaN for `None`."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def timed_steps(server: ServingSteps) -> TimedSteps:
    """Return the complete steps of a server, with times for the key-value cache and sampling if it generates tokens."""
    trace, windows = server.trace, step_windows(server.trace)
    places: list[int] = windows.index.tolist()
    loads = [server.loads[i] for i in places]
    none = np.full(len(trace.steps), np.nan)
    tokens = any(load.phase != "denoise" for load in loads)
    times = (cache_time(trace), sampling_time(trace)) if tokens else (None, None)
    cache, sampling = (none if time is None else time for time in times)
    host, device = _gaps(trace, windows)
    return TimedSteps(
        windows=windows,
        loads=loads,
        phase=np.array([PHASES.index(load.phase) for load in loads], np.int64),
        cache=cache[windows.index].astype(np.float64),
        sampling=sampling[windows.index].astype(np.float64),
        host_gap=host,
        device_gap=device,
    )


def _gaps(trace: Trace, windows: StepWindows) -> tuple[Floats, Floats]:
    """Return the gap in ns after each step on the host and on devices: 0 if steps overlap, NaN after the last step.

    On devices, it is the time from the end of the last work of a step to the start of the first work of the next.
    """
    host, device = (np.full(len(windows), np.nan) for _ in range(2))
    if len(windows) < 2:
        return host, device
    host[:-1] = np.maximum(windows.host_spans[1:, 0] - windows.host_spans[:-1, 1], 0)
    rows = np.flatnonzero(is_device_work(trace) & (trace.events.step >= 0))
    first, last = np.full(len(trace.steps), np.inf), np.full(len(trace.steps), np.nan)
    np.minimum.at(first, trace.events.step[rows], trace.events.ts[rows])
    np.fmax.at(last, trace.events.step[rows], trace.events.end[rows])
    after = first[windows.index[1:]] - last[windows.index[:-1]]
    device[:-1] = np.where(np.isfinite(after), np.maximum(after, 0), np.nan)
    return host, device
