"""The process of one setting: it runs timed turns, with several concurrent streams if the setting has them."""

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
LATENCY_METRICS = ("mean_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns")


@dataclass
class SearchWorker(Worker):
    """A loaded setting, and its timed turns.

    Attributes:
        streams: Concurrent runs.
        at: Number of the point.
        samples: Latencies of all turns since the warm-up, ns.
        duration_ns: Duration of all turns.
        used_j: Energy of all turns; `None` if unknown.
    """

    streams: int = 1
    at: int = 0
    samples: list[Any] = field(default_factory=list[Any])
    duration_ns: int = 0
    used_j: float | None = 0.0

    @property
    def commands(self) -> dict[str, Callable[..., object]]:
        """Return the commands by name."""
        return {**super().commands, "ready": self.warm_up_point, "burst": self.timed_turn, "figures": self.figures}

    def warm_up_point(self, at: int, lanes: int) -> Json:
        """Warm up a point of the sweep, by its number, for a number of concurrent streams."""
        self.streams, self.at = lanes, at  # the command's field is `lanes`
        self.samples, self.duration_ns, self.used_j = [], 0, 0.0
        self.meter = energy_meter(self.task.lease.spec.device)
        return self.warm(at)

    def timed_turn(self, least_s: float) -> Json:
        """Run a turn and return its median latency, the time per sample, and the energy per sample if known."""
        session, point = self._loaded(), self.points[self.at]
        for _ in range(0 if self.slow else UNCOUNTED_RUNS):
            session.infer(self.prepared)
        runs = (1 if self.slow else MIN_TURN_RUNS) * self.streams
        options = Measure(min_s=least_s, max_s=TURN_MAX_S, min_n=runs, load=Load(concurrency=[self.streams]))
        self.meter.used_j()
        timed = Loader(session, self._feeds(point), options, point.samples).run(self.prepared).timed
        used_j, n = self.meter.used_j(), len(timed.samples)
        self.samples.append(timed.samples)
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
        """Return metrics of all turns since the warm-up; `None` if there were too few runs."""
        samples = np.concatenate(self.samples)
        count = len(samples) * self.points[self.at].samples
        statistics = latency_statistics(samples)
        return {name: statistics[name] for name in LATENCY_METRICS} | {
            "runs": len(samples),
            "samples_per_s": count * 1e9 / max(1, self.duration_ns),
            "energy_j_per_sample": None if self.used_j is None else self.used_j / count,
        }

    def _feeds(self, point: SweepPoint) -> dict[str, Any]:
        return task_inputs(self.task)[1](point) if self.streams > 1 else {}
