"""Durations of a process's steps over time, with the limit of the normal range and the recordings."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualprof.reader.results.steps import StepTimes
from visualprof.reader.trace import Floats, Ints
from visualprof.views.answers import charts
from visualprof.views.measure.reports.point import run_intervals

BAND_STEPS = 128  # steps from which the limit is computed
SKIPPED_STEPS = 50  # first steps, and steps after a recording, which are not representative
MAX_DEVIATIONS, MIN_BAND_SHARE = 6 * 1.4826, 0.2


def step_times_chart(times: StepTimes) -> charts.Option:
    """Return the chart of step durations over time.

    It shows the median and longest step of each interval, the limit of the normal range, and the
    recordings.

    The point of a recorded step has the step's number as its `id`.
    """
    if not len(times.durations):
        return {}
    time, _, median, longest = run_intervals(times.durations)
    is_single = len(time) == len(times.durations)
    curves = [("step_time", median)] if is_single else [("max", longest), ("median", median)]
    limit = step_time_limits(times, np.searchsorted(np.cumsum(times.durations), time, "right"))
    if not np.isnan(limit).all():
        curves.append(("limit", limit))
    option = charts.lines([(f"@t:live.{name}", time, values) for name, values in curves], ("ns", "ns"), steps=False)
    if len(curves) > 1 and curves[-1][0] == "limit":
        option["series"][-1] |= {"lineStyle": {"type": "dashed", "width": 1}}
    option["series"].append(
        {"type": "scatter", "name": "@t:live.recordings", "data": _recording_points(times), "z": 10}
    )
    return option


def step_time_limits(times: StepTimes, steps: Ints) -> Floats:
    """Return the longest normal duration before each of some steps (n,) in ns.

    The limit is that of `visualprof.capture.watch`.

    It is the median plus max(6 x 1.4826 median absolute deviation, 20 % of the median) of the last
    128 representative steps. It is NaN before there are that many.
    """
    is_representative = np.ones(len(times.durations), bool)
    is_representative[:SKIPPED_STEPS] = False
    for recording in times.recorded:
        is_representative[
            recording.index : None if recording.steps is None else recording.index + recording.steps + SKIPPED_STEPS
        ] = False
    representative = times.durations[is_representative].astype(np.float64)
    count_before = (np.cumsum(is_representative) - is_representative)[steps]
    limit = np.full(len(steps), np.nan)
    is_known = count_before >= BAND_STEPS
    if is_known.any():
        last_steps = np.lib.stride_tricks.sliding_window_view(representative, BAND_STEPS)[
            count_before[is_known] - BAND_STEPS
        ]
        median = np.median(last_steps, axis=1)
        spread = np.median(np.abs(last_steps - median[:, None]), axis=1)
        limit[is_known] = median + np.maximum(MAX_DEVIATIONS * spread, MIN_BAND_SHARE * median)
    return limit


def _recording_points(times: StepTimes) -> list[dict[str, Any]]:
    """Return the start of each recording, at the height of its first step."""
    starts = np.cumsum(times.durations) - times.durations
    return [
        {
            "id": str(times.first + recording.index),
            "name": str(times.first + recording.index),
            "value": [int(starts[recording.index]), int(times.durations[recording.index])],
        }
        for recording in times.recorded
        if recording.index < len(times.durations)
    ]
