"""Settings in processes of their own: loaded, compared by their outputs, and timed in turns with each other."""

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
MEMORY_SHARE = 0.6  # of what the task may use, for one process
MAX_TRIAL_TIMES = 20  # times as long as a trial: for the runs that a percentile needs


@dataclass
class LoadedSetting:
    """A loaded setting in its process. outputs: folder with those of each set. load: what it said of its load."""

    process: ChildProcess
    outputs: Path
    load: Json


class Bench:
    """Where the settings of one task run."""

    def __init__(
        self, task: TaskFile, events: EventLog, points: list[SweepPoint], bounds: Sequence[Constraint], folder: Path
    ) -> None:
        """Make the inputs. bounds: constraints, whose percentiles need runs. Raises: TaskFailure: the data do not fit.

        folder: an empty one, removed by whoever made it.
        """
        self.task, self.events, self.asked, self.points = task, events, task.lease.request.search, points
        self.folder = folder
        self.sets: InputSets = write_input_sets(task, folder / "sets")
        self._spec, self._backend = task.lease.spec, backend(task.lease.spec.backend)
        self._bounds = ProcessLimits.for_model(task.model, round(MEMORY_SHARE * task.memory_bytes))
        self._least_n = max((_runs(one.field) for one in bounds), default=0)
        energy = self.asked.objective == "energy"
        self._turn_s = max(ENERGY_TURN_S if energy else TURN_S, self.asked.trial_s / MIN_ROUNDS)
        self._models: dict[str, tuple[Path, Mapping[str, str]]] = {NO_CONVERSION: (task.model, {})}

    def load(self, name: str, setting: Setting) -> LoadedSetting:
        """A process with a setting loaded, and its outputs for the sets of its size; {} is the default setting.

        Raises: TaskFailure: what it failed with, or how it ended.
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
            for one in self.sets.sets:
                if not setting or one.from_user or one.name == self._set(setting):
                    process.call("outputs", limit_s, feeds=str(one.file), into=str(folder / one.name))
        except BaseException:
            process.close()
            raise
        return LoadedSetting(process, folder, load)

    def close(self, running: LoadedSetting) -> None:
        """End a process, and forgets its outputs."""
        running.process.close()
        shutil.rmtree(running.outputs, ignore_errors=True)

    def warm_up_point(self, running: LoadedSetting, setting: Setting) -> None:
        """Warms a setting at its size, with its lanes."""
        self.events.emit("phase", phase="searching", batch=self.points[self._at(setting)].batch)
        lanes = int(setting.get("streams", "1"))
        running.process.call("ready", self.asked.step_s, at=self._at(setting), lanes=lanes)

    def untimed_metrics(self, running: LoadedSetting, beside: LoadedSetting, setting: Setting) -> Metrics:
        """Figures of a setting that need no clock.

        error: the largest difference of an output, as a share of the largest number of the default setting's: on the
        rows of the user's data where there are some, else on random inputs.

        Raises: TaskFailure: the outputs cannot be compared.
        """
        comparison = Comparison()
        for name in [one.name for one in self.sets.sets if one.from_user] or [self._set(setting)]:
            comparison.add(*(read_outputs(each.outputs / name) for each in (beside, running)))
        error = comparison.error()
        if error.broken:
            raise TaskFailure(
                "model_error",
                msg(
                    "child.outputs_not_default_setting",
                    f"its outputs are not those of the default setting: {error.broken}",
                ),
            )
        return {"load_ns": running.load["load_ns"], "size_bytes": self._size(setting), "error": error.relative}

    def time_rounds(
        self, running: LoadedSetting, beside: LoadedSetting, setting: Setting, most: int
    ) -> tuple[Json, Metrics]:
        """Turns of two settings; the ratio of the first one's costs to the other's, and figures of the first.

        Args: most: rounds, of which a third suffices where the ratio's interval is narrow, but 9 at least.
        """
        pair, limit_s = (beside.process, running.process), self.asked.step_s
        costs: tuple[list[float], list[float]] = ([], [])
        least = max(MIN_ROUNDS, most // 3)
        while True:
            for who in (0, 1) if len(costs[0]) % 2 == 0 else (1, 0):
                turn = pair[who].call("burst", limit_s, least_s=self._turn_s)
                costs[who].append(self._cost(turn))
            if (n := len(costs[0])) >= least:
                ratio = ratio_interval(costs[1], costs[0])
                if n >= most or ratio.high - ratio.low <= 2 * MARGIN * ratio.value:
                    break
        self._percentiles(running)
        told, peak = running.process.call("figures", limit_s), running.process.call("peak", limit_s)
        figures: Metrics = {**told, "rss_bytes": int(peak["rss_bytes"]), "device_bytes": peak["device_bytes"]}
        if self.asked.objective == "size":
            share = self._size(setting) / max(1, self._size({}))
            ratio = Interval(share, share, share)
        return {**vars(ratio), "rounds": n}, figures

    def _cost(self, turn: Json) -> float:
        """What a turn says of the objective, the smaller the better."""
        cost = turn["latency" if self.asked.objective == "size" else self.asked.objective]
        if cost is None:
            hint = msg(
                "child.many_systems_root_alone", "on many systems root alone may read the counters of the processors"
            )
            raise TaskFailure(
                "agent_error",
                msg("child.machine_not_tell_how", "this machine does not tell how much energy it uses"),
                hint,
            )
        return max(float(cost), 1e-12)

    def _percentiles(self, running: LoadedSetting) -> None:
        """Further runs where a constrained percentile needs more than there were."""
        runs = int(running.process.call("figures", self.asked.step_s)["runs"])
        end = time.monotonic() + MAX_TRIAL_TIMES * self.asked.trial_s
        while runs < self._least_n and time.monotonic() < end:
            runs += int(running.process.call("burst", self.asked.step_s, least_s=self._turn_s)["runs"])

    def _model(self, name: str) -> tuple[Path, Mapping[str, str]]:
        """The model that a conversion makes, once for all settings that have it, and how that is to be run."""
        if name not in self._models:
            pythons = self.task.converters.get(name)
            if not pythons:
                raise TaskFailure(
                    "no_runtime",
                    msg("child.no_interpreter_machine_what", f"no interpreter of this machine has what {name} needs"),
                )
            folder, step, data = self.folder / "made" / name, ConversionStep(name), self.sets.data
            shutil.rmtree(folder, ignore_errors=True)
            made = run_conversion(pythons[0], step, self.task.model, data, folder, self._bounds, self.asked.step_s)
            file = folder / "out" / "made" / Path(str(made["file"])).name
            self._models[name] = file, converter(name).settings
        return self._models[name]

    def _size(self, setting: Setting) -> int:
        """Bytes of all files of a setting's model."""
        model, own = self._model(setting.get("conversion", NO_CONVERSION))[0], self.task.model
        if model == own and own.is_file():
            files = [own, *(own.parent / part.path for part in self.task.lease.request.model.parts)]
        else:
            files = [file for file in model.parent.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files)

    def _at(self, setting: Setting) -> int:
        """The number of the point that a setting runs; the first one without a size of its own."""
        return [point.batch for point in self.points].index(int(setting[BATCH])) if BATCH in setting else 0

    def _set(self, setting: Setting) -> str:
        return f"random-{self.points[self._at(setting)].batch}"


def _runs(field: str) -> int:
    """Run that a figure needs to be known: percentiles many."""
    return next((least for p, least in MIN_SAMPLES.items() if field == f"p{p // 10}_ns" and p % 10 == 0), 0)
