"""Settings in separate processes: loaded, compared by their outputs, and timed in turns with each other."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.backends import backend
from visualprof.remote.child.advice.candidates import ConversionStep, newest_runtime
from visualprof.remote.child.advice.conversion import run_conversion
from visualprof.remote.child.advice.errors import Comparison
from visualprof.remote.child.advice.process import ChildProcess, ProcessLimits
from visualprof.remote.child.advice.rules import MARGIN, Interval, ratio_interval
from visualprof.remote.child.advice.sets import InputSets, write_input_sets
from visualprof.remote.child.advice.worker import read_outputs, spec_json
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.measure import MIN_SAMPLES
from visualprof.remote.child.search.space import BATCH, NO_CONVERSION, Setting, apply_setting
from visualprof.remote.child.search.trial import Json, Metrics
from visualprof.remote.child.task import EventLog, TaskFile
from visualprof.remote.constraints import Constraint
from visualprof.remote.converters import converter
from visualprof.remote.protocol import TaskFailure

MIN_ROUNDS = 9  # rounds
TURN_S, ENERGY_TURN_S = 0.03, 0.5
MEMORY_SHARE = 0.6  # share of the task's memory that one process may use
MAX_TRIAL_TIMES = 20  # extra runs for a percentile may take this many times `trial_s`


@dataclass
class LoadedSetting:
    """A loaded setting in its process.

    Attributes:
        process: The process.
        outputs: Folder with the outputs of each input set.
        load: The answer to the command `load`.
    """

    process: ChildProcess
    outputs: Path
    load: Json


class Bench:
    """Runs the settings of one task."""

    def __init__(
        self, task: TaskFile, events: EventLog, points: list[SweepPoint], bounds: Sequence[Constraint], folder: Path
    ) -> None:
        """Write the input sets.

        Args:
            task: The task.
            events: Receives events.
            points: The points of the sweep.
            bounds: Constraints. Percentiles in them require a number of runs.
            folder: An empty folder, which the caller removes.

        Raises:
            TaskFailure: The data do not fit the model.
        """
        self.task, self.events, self.asked, self.points = task, events, task.lease.request.search, points
        self.folder = folder
        self.sets: InputSets = write_input_sets(task, folder / "sets")
        self._spec, self._backend = task.lease.spec, backend(task.lease.spec.backend)
        self._bounds = ProcessLimits.for_model(task.model, round(MEMORY_SHARE * task.memory_bytes))
        self._least_n = max((_runs(constraint.field) for constraint in bounds), default=0)
        energy = self.asked.objective == "energy"
        self._turn_s = max(ENERGY_TURN_S if energy else TURN_S, self.asked.trial_s / MIN_ROUNDS)
        self._models: dict[str, tuple[Path, Mapping[str, str]]] = {NO_CONVERSION: (task.model, {})}

    def load(self, name: str, setting: Setting) -> LoadedSetting:
        """Load a setting in a process and compute its outputs. {} is the default setting.

        Raises:
            TaskFailure: The process failed or ended.
        """
        model, settings = self._model(setting.get("conversion", NO_CONVERSION))
        spec = apply_setting(self._spec, setting, list(self._backend.options), settings)
        runtime = newest_runtime(spec, self.task.runtimes)
        if runtime is None:
            raise TaskFailure(
                "no_runtime", msg("child.machine_no", f"this machine has no {spec.backend} for {spec.device}")
            )
        folder, limit_s = self.folder / "run" / name, self.asked.step_s
        process = ChildProcess(runtime.python, self.task.work, "searcher", folder, self._bounds, asked=True)
        try:
            load = process.call("load", limit_s, model=str(model), spec=spec_json(spec))
            for input_set in self.sets.sets:
                if not setting or input_set.from_user or input_set.name == self._set(setting):
                    process.call("outputs", limit_s, feeds=str(input_set.file), into=str(folder / input_set.name))
        except BaseException:
            process.close()
            raise
        return LoadedSetting(process, folder, load)

    def close(self, running: LoadedSetting) -> None:
        """End a process and delete its outputs."""
        running.process.close()
        shutil.rmtree(running.outputs, ignore_errors=True)

    def warm_up_point(self, running: LoadedSetting, setting: Setting) -> None:
        """Warm up a setting at its batch size and concurrency."""
        self.events.emit("phase", phase="searching", batch=self.points[self._at(setting)].batch)
        streams = int(setting.get("streams", "1"))
        running.process.call("ready", self.asked.step_s, at=self._at(setting), lanes=streams)

    def untimed_metrics(self, running: LoadedSetting, baseline: LoadedSetting, setting: Setting) -> Metrics:
        """Return the metrics of a setting that need no clock.

        `error` is the largest difference of an output, relative to the largest value of the default setting's output.
        It is
        computed on the user's data if there are any, otherwise on random inputs.

        Raises:
            TaskFailure: The outputs cannot be compared.
        """
        comparison = Comparison()
        for name in [input_set.name for input_set in self.sets.sets if input_set.from_user] or [self._set(setting)]:
            comparison.add(*(read_outputs(loaded.outputs / name) for loaded in (baseline, running)))
        error = comparison.error()
        if error.broken:
            raise TaskFailure(
                "model_error",
                msg(
                    "child.outputs_not_default_setting",
                    f"its outputs differ from the outputs of the default setting: {error.broken}",
                ),
            )
        return {"load_ns": running.load["load_ns"], "size_bytes": self._size(setting), "error": error.relative}

    def time_rounds(
        self, running: LoadedSetting, baseline: LoadedSetting, setting: Setting, max_rounds: int
    ) -> tuple[Json, Metrics]:
        """Time turns of two settings. Return the cost ratio of the first to the other, and metrics of the first.

        Args:
            running: The setting.
            baseline: The setting that it is compared with.
            setting: The values of the setting.
            max_rounds: Maximum of rounds. A third suffices if the ratio's interval is narrow, but at least 9.
        """
        pair, limit_s = (baseline.process, running.process), self.asked.step_s
        costs: tuple[list[float], list[float]] = ([], [])
        min_rounds = max(MIN_ROUNDS, max_rounds // 3)
        while True:
            for index in (0, 1) if len(costs[0]) % 2 == 0 else (1, 0):
                turn = pair[index].call("burst", limit_s, least_s=self._turn_s)
                costs[index].append(self._cost(turn))
            if (n := len(costs[0])) >= min_rounds:
                ratio = ratio_interval(costs[1], costs[0])
                if n >= max_rounds or ratio.high - ratio.low <= 2 * MARGIN * ratio.value:
                    break
        self._percentiles(running)
        metrics, peak = running.process.call("figures", limit_s), running.process.call("peak", limit_s)
        figures: Metrics = {**metrics, "rss_bytes": int(peak["rss_bytes"]), "device_bytes": peak["device_bytes"]}
        if self.asked.objective == "size":
            share = self._size(setting) / max(1, self._size({}))
            ratio = Interval(share, share, share)
        return {**vars(ratio), "rounds": n}, figures

    def _cost(self, turn: Json) -> float:
        """Return the cost of a turn by the objective; smaller is better."""
        cost = turn["latency" if self.asked.objective == "size" else self.asked.objective]
        if cost is None:
            hint = msg(
                "child.many_systems_root_alone",
                "on many systems only root may read the energy counters of the processors",
            )
            raise TaskFailure(
                "agent_error",
                msg("child.machine_not_tell_how", "this machine does not report its energy use"),
                hint,
            )
        return max(float(cost), 1e-12)

    def _percentiles(self, running: LoadedSetting) -> None:
        """Add runs if a constrained percentile needs more."""
        runs = int(running.process.call("figures", self.asked.step_s)["runs"])
        end = time.monotonic() + MAX_TRIAL_TIMES * self.asked.trial_s
        while runs < self._least_n and time.monotonic() < end:
            runs += int(running.process.call("burst", self.asked.step_s, least_s=self._turn_s)["runs"])

    def _model(self, name: str) -> tuple[Path, Mapping[str, str]]:
        """Return the model that a conversion makes, once for all settings, and the options to run it with."""
        if name not in self._models:
            pythons = self.task.converters.get(name)
            if not pythons:
                raise TaskFailure(
                    "no_runtime",
                    msg(
                        "child.no_interpreter_machine_what",
                        f"no interpreter of this machine has the packages that {name} needs",
                    ),
                )
            folder, step, data = self.folder / "made" / name, ConversionStep(name), self.sets.data
            shutil.rmtree(folder, ignore_errors=True)
            made = run_conversion(
                pythons[0],
                step,
                self.task.model,
                data=data,
                folder=folder,
                bounds=self._bounds,
                limit_s=self.asked.step_s,
            )
            file = folder / "out" / "made" / Path(str(made["file"])).name
            self._models[name] = file, converter(name).settings
        return self._models[name]

    def _size(self, setting: Setting) -> int:
        """Return the size of all files of a setting's model, in bytes."""
        model, own = self._model(setting.get("conversion", NO_CONVERSION))[0], self.task.model
        if model == own and own.is_file():
            files = [own, *(own.parent / part.path for part in self.task.lease.request.model.parts)]
        else:
            files = [file for file in model.parent.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files)

    def _at(self, setting: Setting) -> int:
        """Return the number of the point that a setting runs, 0 if it has no batch size."""
        return [point.batch for point in self.points].index(int(setting[BATCH])) if BATCH in setting else 0

    def _set(self, setting: Setting) -> str:
        return f"random-{self.points[self._at(setting)].batch}"


def _runs(field: str) -> int:
    """Return how many runs a metric needs; 0 if it is not a percentile."""
    return next((least for p, least in MIN_SAMPLES.items() if field == f"p{p // 10}_ns" and p % 10 == 0), 0)
