"""The steps of a process over time: how long they took, where their band ends, and which were recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualprof.reader.results.steps import StepTimes
from visualprof.reader.trace import Floats, Ints
from visualprof.views.answers import charts
from visualprof.views.measure.point import run_intervals

BAND_STEPS = 128  # steps that make a band
SKIPPED_STEPS = 50  # first steps, and those after a recording, that say nothing of what is usual
MAX_DEVIATIONS, MIN_BAND_SHARE = 6 * 1.4826, 0.2


def step_times_chart(times: StepTimes) -> charts.Option:
    """Median and longest step of each stretch over the time since the first, the end of the band, and the recordings.

    Of a step that was recorded the point has its number as `id`.
    """
    if not len(times.durations):
        return {}
    x, _, middle, most = run_intervals(times.durations)
    single = len(x) == len(times.durations)
    curves = [("step_time", middle)] if single else [("max", most), ("median", middle)]
    limit = step_time_limits(times, np.searchsorted(np.cumsum(times.durations), x, "right"))
    if not np.isnan(limit).all():
        curves.append(("limit", limit))
    option = charts.lines([(f"@t:live.{name}", x, y) for name, y in curves], ("ns", "ns"), steps=False)
    if len(curves) > 1 and curves[-1][0] == "limit":
        option["series"][-1] |= {"lineStyle": {"type": "dashed", "width": 1}}
    option["series"].append({"type": "scatter", "name": "@t:live.recordings", "data": _points(times), "z": 10})
    return option


def step_time_limits(times: StepTimes, at: Ints) -> Floats:
    """The longest that is still usual before each of these steps (n,), as `visualprof.capture.watch` has it, ns.

    Median + max(6 x 1.4826 median absolute deviation, 20 % of the median) of the last 128 steps that say something;
    NaN before there are so many.
    """
    telling = np.ones(len(times.durations), bool)
    telling[:SKIPPED_STEPS] = False
    for one in times.recorded:
        telling[one.index : None if one.steps is None else one.index + one.steps + SKIPPED_STEPS] = False
    usual = times.durations[telling].astype(np.float64)
    before = (np.cumsum(telling) - telling)[at]
    limit = np.full(len(at), np.nan)
    known = before >= BAND_STEPS
    if known.any():
        windows = np.lib.stride_tricks.sliding_window_view(usual, BAND_STEPS)[before[known] - BAND_STEPS]
        middle = np.median(windows, axis=1)
        spread = np.median(np.abs(windows - middle[:, None]), axis=1)
        limit[known] = middle + np.maximum(MAX_DEVIATIONS * spread, MIN_BAND_SHARE * middle)
    return limit


def _points(times: StepTimes) -> list[dict[str, Any]]:
    """Where each recording began, as high as its first step."""
    begun = np.cumsum(times.durations) - times.durations
    return [
        {
            "id": str(times.first + one.index),
            "name": str(times.first + one.index),
            "value": [int(begun[one.index]), int(times.durations[one.index])],
        }
        for one in times.recorded
        if one.index < len(times.durations)
    ]
