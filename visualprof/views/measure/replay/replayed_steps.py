"""Start and end of steps in a replay, and the step time of a replay."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Floats, Ints, Rows, Trace
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.replay.graph import Replay, WaitGraph
from visualprof.views.measure.replay.path import replay_window
from visualprof.views.measure.steps.extents import StepWork, step_extents, step_work
from visualprof.views.measure.steps.step_time import typical_steps
from visualprof.views.measure.steps.windows import step_windows


class ReplayedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Typical steps of a recording, as nodes of its wait graph. Times count from the recording's first event.

    Attributes:
        measured_ns: The measured step time, or the duration of a recording without steps.
        window_ns: Measured duration from the first step to the end of all work.
        annotations: (n, 2) measured start and end of each step on the host.
        typical: Typical steps.
        work: Device work by step.
        work_nodes: (w,) nodes of the device work.
        host_nodes: Nodes of the thread group that runs the steps, in order of time: those around the annotations, the
            first and the last.
    """

    measured_ns: float
    window_ns: float
    annotations: Ints
    typical: Ints
    work: StepWork
    work_nodes: Rows
    host_nodes: Ints

    def step_time_ns(self, graph: WaitGraph, replay: Replay, dur: Floats) -> float:
        """Return the median duration of the typical steps in a replay with some durations of device work.

        Without steps, return the duration of the recording, scaled by the replay.
        """
        if not len(self.typical):
            start_ns, end_ns, _ = replay_window(graph, replay.time, dur)
            return self.measured_ns * (end_ns - start_ns) / self.window_ns if self.window_ns > 0 else self.measured_ns
        work_start = replay.time[self.work_nodes]
        start, end = step_extents(
            self.work, self._replayed(graph, replay), work_start, work_start + dur[self.work_nodes]
        )
        return float(np.median((end - start)[self.typical]))

    def _replayed(self, graph: WaitGraph, replay: Replay) -> Floats:
        """Return start and end of each step on the host: between the nodes around them, as in the recording."""
        measured = self.annotations.astype(np.float64)
        if not len(self.host_nodes):
            return measured
        node_ns = graph.nodes.time[self.host_nodes].astype(np.float64)
        after_last = np.maximum(measured - node_ns[-1], 0.0)
        return np.interp(measured, node_ns, replay.time[self.host_nodes]) + after_last


def replayed_steps(trace: Trace, graph: WaitGraph) -> ReplayedSteps:
    """Return the typical steps of a recording, as nodes of its wait graph."""
    windows, nodes, first_ns = step_windows(trace), graph.nodes, trace.span_ns[0]
    is_typical = typical_steps(trace)
    total_ns = (windows.end - windows.start)[is_typical]
    work = step_work(trace)
    node_of_event = np.full(len(trace.events), -1, np.int32)
    node_of_event[nodes.event[graph.work_nodes]] = graph.work_nodes
    start_ns, end_ns, _ = replay_window(graph, nodes.time.astype(np.float64), nodes.dur.astype(np.float64))
    annotations = np.stack((trace.steps.ts, trace.steps.ts + trace.steps.dur), axis=1) - first_ns
    return ReplayedSteps(
        measured_ns=float(np.median(total_ns)) if len(total_ns) else 0.0,
        window_ns=end_ns - start_ns,
        annotations=annotations,
        typical=windows.index[is_typical & (windows.index >= 0)],
        work=work,
        work_nodes=node_of_event[work.rows],
        host_nodes=_surrounding_nodes(graph, annotations),
    )


def _surrounding_nodes(graph: WaitGraph, annotations: Ints) -> Ints:
    """Return the nodes of the thread group that runs the steps directly before and after some times (n, 2) ns.

    The first and the last node are included. A replay interpolates between these nodes, so it needs no others.
    """
    nodes = graph.nodes
    group = nodes.thread_group[graph.step_nodes[0]] if len(graph.step_nodes) else -1
    if group < 0:
        return np.zeros(0, np.int64)
    members = np.flatnonzero(nodes.thread_group == group)
    following = np.searchsorted(nodes.time[members], annotations.ravel(), side="right")
    around = np.concatenate(([0, len(members) - 1], following - 1, following))
    return members[distinct(np.clip(around, 0, len(members) - 1))]
