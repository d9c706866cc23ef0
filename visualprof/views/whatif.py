"""Forecast: the steps replayed with some work taking more or less time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Answer, Table
from visualprof.views.measure.launches.launch import is_device_work
from visualprof.views.measure.replay.baseline import Baseline, Obstacle, baseline
from visualprof.views.measure.replay.change import apply_changes, parse_changes, suggest_changes
from visualprof.views.measure.replay.forecast import ForecastColumns, StepForecast, step_forecast
from visualprof.views.measure.replay.graph import Replay, WaitGraph, solve
from visualprof.views.measure.replay.path import PathPartColumns, critical_path, full_scope, path_parts
from visualprof.views.measure.replay.path_pieces import baseline_path
from visualprof.views.measure.steps.windows import HOST_WORK


@dataclass(frozen=True)
class WhatIfParams(Params):
    """Parameters of the view.

    Attributes:
        change: Changes of durations, separated by semicolons: `kernel[name~gemm]*0.5; dataloader=0`.
    """

    change: str = ""


class WhatIfAnswer(Answer):
    """A forecast.

    Attributes:
        error_ratio: Error of the replay without a change, relative to the recording; at most 1.
        unexplained_ratio: Share of the recording in which device work started later than all its known dependencies; at
            most 1.
        device_error_ns: Median error of the start of device work.
        obstacle: Which of the two ratios is too large for a forecast; None if there is a forecast.
    """

    step: StepForecast
    steps: kinds.Count
    error_ratio: kinds.Ratio
    unexplained_ratio: kinds.Ratio
    device_error_ns: kinds.Duration | None
    obstacle: Obstacle | None
    path_before: Table[PathPartColumns]
    path_after: Table[PathPartColumns]
    changes: Table[ForecastColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace has work of the host or of a device."""
    return bool(is_device_work(trace).any() or trace.events.category_mask(*HOST_WORK).any())


def compute(trace: Trace, params: WhatIfParams) -> WhatIfAnswer:
    """Return the steps as measured, as replayed, and as predicted.

    Raises:
        BadParameter: A change is invalid, or the recording has no such work.

    Source: docs/whatif.md
    """
    base = baseline(trace)
    graph, as_is, steps = base.graph, base.replay, base.step_count
    changes = parse_changes(params.change)
    dur, ns = apply_changes(trace, graph, changes)
    met = base.obstacle is None
    after = solve(graph, dur, ns) if met and changes else as_is
    predicted = base.scale_to_measured(after, dur) if met else None
    device = np.abs(as_is.time - graph.nodes.time)[graph.nodes.thread_group < 0]
    none = PathPartColumns(part=[], path_ns=[], share=[])
    return WhatIfAnswer(
        step=step_forecast(base.measured_ns, base.simulated_ns, predicted),
        steps=steps,
        error_ratio=base.error_ratio,
        unexplained_ratio=base.unexplained_ratio,
        device_error_ns=round(float(np.median(device))) if len(device) else None,
        obstacle=base.obstacle,
        path_before=Table(columns=path_parts(trace, graph, baseline_path(trace), steps)),
        path_after=Table(columns=_path(trace, graph, after, dur, ns, steps) if met and changes else none),
        changes=Table(columns=_forecasts(trace, base, suggest_changes(trace, graph) if met else [])),
    )


def make_charts(result: WhatIfAnswer, params: WhatIfParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `changes`: predicted savings of each suggested change."""
    forecasts = result.changes.columns
    return (
        {"changes": charts.bars(forecasts.change[:top], [("@t:column.gain_ns", forecasts.gain_ns[:top])])}
        if forecasts.change
        else {}
    )


def _forecasts(trace: Trace, base: Baseline, texts: list[str]) -> ForecastColumns:
    predicted = np.array([base.predicted_ns(*apply_changes(trace, base.graph, parse_changes(text))) for text in texts])
    order = np.argsort(predicted, kind="stable")
    gain = base.measured_ns - predicted[order]
    return ForecastColumns(
        change=[texts[int(i)] for i in order],
        predicted_ns=predicted[order],
        gain_ns=gain,
        gain_ratio=gain / base.measured_ns if base.measured_ns else gain,
    )


def _path(trace: Trace, graph: WaitGraph, replay: Replay, dur: Floats, ns: Floats, steps: int) -> PathPartColumns:
    return path_parts(trace, graph, critical_path(graph, replay, dur, ns, full_scope(graph, replay, dur)), steps)


VIEW = View("whatif", 48, needs, WhatIfParams, compute, make_charts)
