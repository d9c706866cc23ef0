"""Step times that processes record with `capture.watch`, as scalars: one line per worker, without logging."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from visualprof.errors import SourceError
from visualprof.reader.logdir.layout import natural_key
from visualprof.reader.results.steps import read_step_times
from visualprof.reader.run_data.join import JoinedPoints
from visualprof.reader.run_data.run import ScalarTag, summarize_points
from visualprof.reader.run_data.series import Points
from visualprof.server.services import Services

STEP_TIME_TAG = "steps/step_time_ms"
MAX_WORKERS = 16  # of each run
_MAX_CACHED = 256
_NO_POINTS = Points(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class StepTimeLine(NamedTuple):
    """The step times of a worker, in milliseconds."""

    run: str
    worker: str
    points: Points


class StepTimeScalars:
    """Reads step times of runs that the current user may see."""

    def __init__(self, services: Services) -> None:
        self._visible = services.visible
        self._cached: OrderedDict[str, tuple[tuple[int, int], Points]] = OrderedDict()

    def load(self, run_ids: Iterable[str]) -> list[StepTimeLine]:
        """Return the step times of runs, by run and worker."""
        wanted = set(run_ids)
        return [
            StepTimeLine(run.id, os.path.basename(path).partition(".")[0], points)
            for run in self._visible.listing().runs
            if run.id in wanted and run.extras
            for path in sorted(run.extras.series, key=natural_key)[:MAX_WORKERS]
            if len((points := self._read(path)).step)
        ]

    def _read(self, path: str) -> Points:
        """Return the step times in a file, none if it cannot be read."""
        try:
            status = os.stat(path)
            version = status.st_size, status.st_mtime_ns
            cached = self._cached.get(path)
            if cached and cached[0] == version:
                return cached[1]
            times = read_step_times(path)
        except (OSError, SourceError):
            return _NO_POINTS
        steps = times.first + np.arange(len(times.durations), dtype=np.int64)
        points = Points(steps, times.begin_ns + np.cumsum(times.durations), times.durations / 1e6)
        self._cached[path] = version, points
        if len(self._cached) > _MAX_CACHED:
            self._cached.popitem(last=False)
        return points


def step_time_tags(lines: Iterable[StepTimeLine]) -> list[tuple[str, ScalarTag]]:
    """Return run and summary of each line."""
    return [(line.run, summarize_points(line.worker, STEP_TIME_TAG, line.points)) for line in lines]


def step_time_lines(lines: Iterable[StepTimeLine]) -> list[tuple[str, str, JoinedPoints]]:
    """Return run, worker and points of each line."""
    return [(line.run, line.worker, JoinedPoints("", line.points, line.points.select(slice(0)))) for line in lines]
