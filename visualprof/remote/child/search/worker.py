"""One setting in a process of its own: it takes its turns, on several lanes where it has some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from visualprof.remote.child.advice.worker import MIN_TURN_RUNS, TURN_MAX_S, UNCOUNTED_RUNS, Worker
from visualprof.remote.child.energy import energy_meter
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.load import Loader
from visualprof.remote.child.measure import latency_statistics
from visualprof.remote.child.task import task_inputs
from visualprof.remote.protocol import Load, Measure

Json = dict[str, Any]
KEPT = ("mean_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns")


@dataclass
class SearchWorker(Worker):
    """lanes: runs at once. kept, duration_ns, used_j: of all turns since it was warmed; used_j None: not known."""

    lanes: int = 1
    at: int = 0
    kept: list[Any] = field(default_factory=list[Any])
    duration_ns: int = 0
    used_j: float | None = 0.0

    @property
    def commands(self) -> dict[str, Callable[..., object]]:
        """What can be asked."""
        return {**super().commands, "ready": self.warm_up_point, "burst": self.timed_turn, "figures": self.figures}

    def warm_up_point(self, at: int, lanes: int) -> Json:
        """Warms a point of the sweep, by its number, for so many lanes."""
        self.lanes, self.at = lanes, at
        self.kept, self.duration_ns, self.used_j = [], 0, 0.0
        self.meter = energy_meter(self.task.lease.spec.device)
        return self.warm(at)

    def timed_turn(self, least_s: float) -> Json:
        """A turn: its median latency, what a sample took, and joules of a sample where the device tells."""
        session, point = self._loaded(), self.points[self.at]
        for _ in range(0 if self.slow else UNCOUNTED_RUNS):
            session.infer(self.prepare_call)
        runs = (1 if self.slow else MIN_TURN_RUNS) * self.lanes
        how = Measure(min_s=least_s, max_s=TURN_MAX_S, min_n=runs, load=Load(concurrency=[self.lanes]))
        self.meter.used_j()
        timed = Loader(session, self._feeds(point), how, point.samples).run(self.prepare_call).timed
        used_j, n = self.meter.used_j(), len(timed.samples)
        self.kept.append(timed.samples)
        self.duration_ns += timed.duration_ns
        self.used_j = None if used_j is None or self.used_j is None else self.used_j + used_j
        samples = n * point.samples
        return {
            "latency": float(np.median(timed.samples)),
            "throughput": timed.duration_ns / samples,
            "energy": None if used_j is None else used_j / samples,
            "runs": n,
        }

    def figures(self) -> Json:
        """Figures of all turns since it was ready; None where there were too few runs."""
        samples = np.concatenate(self.kept)
        count = len(samples) * self.points[self.at].samples
        told = latency_statistics(samples)
        return {name: told[name] for name in KEPT} | {
            "runs": len(samples),
            "samples_per_s": count * 1e9 / max(1, self.duration_ns),
            "energy_j_per_sample": None if self.used_j is None else self.used_j / count,
        }

    def _feeds(self, point: SweepPoint) -> dict[str, Any]:
        return task_inputs(self.task)[1](point) if self.lanes > 1 else {}
