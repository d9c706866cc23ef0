"""The replay of a recording without changes, and the duration of its steps with changed times."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.graph import Replay, WaitGraph, solve
from visualprof.views.measure.replay.path import replay_window
from visualprof.views.measure.trace_cache import cached_on_trace

MAX_ERROR_RATIO = 0.02  # of the replay without changes
MAX_UNEXPLAINED_RATIO = 0.1
Obstacle = Literal["error", "unexplained"]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The replay of a recording without changes.

    Attributes:
        graph: The wait graph.
        dur: (n,) ns of device work.
        replay: The replay.
        step_count: Number of steps.
        measured_ns: Measured mean duration of a step.
        simulated_ns: Replayed mean duration of a step.
        error_ratio: Relative error of the replay, at most 1.
        unexplained_ratio: Share of the time whose cause is unknown, at most 1.
        obstacle: Which of the two is too large for a forecast, `None` if neither.
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

    def predicted_ns(self, dur: Floats, delay_ns: Floats) -> float:
        """Return the mean duration of a step with other durations of device work and other delays."""
        return mean_step_ns(self.graph, solve(self.graph, dur, delay_ns), dur, self.step_count)


@cached_on_trace
def baseline(trace: Trace) -> Baseline:
    """Return the replay of a recording without changes. Source: docs/whatif.md."""
    graph = wait_graph(trace)
    dur = graph.nodes.dur.astype(np.float64)
    replay, step_count = solve(graph, dur, graph.edges.delay_ns), max(len(graph.step_nodes) - 1, 1)
    start, end, _ = replay_window(graph, graph.nodes.time.astype(np.float64), dur)
    measured, simulated = (end - start) / step_count, mean_step_ns(graph, replay, dur, step_count)
    error, unexplained, obstacle = replay_quality(measured, simulated, graph.unexplained_ns, end - start)
    return Baseline(
        graph=graph,
        dur=dur,
        replay=replay,
        step_count=step_count,
        measured_ns=measured,
        simulated_ns=simulated,
        error_ratio=error,
        unexplained_ratio=unexplained,
        obstacle=obstacle,
    )


def replay_quality(
    measured: float, simulated: float, unexplained_ns: float, span_ns: float
) -> tuple[float, float, Obstacle | None]:
    """Return `error_ratio`, `unexplained_ratio` and `obstacle` of `Baseline`.

    Args:
        measured: Measured duration of a step.
        simulated: Replayed duration of a step.
        unexplained_ns: Time whose cause is unknown.
        span_ns: Duration of all steps.
    """
    error = min(abs(simulated - measured) / measured, 1.0) if measured else 0.0
    unexplained = min(unexplained_ns / span_ns, 1.0) if span_ns > 0 else 0.0
    return (
        error,
        unexplained,
        ("error" if error > MAX_ERROR_RATIO else "unexplained" if unexplained > MAX_UNEXPLAINED_RATIO else None),
    )


def mean_step_ns(graph: WaitGraph, replay: Replay, dur: Floats, step_count: int) -> float:
    """Return the mean duration of a step."""
    start, end, _ = replay_window(graph, replay.time, dur)
    return (end - start) / step_count
