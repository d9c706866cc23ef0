"""Recordings of runs as scalars: step time, steps per second, utilization and peak memory, without logging."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from visualprof.reader.logdir.listing import Run, Span
from visualprof.reader.run_data.rows import UNKNOWN_NS
from visualprof.reader.run_data.run import ScalarTag, summarize_points
from visualprof.reader.run_data.series import Points
from visualprof.reader.trace.step_ranges import step_label
from visualprof.server.api.background_answers import BackgroundAnswers
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.services import Services
from visualprof.views.trend.figures import VIEW, Figures

MAX_RECORDINGS = 200  # of each run, the newest
RECORDED_PREFIX = "recordings/"
_STEP = "step.total"
_MS, _MIB = 1e-6, 1 / 2**20


class Recording(NamedTuple):
    """A recording of the first worker of a run.

    Attributes:
        run: Id of the run.
        worker: Id of the worker.
        span: Id of the span.
        first_step: Smallest number in the names of its steps, `None` without numbers.
        last_step: Largest number in the names of its steps, `None` without numbers.
        start_ns: Unix time of its start, `None` if unknown.
        duration_ns: Its duration.
        values: Scalars by tag.
    """

    run: str
    worker: str
    span: str
    first_step: int | None
    last_step: int | None
    start_ns: int | None
    duration_ns: int
    values: dict[str, float]


class RecordedScalars:
    """Computes the scalars of recordings in the background."""

    def __init__(self, services: Services) -> None:
        self._visible = services.visible
        self._figures = BackgroundAnswers(services.get(SteppedTraces), VIEW, Figures(figures={}))

    def load(self, run_ids: Collection[str]) -> tuple[list[Recording], bool]:
        """Return the recordings of runs that are computed, by run and time, and whether these are all."""
        runs = [run for run in self._visible.listing().runs if run.id in run_ids]
        spans = [(run, span) for run in runs for worker in run.workers[:1] for span in worker.spans[-MAX_RECORDINGS:]]
        figures = self._figures.get([span for _, span in spans])
        recordings = [
            _recording(run, span, figures[span.summary.fingerprint])
            for run, span in spans
            if span.summary and span.summary.fingerprint in figures
        ]
        waiting = sum(span.state in ("waiting", "parsing") for _, span in spans)
        parsed = sum(span.summary is not None for _, span in spans)
        return recordings, len(recordings) == parsed and not waiting


def _recording(run: Run, span: Span, figures: Figures) -> Recording:
    summary = span.summary
    steps = [number for name in (summary.steps if summary else ()) if (number := step_number(name)) is not None]
    return Recording(
        run=run.id,
        worker=run.workers[0].id,
        span=span.id,
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        start_ns=figures.at_ns,
        duration_ns=summary.duration_ns if summary else 0,
        values=_values(figures.figures),
    )


def step_number(name: str) -> int | None:
    """Return the number in the name of a step, `None` without one."""
    label = name if re.fullmatch(r"\d{1,18}", name) else step_label(name)
    return int(label) if label and len(label) <= 18 else None


def _values(figures: dict[str, float]) -> dict[str, float]:
    """Return the scalars by tag, of the metrics that are known."""
    values: dict[str, float] = {}
    if figures.get(_STEP):
        values[f"{RECORDED_PREFIX}step_time_ms"] = figures[_STEP] * _MS
        values[f"{RECORDED_PREFIX}steps_per_s"] = 1e9 / figures[_STEP]
    if "device.utilization" in figures:
        values[f"{RECORDED_PREFIX}utilization_ratio"] = figures["device.utilization"]
    if "memory.peak" in figures:
        values[f"{RECORDED_PREFIX}peak_memory_mib"] = figures["memory.peak"] * _MIB
    return values


def recorded_tags(recordings: Collection[Recording], run: str) -> list[ScalarTag]:
    """Return summaries of the scalars of a run's recordings, sorted by tag."""
    tags = sorted({tag for recording in recordings if recording.run == run for tag in recording.values})
    points = [(tag, points_of(recordings, run, tag)) for tag in tags]
    return [summarize_points("", tag, part) for tag, part in points if len(part.step)]


def points_of(recordings: Collection[Recording], run: str, tag: str) -> Points:
    """Return a scalar of the recordings of a run at their last steps; recordings without step numbers have none."""
    rows = sorted(
        (recording.last_step, UNKNOWN_NS if recording.start_ns is None else recording.start_ns, recording.values[tag])
        for recording in recordings
        if recording.run == run and recording.last_step is not None and tag in recording.values
    )
    step, wall_ns, value = zip(*rows, strict=True) if rows else ((), (), ())
    return Points(np.array(step, np.int64), np.array(wall_ns, np.int64), np.array(value, np.float64))
