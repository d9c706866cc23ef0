"""One candidate in a process of its own: it loads, shows its outputs and takes its turns at the word of the stage.

Commands come as lines of JSON, and each is answered by one: `{"ok": ...}` or `{"failed": {reason, error, hint}}`.
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
SLOW_NS = 200_000_000  # a run that takes so long is not repeated within a turn
MIN_TURN_RUNS, UNCOUNTED_RUNS = 5, 2  # of a turn: at least, and that are not counted
TURN_MAX_S = 10.0
TURN_QUANTILE = 0.2


def serve(commands: Mapping[str, Callable[..., object]]) -> int:
    """Answers commands, by their names, until their end."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a runtime prints belongs into the log
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": commands[command.pop("do")](**command)}
        except Exception as error:  # noqa: BLE001 (whatever a runtime raises is the end of this candidate alone)
            traceback.print_exc()
            failure = to_failure(error)
            answer = {"failed": {"reason": failure.reason, "error": failure.error, "hint": failure.hint}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


@dataclass
class Worker:
    """A loaded candidate, and the point that it is warm for."""

    task: TaskFile
    session: Session | None = None
    prepared: Any = None
    slow: bool = False
    points: list[SweepPoint] = field(default_factory=list[SweepPoint])

    @property
    def commands(self) -> dict[str, Callable[..., object]]:
        """What can be asked."""
        return {
            "load": self.load, "outputs": self.outputs, "warm": self.warm, "turn": self.turn, "peak": self.peak,
            "places": self.places, "metric": user_metric,
        }  # fmt: skip

    def load(self, model: str, spec: Json) -> Json:
        """Load a model as a spec says; the time that took, what it really is, and whose version."""
        wanted = build(Spec, spec)
        runtime = backend(wanted.backend)
        self.points, feeds = task_inputs(self.task)
        first = feeds(self.points[0])
        importlib.import_module(runtime.module)  # no part of the load
        begin = time.perf_counter_ns()
        self.session = runtime.load(Path(model), wanted, first)
        took_ns = time.perf_counter_ns() - begin
        return {"load_ns": took_ns, "effective": self.session.effective(), "version": runtime.version()}

    def outputs(self, feeds: str, into: str) -> int:
        """Run a set of inputs, an .npz, and writes its outputs as `<into>/<number>.npy`; their number."""
        with np.load(feeds, allow_pickle=False) as file:
            values: Feeds = {name: file[name] for name in file.files}
        session = self._loaded()
        found = [np.asarray(each) for each in session.fetch(session.infer(session.prepare(values)))]
        Path(into).mkdir(parents=True, exist_ok=True)
        for i, each in enumerate(found):
            np.save(Path(into, f"{i}.npy"), each, allow_pickle=False)
        return len(found)

    def warm(self, at: int) -> Json:
        """Make a point of the sweep, by its number, ready for turns; what its first run took."""
        session, feeds = self._loaded(), task_inputs(self.task)[1](self.points[at])
        reset_peak_rss()
        self.prepared = session.prepare(feeds)
        begin = time.perf_counter_ns()
        session.fetch(session.infer(self.prepared))
        first_ns = time.perf_counter_ns() - begin
        if first_ns < WARM_UP.max_s * 1e9:
            warm_up(session.infer, self.prepared, WARM_UP)
        begin = time.perf_counter_ns()
        session.infer(self.prepared)
        self.slow = time.perf_counter_ns() - begin > SLOW_NS
        return {"first_ns": first_ns, "samples": self.points[at].samples}

    def turn(self, least_s: float) -> float:
        """What the fastest fifth of some runs took at most, ns; the first ones find cold caches and are not counted."""
        infer = self._loaded().infer
        for _ in range(0 if self.slow else UNCOUNTED_RUNS):
            infer(self.prepared)
        timed = time_runs(infer, self.prepared, least_s, TURN_MAX_S, 1 if self.slow else MIN_TURN_RUNS)
        return float(np.quantile(timed.samples, TURN_QUANTILE))

    def peak(self) -> Json:
        """Peak memory since it was warmed, of the process and of the device."""
        return {"rss_bytes": peak_rss_bytes(), "device_bytes": self._loaded().memory_bytes()}

    def places(self) -> dict[str, dict[str, int]]:
        """Where its operators run."""
        return self._loaded().operator_placement()

    def _loaded(self) -> Session:
        if self.session is None:
            raise TaskFailure("agent_error", msg("child.nothing_loaded", "nothing is loaded"))
        return self.session


def user_metric(source: str, original: list[str], candidate: list[str]) -> float:
    """A number of the user's own making. Args: files of the outputs, set by set."""
    space: dict[str, Any] = {"__name__": "metric"}
    exec(compile(source, "metric.py", "exec"), space)  # the user's own, in the sandbox of the task
    if not callable(metric := space.get("metric")):
        raise TaskFailure(
            "input_error",
            msg("child.metrics_file_no_function", "the metric's file has no function `metric`"),
            msg("child.metric_original_candidate", "metric(original, candidate)"),
        )
    value: Any = metric(_arrays(original), _arrays(candidate))
    number = float(value)
    if not np.isfinite(number):
        raise TaskFailure("input_error", msg("child.metric_returned", f"the metric returned {number}"))
    return number


def _arrays(folders: list[str]) -> list[Any]:
    """The outputs of all sets, each output as one array along its first dimension."""
    sets = [read_outputs(Path(folder)) for folder in folders]
    return [np.concatenate([np.atleast_1d(each) for each in parts]) for parts in zip(*sets, strict=True)]


def read_outputs(folder: Path) -> list[Any]:
    """The outputs that `Worker.outputs` wrote."""
    files = sorted(folder.glob("*.npy"), key=lambda file: int(file.stem))
    return [np.load(file, allow_pickle=False) for file in files]


def spec_json(spec: Spec) -> Json:
    """A spec for `load`."""
    return {**vars(replace(spec)), "options": dict(spec.options)}
