"""The step time of a recording. Every answer that shows one step time without a label takes it from here.

Source: docs/views/overview.md#step-time
"""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_kernel, is_operator
from visualprof.views.measure.steps.windows import StepWindows, step_windows

COLD_STEP_FACTOR = 1.5  # a first step that takes longer than this many medians of the others is a warm-up
MIN_TYPICAL_WORK = 0.5  # a step with less than this share of the median step's work is not typical


def step_time_ns(trace: Trace) -> float | None:
    """Return the step time, the median of the typical steps in ns; `None` without annotated steps."""
    if not len(trace.steps):
        return None
    windows, is_typical = step_windows(trace), typical_steps(trace)
    return float(np.median((windows.end - windows.start)[is_typical])) if is_typical.any() else None


@cached_on_trace
def typical_steps(trace: Trace) -> Mask:
    """Return, per step of `step_windows`, whether it is typical. A recording without steps has one typical step.

    A step is typical if it

    - belongs to the phase that takes most of the time (for servers),
    - takes time, and has at least half of the median step's kernels and operators, without data loading,
    - is not a cold first step, which takes over 1.5 times the median of the others.
    """
    windows = step_windows(trace)
    return typical_of_phase(trace, windows) & windows.main_phase()[1]


def typical_of_phase(trace: Trace, windows: StepWindows) -> Mask:
    """Return, per step, whether it is typical among the steps of its own phase."""
    work, total = _step_work(trace, windows), windows.end - windows.start
    is_candidate, is_typical = (total > 0) | (windows.index < 0), np.zeros(len(windows), bool)
    for phase in dict.fromkeys(windows.phases):
        is_typical |= typical_mask(work, total, is_candidate & np.array([p == phase for p in windows.phases], bool))
    return is_typical


def typical_mask(work: Ints, total_ns: Ints, is_candidate: Mask) -> Mask:
    """Return which of some steps (n,) are typical.

    Args:
        work: (n,) kernels and operators of each step.
        total_ns: (n,) duration of each step.
        is_candidate: (n,) steps of the phase that counts.
    """
    if not is_candidate.any():
        return is_candidate
    is_typical = is_candidate & (work >= MIN_TYPICAL_WORK * np.median(work[is_candidate]))
    rows = np.flatnonzero(is_typical)
    if len(rows) > 1 and total_ns[rows[0]] > COLD_STEP_FACTOR * np.median(total_ns[rows[1:]]):
        is_typical[rows[0]] = False
    return is_typical


def _step_work(trace: Trace, windows: StepWindows) -> Ints:
    """Return the number of kernels and operators of each step, excluding data loading."""
    if (windows.index < 0).any():
        return np.ones(len(windows), np.int64)
    events = trace.events
    rows = np.flatnonzero((is_operator(trace) | is_kernel(trace)) & (events.step >= 0)).astype(np.int32)
    rows = rows[nearest_ancestor(events.parent, events.category == Category.DATALOADER, rows) < 0]
    return np.bincount(events.step[rows], minlength=len(trace.steps))[windows.index]
