"""A recording replayed as it is, and what its steps take when something takes another time."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.graph import Graph, Replay, solve
from visualprof.views.measure.replay.path import window
from visualprof.views.measure.trace_cache import cached_on_trace

MOST_ERROR = 0.02  # of the replay without a change
MOST_UNEXPLAINED = 0.1
Obstacle = Literal["error", "unexplained"]


class Baseline(msgspec.Struct, frozen=True):
    """The replay without a change. dur: (n,) ns of the moments' work. measured_ns, simulated_ns: of a step on average.

    error_ratio, unexplained_ratio: at most 1. obstacle: which of the two is too large for a forecast.
    """

    graph: Graph
    dur: Floats
    replay: Replay
    steps: int
    measured_ns: float
    simulated_ns: float
    error_ratio: float
    unexplained_ratio: float
    obstacle: Obstacle | None

    def predicted_ns(self, dur: Floats, ns: Floats) -> float:
        """Time of a step on average with other times of the moments' work and of the waits."""
        return step_ns(self.graph, solve(self.graph, dur, ns), dur, self.steps)


@cached_on_trace
def baseline(trace: Trace) -> Baseline:
    """The replay of a recording as it is. Source: docs/whatif.md."""
    graph = wait_graph(trace)
    dur = graph.moments.dur.astype(np.float64)
    replay, steps = solve(graph, dur, graph.waits.ns), max(len(graph.marks) - 1, 1)
    begun, ended, _ = window(graph, graph.moments.at.astype(np.float64), dur)
    measured, simulated = (ended - begun) / steps, step_ns(graph, replay, dur, steps)
    error, unexplained, obstacle = quality(measured, simulated, graph.unexplained_ns, ended - begun)
    return Baseline(graph, dur, replay, steps, measured, simulated, error, unexplained, obstacle)


def quality(
    measured: float, simulated: float, unexplained_ns: float, span_ns: float
) -> tuple[float, float, Obstacle | None]:
    """`error_ratio`, `unexplained_ratio` and `obstacle`, of a step as measured and as replayed and of a span."""
    error = min(abs(simulated - measured) / measured, 1.0) if measured else 0.0
    unexplained = min(unexplained_ns / span_ns, 1.0) if span_ns > 0 else 0.0
    return (
        error,
        unexplained,
        ("error" if error > MOST_ERROR else "unexplained" if unexplained > MOST_UNEXPLAINED else None),
    )


def step_ns(graph: Graph, replay: Replay, dur: Floats, steps: int) -> float:
    """Time of a step on average."""
    low, high, _ = window(graph, replay.at, dur)
    return (high - low) / steps
