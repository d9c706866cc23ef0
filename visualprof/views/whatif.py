"""What if: the steps replayed with something that takes another time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Answer, Table
from visualprof.views.measure.launch import is_device_work
from visualprof.views.measure.replay.baseline import Baseline, Obstacle, baseline, step_ns
from visualprof.views.measure.replay.change import changed, parse, suggestions
from visualprof.views.measure.replay.forecast import ForecastColumns, StepForecast, step_forecast
from visualprof.views.measure.replay.graph import Graph, Replay, solve
from visualprof.views.measure.replay.path import PathPartColumns, critical_path, parts, whole
from visualprof.views.measure.steps import HOST_WORK


@dataclass(frozen=True)
class WhatIfParams(Params):
    """change: what takes another time, several between semicolons: `kernel[name~gemm]*0.5; dataloader=0`."""

    change: str = ""


class WhatIfAnswer(Answer):
    """A forecast.

    error_ratio: of the replay without a change against the recording. unexplained_ratio: by how much device work began
    later than all that it is known to wait for, of the recording. Of both, 1 stands for more, too. device_error_ns:
    median by which the start of device work is missed. obstacle: which of the two is too large for a forecast; None
    where there is one.
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
    """Work of the host or of a device."""
    return bool(is_device_work(trace).any() or trace.events.category_mask(*HOST_WORK).any())


def compute(trace: Trace, params: WhatIfParams) -> WhatIfAnswer:
    """The steps as measured, as replayed, and as predicted.

    Raises: BadParameter: a change that is none, or of what the recording does not have.
    Source: docs/whatif.md.
    """
    known = baseline(trace)
    graph, usual, as_is, steps, simulated = known.graph, known.dur, known.replay, known.steps, known.simulated_ns
    changes = parse(params.change)
    dur, ns = changed(trace, graph, changes)
    met = known.obstacle is None
    after = solve(graph, dur, ns) if met and changes else as_is
    predicted = step_ns(graph, after, dur, steps) if met else None
    device = np.abs(as_is.at - graph.moments.at)[graph.moments.line < 0]
    none = PathPartColumns(part=[], path_ns=[], share=[])
    return WhatIfAnswer(
        step=step_forecast(known.measured_ns, simulated, predicted),
        steps=steps,
        error_ratio=known.error_ratio,
        unexplained_ratio=known.unexplained_ratio,
        device_error_ns=round(float(np.median(device))) if len(device) else None,
        obstacle=known.obstacle,
        path_before=Table(columns=_path(trace, graph, as_is, usual, graph.waits.ns, steps)),
        path_after=Table(columns=_path(trace, graph, after, dur, ns, steps) if met and changes else none),
        changes=Table(columns=_each(trace, known, suggestions(trace, graph) if met else [])),
    )


def make_charts(result: WhatIfAnswer, params: WhatIfParams, top: int) -> dict[str, charts.Option]:
    """`changes`: what each would bring."""
    each = result.changes.columns
    return (
        {"changes": charts.bars(each.change[:top], [("@t:column.gain_ns", each.gain_ns[:top])])} if each.change else {}
    )


def _each(trace: Trace, known: Baseline, texts: list[str]) -> ForecastColumns:
    predicted = np.array([known.predicted_ns(*changed(trace, known.graph, parse(text))) for text in texts])
    order = np.argsort(predicted, kind="stable")
    gain = known.simulated_ns - predicted[order]
    return ForecastColumns(
        change=[texts[int(i)] for i in order],
        predicted_ns=predicted[order],
        gain_ns=gain,
        gain_ratio=gain / known.simulated_ns if known.simulated_ns else gain,
    )


def _path(trace: Trace, graph: Graph, replay: Replay, dur: Floats, ns: Floats, steps: int) -> PathPartColumns:
    return parts(trace, graph, critical_path(graph, replay, dur, ns, whole(graph, replay, dur)), steps)


VIEW = View("whatif", 48, needs, WhatIfParams, compute, make_charts)
