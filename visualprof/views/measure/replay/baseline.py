"""A recording replayed as it is, and what its steps take when something takes another time."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.graph import Replay, WaitGraph, solve
from visualprof.views.measure.replay.path import replay_window
from visualprof.views.measure.trace_cache import cached_on_trace

MAX_ERROR_RATIO = 0.02  # of the replay without a change
MAX_UNEXPLAINED_RATIO = 0.1
Obstacle = Literal["error", "unexplained"]


class Baseline(msgspec.Struct, frozen=True):
    """The replay without a change. dur: (n,) ns of the moments' work. measured_ns, simulated_ns: of a step on average.

    error_ratio, unexplained_ratio: at most 1. obstacle: which of the two is too large for a forecast.
    """

    graph: WaitGraph
    dur: Floats
    replay: Replay
    step_count: int
    measured_ns: float
    simulated_ns: float
    error_ratio: float
    unexplained_ratio: float
    obstacle: Obstacle | None

    def predicted_ns(self, dur: Floats, ns: Floats) -> float:
        """Time of a step on average with other times of the moments' work and of the waits."""
        return mean_step_ns(self.graph, solve(self.graph, dur, ns), dur, self.step_count)


@cached_on_trace
def baseline(trace: Trace) -> Baseline:
    """The replay of a recording as it is. Source: docs/whatif.md."""
    graph = wait_graph(trace)
    dur = graph.nodes.dur.astype(np.float64)
    replay, steps = solve(graph, dur, graph.edges.delay_ns), max(len(graph.step_nodes) - 1, 1)
    begun, ended, _ = replay_window(graph, graph.nodes.time.astype(np.float64), dur)
    measured, simulated = (ended - begun) / steps, mean_step_ns(graph, replay, dur, steps)
    error, unexplained, obstacle = replay_quality(measured, simulated, graph.unexplained_ns, ended - begun)
    return Baseline(graph, dur, replay, steps, measured, simulated, error, unexplained, obstacle)


def replay_quality(
    measured: float, simulated: float, unexplained_ns: float, span_ns: float
) -> tuple[float, float, Obstacle | None]:
    """`error_ratio`, `unexplained_ratio` and `obstacle`, of a step as measured and as replayed and of a span."""
    error = min(abs(simulated - measured) / measured, 1.0) if measured else 0.0
    unexplained = min(unexplained_ns / span_ns, 1.0) if span_ns > 0 else 0.0
    return (
        error,
        unexplained,
        ("error" if error > MAX_ERROR_RATIO else "unexplained" if unexplained > MAX_UNEXPLAINED_RATIO else None),
    )


def mean_step_ns(graph: WaitGraph, replay: Replay, dur: Floats, steps: int) -> float:
    """Time of a step on average."""
    low, high, _ = replay_window(graph, replay.time, dur)
    return (high - low) / steps
