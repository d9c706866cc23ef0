"""The replay of a recording without changes, and the duration of its steps with changed times."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Trace
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.graph import Replay, WaitGraph, solve
from visualprof.views.measure.replay.path import replay_window
from visualprof.views.measure.replay.replayed_steps import ReplayedSteps, replayed_steps

MAX_ERROR_RATIO = 0.02  # of the replay without changes
MAX_UNEXPLAINED_RATIO = 0.1
MAX_ROUNDING_NS = 1.0  # of times in a replay
Obstacle = Literal["error", "unexplained"]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The replay of a recording without changes.

    Attributes:
        graph: The wait graph.
        dur: (n,) ns of device work.
        replay: The replay.
        steps: Where the replayed steps start and end.
        step_count: Number of steps.
        measured_ns: The measured step time (`step_time_ns`); the duration of a recording without steps.
        simulated_ns: The same of the replay without changes.
        error_ratio: Relative error of the replay, at most 1: of all steps, or of the step time if that is larger.
        unexplained_ratio: Share of the time whose cause is unknown, at most 1.
        obstacle: Which of the two is too large for a forecast, `None` if neither.
    """

    graph: WaitGraph
    dur: Floats
    replay: Replay
    steps: ReplayedSteps
    step_count: int
    measured_ns: float
    simulated_ns: float
    error_ratio: float
    unexplained_ratio: float
    obstacle: Obstacle | None

    def predicted_ns(self, dur: Floats, delay_ns: Floats) -> float:
        """Return the step time with other durations of device work and other delays.

        It is the measured step time, scaled by the effect of the change on the replayed step time.
        """
        return self.scale_to_measured(solve(self.graph, dur, delay_ns, only_times=True), dur)

    def scale_to_measured(self, replay: Replay, dur: Floats) -> float:
        """Return the step time of another replay, relative to the measured step time.

        If nothing happens later than measured, the step time does not grow. The median of steps of different lengths
        may, because the end of one step is the start of the next.
        """
        if not self.simulated_ns:
            return self.measured_ns
        predicted_ns = self.measured_ns * self.steps.step_time_ns(self.graph, replay, dur) / self.simulated_ns
        is_later = (replay.time > self.replay.time + MAX_ROUNDING_NS).any() or (dur > self.dur).any()
        return predicted_ns if is_later else min(predicted_ns, self.measured_ns)


@cached_on_trace
def baseline(trace: Trace) -> Baseline:
    """Return the replay of a recording without changes. Source: docs/whatif.md."""
    graph = wait_graph(trace)
    dur = graph.nodes.dur.astype(np.float64)
    replay, step_count = solve(graph, dur, graph.edges.delay_ns), max(len(graph.step_nodes) - 1, 1)
    start, end, _ = replay_window(graph, graph.nodes.time.astype(np.float64), dur)
    replayed_start, replayed_end, _ = replay_window(graph, replay.time, dur)
    steps = replayed_steps(trace, graph)
    measured, simulated = steps.measured_ns, steps.step_time_ns(graph, replay, dur)
    whole = end - start, replayed_end - replayed_start
    compared = max(whole, (measured, simulated), key=lambda pair: abs(pair[1] - pair[0]) / pair[0] if pair[0] else 0.0)
    error, unexplained, obstacle = replay_quality(*compared, graph.unexplained_ns, end - start)
    return Baseline(
        graph=graph,
        dur=dur,
        replay=replay,
        steps=steps,
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
        measured: Measured duration of a step, or of all steps.
        simulated: The same of the replay.
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
