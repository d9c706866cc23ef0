"""What if: the steps replayed with something that takes another time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Answer, Columns, Table
from visualprof.views.measure.launch import is_device_work
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.change import changed, parse, suggestions
from visualprof.views.measure.replay.graph import Graph, Replay, solve
from visualprof.views.measure.replay.path import PathPartColumns, critical_path, parts, window
from visualprof.views.measure.steps import HOST_WORK

MOST_ERROR = 0.02  # of the replay without a change
MOST_UNEXPLAINED = 0.1
Obstacle = Literal["error", "unexplained"]


@dataclass(frozen=True)
class WhatIfParams(Params):
    """change: what takes another time, several between semicolons: `kernel[name~gemm]*0.5; dataloader=0`."""

    change: str = ""


class StepForecast(msgspec.Struct):
    """Of a step on average. simulated_ns: replayed as it is. gain_ns: simulated less predicted, None if none is."""

    measured_ns: kinds.Duration
    simulated_ns: kinds.Duration
    predicted_ns: kinds.Duration | None
    gain_ns: kinds.Duration | None
    gain_ratio: kinds.Ratio | None


class ForecastColumns(Columns):
    """Changes that the recording has something of, each alone, the largest gain first. gain_ns: of a step."""

    change: kinds.Names
    predicted_ns: kinds.Durations
    gain_ns: kinds.Durations
    gain_ratio: kinds.Ratios


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
    return bool(is_device_work(trace).any() or trace.events.of(*HOST_WORK).any())


def compute(trace: Trace, params: WhatIfParams) -> WhatIfAnswer:
    """The steps as measured, as replayed, and as predicted.

    Raises: BadParameter: a change that is none, or of what the recording does not have.
    Source: docs/whatif.md.
    """
    graph = wait_graph(trace)
    changes = parse(params.change)
    dur, ns = changed(trace, graph, changes)
    usual, at = graph.moments.dur.astype(np.float64), graph.moments.at.astype(np.float64)
    as_is = solve(graph, usual, graph.waits.ns)
    steps = max(len(graph.marks) - 1, 1)
    begun, ended, _ = window(graph, at, usual)
    measured, simulated = (ended - begun) / steps, _step(graph, as_is, usual, steps)
    error = min(abs(simulated - measured) / measured, 1.0) if measured else 0.0
    unexplained = min(graph.unexplained_ns / (ended - begun), 1.0) if ended > begun else 0.0
    obstacle: Obstacle | None = (
        "error" if error > MOST_ERROR else "unexplained" if unexplained > MOST_UNEXPLAINED else None
    )
    met = obstacle is None
    after = solve(graph, dur, ns) if met and changes else as_is
    predicted = _step(graph, after, dur, steps) if met else None
    gain = None if predicted is None else simulated - predicted
    device = np.abs(as_is.at - at)[graph.moments.line < 0]
    none = PathPartColumns(part=[], path_ns=[], share=[])
    return WhatIfAnswer(
        step=StepForecast(
            round(measured),
            round(simulated),
            None if predicted is None else round(predicted),
            None if gain is None else round(gain),
            None if gain is None or not simulated else gain / simulated,
        ),
        steps=steps,
        error_ratio=error,
        unexplained_ratio=unexplained,
        device_error_ns=round(float(np.median(device))) if len(device) else None,
        obstacle=obstacle,
        path_before=Table(columns=_path(trace, graph, as_is, usual, graph.waits.ns, steps)),
        path_after=Table(columns=_path(trace, graph, after, dur, ns, steps) if met and changes else none),
        changes=Table(columns=_each(trace, graph, suggestions(trace, graph) if met else [], simulated, steps)),
    )


def make_charts(result: WhatIfAnswer, params: WhatIfParams, top: int) -> dict[str, charts.Option]:
    """`changes`: what each would bring."""
    each = result.changes.columns
    return (
        {"changes": charts.bars(each.change[:top], [("@t:column.gain_ns", each.gain_ns[:top])])} if each.change else {}
    )


def _step(graph: Graph, replay: Replay, dur: Floats, steps: int) -> float:
    """Time of a step on average."""
    low, high, _ = window(graph, replay.at, dur)
    return (high - low) / steps


def _each(trace: Trace, graph: Graph, texts: list[str], simulated: float, steps: int) -> ForecastColumns:
    times = [changed(trace, graph, parse(text)) for text in texts]
    predicted = np.array([_step(graph, solve(graph, dur, ns), dur, steps) for dur, ns in times])
    order = np.argsort(predicted, kind="stable")
    gain = simulated - predicted[order]
    return ForecastColumns(
        change=[texts[int(i)] for i in order],
        predicted_ns=predicted[order],
        gain_ns=gain,
        gain_ratio=gain / simulated if simulated else gain,
    )


def _path(trace: Trace, graph: Graph, replay: Replay, dur: Floats, ns: Floats, steps: int) -> PathPartColumns:
    start, _, last = window(graph, replay.at, dur)
    return parts(trace, graph, critical_path(graph, replay, dur, ns, start, last), steps)


VIEW = View("whatif", 48, needs, WhatIfParams, compute, make_charts)
