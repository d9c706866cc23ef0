"""The process of one candidate: it loads the model, computes outputs and runs timed turns as the stage commands.

Commands are lines of JSON. Each is answered by one line: `{"ok": ...}` or `{"failed": {reason, error, hint}}`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from visualprof.messages import msg
from visualprof.remote.backends import Feeds, Session, backend
from visualprof.remote.child.failures import to_failure
from visualprof.remote.child.host import peak_rss_bytes, reset_peak_rss
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.measure import time_runs, warm_up
from visualprof.remote.child.task import TaskFile, task_inputs
from visualprof.remote.protocol import Measure, Spec, TaskFailure, build

Json = dict[str, Any]

WARM_UP = Measure(warmup_s=0.1, max_s=20.0)
SLOW_NS = 200_000_000  # a slower run is not repeated within a turn
MIN_TURN_RUNS, UNCOUNTED_RUNS = 5, 2  # per turn: minimum of counted runs, and uncounted runs before them
TURN_MAX_S = 10.0
TURN_QUANTILE = 0.2


def serve(commands: Mapping[str, Callable[..., object]]) -> int:
    """Answer commands until the end of the input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of a runtime goes to the log
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": commands[command.pop("do")](**command)}
        except Exception as error:  # noqa: BLE001 (whatever a runtime raises fails only this candidate)
            traceback.print_exc()
            failure = to_failure(error)
            answer = {"failed": {"reason": failure.reason, "error": failure.error, "hint": failure.hint}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


@dataclass
class Worker:
    """A loaded candidate, and the point for which it is warmed up."""

    task: TaskFile
    session: Session | None = None
    prepared: Any = None
    slow: bool = False
    points: list[SweepPoint] = field(default_factory=list[SweepPoint])

    @property
    def commands(self) -> dict[str, Callable[..., object]]:
        """Return the commands by name."""
        return {
            "load": self.load,
            "outputs": self.outputs,
            "warm": self.warm,
            "turn": self.turn,
            "peak": self.peak,
            "places": self.places,
            "metric": user_metric,
        }

    def load(self, model: str, spec: Json) -> Json:
        """Load a model with a run configuration. Return the load time, effective settings and the runtime's version."""
        run_spec = build(Spec, spec)
        runtime = backend(run_spec.backend)
        self.points, feeds = task_inputs(self.task)
        first = feeds(self.points[0])
        importlib.import_module(runtime.module)  # before the clock starts: the load time excludes the import
        start = time.perf_counter_ns()
        self.session = runtime.load(Path(model), run_spec, first)
        took_ns = time.perf_counter_ns() - start
        return {"load_ns": took_ns, "effective": self.session.effective(), "version": runtime.version()}

    def outputs(self, feeds: str, into: str) -> int:
        """Run the inputs of an .npz, write the outputs as `<into>/<number>.npy`, and return their number."""
        with np.load(feeds, allow_pickle=False) as file:
            values: Feeds = {name: file[name] for name in file.files}
        session = self._loaded()
        arrays = [np.asarray(array) for array in session.fetch(session.infer(session.prepare(values)))]
        Path(into).mkdir(parents=True, exist_ok=True)
        for i, array in enumerate(arrays):
            np.save(Path(into, f"{i}.npy"), array, allow_pickle=False)
        return len(arrays)

    def warm(self, at: int) -> Json:
        """Warm up a point of the sweep, by its number. Return the duration of its first run."""
        session, feeds = self._loaded(), task_inputs(self.task)[1](self.points[at])
        reset_peak_rss()
        self.prepared = session.prepare(feeds)
        start = time.perf_counter_ns()
        session.fetch(session.infer(self.prepared))
        first_ns = time.perf_counter_ns() - start
        if first_ns < WARM_UP.max_s * 1e9:
            warm_up(session.infer, self.prepared, WARM_UP)
        start = time.perf_counter_ns()
        session.infer(self.prepared)
        self.slow = time.perf_counter_ns() - start > SLOW_NS
        return {"first_ns": first_ns, "samples": self.points[at].samples}

    def turn(self, least_s: float) -> float:
        """Return the 20 % quantile of some runs, ns. The first runs find cold caches and are not counted."""
        infer = self._loaded().infer
        for _ in range(0 if self.slow else UNCOUNTED_RUNS):
            infer(self.prepared)
        timed = time_runs(infer, self.prepared, least_s, TURN_MAX_S, 1 if self.slow else MIN_TURN_RUNS)
        return float(np.quantile(timed.samples, TURN_QUANTILE))

    def peak(self) -> Json:
        """Return the peak memory of the process and of the device since the warm-up."""
        return {"rss_bytes": peak_rss_bytes(), "device_bytes": self._loaded().memory_bytes()}

    def places(self) -> dict[str, dict[str, int]]:
        """Return where the operators run."""
        return self._loaded().operator_placement()

    def _loaded(self) -> Session:
        if self.session is None:
            raise TaskFailure("agent_error", msg("child.nothing_loaded", "nothing is loaded"))
        return self.session


def user_metric(source: str, original: list[str], candidate: list[str]) -> float:
    """Return the value of the user's metric.

    Args:
        source: Python code that defines `metric(original, candidate)`.
        original: Folders with the original's outputs, one per input set.
        candidate: Folders with the candidate's outputs.
    """
    space: dict[str, Any] = {"__name__": "metric"}
    exec(compile(source, "metric.py", "exec"), space)  # code of the user, in the sandbox of the task
    if not callable(metric := space.get("metric")):
        raise TaskFailure(
            "input_error",
            msg("child.metrics_file_no_function", "the file of the metric has no function `metric`"),
            msg("child.metric_original_candidate", "metric(original, candidate)"),
        )
    value: Any = metric(_arrays(original), _arrays(candidate))
    number = float(value)
    if not np.isfinite(number):
        raise TaskFailure("input_error", msg("child.metric_returned", f"the metric returned {number}"))
    return number


def _arrays(folders: list[str]) -> list[Any]:
    """Return the outputs of all sets, each output as one array along its first dimension."""
    sets = [read_outputs(Path(folder)) for folder in folders]
    return [np.concatenate([np.atleast_1d(output) for output in parts]) for parts in zip(*sets, strict=True)]


def read_outputs(folder: Path) -> list[Any]:
    """Read the outputs that `Worker.outputs` wrote."""
    files = sorted(folder.glob("*.npy"), key=lambda file: int(file.stem))
    return [np.load(file, allow_pickle=False) for file in files]


def spec_json(spec: Spec) -> Json:
    """Return a run configuration for the command `load`."""
    return {**vars(replace(spec)), "options": dict(spec.options)}
