"""The stage `search`: tries settings beside the default one, one after the other, and writes `search.json`.

Each is loaded, compared by its outputs and timed in turns with the default setting, which stays loaded all the time:
what the machine does meanwhile hits both. The file stands whole after each trial, and a stage that finds one of the
same search goes on with its trials.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import asdict

from visualprof.messages import msg
from visualprof.remote.child.advice.rules import Interval, noise_margin
from visualprof.remote.child.failures import to_failure
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.search.bench import Bench
from visualprof.remote.child.search.sampler import next_setting
from visualprof.remote.child.search.space import Space, search_space, trial_count
from visualprof.remote.child.search.trial import (
    Json,
    Metrics,
    Trial,
    cost,
    missed_constraints,
    ranked,
    read_interval,
    read_trials,
)
from visualprof.remote.child.task import EventLog, TaskFile, task_inputs
from visualprof.remote.constraints import Constraint, parse_constraint
from visualprof.remote.protocol import TaskFailure

SCHEMA = "visualprof.search/1"
CONFIRM_ROUNDS = 45  # rounds at most of what is measured again
TRIAL_ROUNDS = 27  # at most, of a trial
NOISE_ROUNDS = 15
FINALISTS = 3
MAX_STARTS = 2  # of a trial that the agent, or the machine, did not survive


def search(task: TaskFile, events: EventLog) -> None:
    """Run the stage.

    Raises: TaskFailure: the default setting cannot be loaded.
    """
    SearchStage(task, events).run()


class SearchStage:
    """One search: the default setting with its process, and the trials so far."""

    def __init__(self, task: TaskFile, events: EventLog) -> None:
        """Take a task whose request has a search."""
        self.task, self.events, self.asked = task, events, task.lease.request.search
        self.folder, self.file = task.work / "search", task.out / "search.json"
        self.points: list[SweepPoint] = task_inputs(task)[0]
        self.sizes = [point.batch for point in self.points]
        self.space: Space = search_space(self.asked, self.sizes)
        self.total = trial_count(self.asked, self.space.size)
        self.constraints = search_constraints(self.asked.where, task.lease.request.advise.max_error)
        self.trials: list[Trial] = []
        self.again: list[Json] = []
        self.default: Json = {}
        self.best: Json | None = None
        self.end = time.monotonic() + self.asked.budget_s

    def run(self) -> None:
        """The default setting, every trial, the best of them again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self.bench = Bench(self.task, self.events, self.points, self.constraints, self.folder)
            self._resume()
            self.beside = self.bench.load("default", {})
            try:
                self._measure_baseline()
                while self._has_trials_left() and time.monotonic() < self.end:
                    self._run_trial(self._next())
                self._confirm()
                self._write(complete=not self._has_trials_left())
            finally:
                self.beside.process.close()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _has_trials_left(self) -> bool:
        """Whether a trial is to be begun, or once more."""
        return len(self.trials) < self.total or any(one.state == "running" for one in self.trials)

    def _next(self) -> Trial:
        """The trial that an earlier start was in the middle of, else a new one."""
        if begun := next((one for one in self.trials if one.state == "running"), None):
            begun.starts += 1
            return begun
        axes = [len(values) for values in self.space.axes.values()]
        tried = [self._observation(one) for one in self.trials]
        at = next_setting(axes, self.space.ordinal(), self.asked.seed, tried)
        self.trials.append(Trial(at, self.space.setting(at)))
        return self.trials[-1]

    def _observation(self, trial: Trial) -> Json:
        excess = [one.excess(trial.figures) for one in self.constraints]
        return {"at": trial.at, "cost": trial.ratio["value"] if trial.ratio else None, "excess": excess}

    def _resume(self) -> None:
        """Take over what an earlier start of this search has tried.

        What it was in the middle of is tried once more; what was begun twice has ended its agent twice.
        """
        try:
            body = json.loads(self.file.read_text("utf-8"))
            if body["schema"] != SCHEMA or body["asked"] != asdict(self.asked) or body["sizes"] != self.sizes:
                return
            self.trials = read_trials(body["trials"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return
        for trial in self.trials:
            if trial.state == "running" and trial.starts >= MAX_STARTS:
                trial.state, trial.why = (
                    "failed",
                    msg("child.agent_machine_ended_twice", "the agent or the machine ended twice while it ran"),
                )
        if self.trials:
            _log(f"goes on after {len(self.trials)} trials")

    def _run_trial(self, trial: Trial) -> None:
        """Measure one; whatever it fails with is its own row."""
        self._write(complete=False)
        began = time.monotonic_ns()
        try:
            self._measure(trial)
        except Exception as error:  # noqa: BLE001 - a setting that fails is its own row
            told = to_failure(error)
            trial.state, trial.why = "failed", f"{told.reason}: {told.error}"
        trial.took_ns = time.monotonic_ns() - began
        self._write(complete=False)
        self.events.emit("progress", done=len(self.trials), total=self.total + 1)
        first = next(iter(ranked(self.trials)), None)
        shown = ", ".join(f"{name} {value}" for name, value in trial.setting.items())
        ended = " ".join(filter(None, (trial.state, f"{cost(trial):.3g} x" * bool(trial.ratio), trial.why)))
        best = f"{cost(first):.3g} x" if first else "none"
        _log(f"trial {len(self.trials)} of {self.total}: {shown}: {ended}; best so far {best}")

    def _measure(self, trial: Trial) -> None:
        """Load, compares, times and judges one; its figures tell how far it came."""
        running = self.bench.load(f"trial{trial.at}", trial.setting)
        try:
            trial.figures = self.bench.untimed_metrics(running, self.beside, trial.setting)
            errors = [one for one in self.constraints if one.field == "error"]
            trial.judge(errors)
            if trial.state == "infeasible":  # nobody wants to know how fast it is wrong
                return
            self.bench.warm_up_point(running, trial.setting)
            ratio, figures = self.bench.time_rounds(running, self.beside, trial.setting, TRIAL_ROUNDS)
            trial.ratio, trial.figures = ratio, trial.figures | figures
            trial.judge(self.constraints)
        finally:
            self.bench.close(running)

    def _measure_baseline(self) -> None:
        """The default setting beside a second process of it: its figures, and the margin of all verdicts."""
        self.bench.warm_up_point(self.beside, {})
        same, figures = self._measure_noise()
        load = self.beside.load
        self.default = {
            "batch": self.sizes[0],
            "figures": figures,
            "same": same,
            "margin": noise_margin(read_interval(same)),
            "missed": list(missed_constraints(self.constraints, figures)),
            "effective": {str(k)[:100]: str(v)[:500] for k, v in list(load["effective"].items())[:32]},
            "version": str(load["version"])[:100],
        }
        self._write(complete=False)

    def _measure_noise(self) -> tuple[Json, Metrics]:
        """The default setting's ratio to itself, and its figures."""
        twin = self.bench.load("itself", {})
        try:
            known = self.bench.untimed_metrics(twin, self.beside, {})
            self.bench.warm_up_point(twin, {})
            same, figures = self.bench.time_rounds(twin, self.beside, {}, NOISE_ROUNDS)
        finally:
            self.bench.close(twin)
        return same, known | figures

    def _confirm(self) -> None:
        """The best trials once more, in new processes: what was chosen for its figures had luck with them, too.

        One that lies above the whole interval of the first is measured only where none before it keeps the constraints
        again. The best of those that do is the result. Its verdict has the wider margin of two pairs of the default
        setting with itself: that of the start, and one of now.
        """
        finalists = ranked(self.trials)[:FINALISTS]
        if not finalists:
            return
        margin = max(noise_margin(read_interval(self._measure_noise()[0])), self.default["margin"])
        if self.asked.objective == "size":
            margin = 0.0
        kept: list[Json] = []
        for trial in finalists:
            if kept and read_interval(trial.ratio).low > read_interval(finalists[0].ratio).high:
                continue  # it was worse than luck explains
            _log(f"trial {self.trials.index(trial) + 1} is measured again")
            try:
                self.again.append({"at": trial.at, **self._remeasure(trial, margin)})
            except TaskFailure as failure:
                self.again.append({"at": trial.at, "missed": [f"{failure.reason}: {failure.error}"]})
            kept += [] if self.again[-1]["missed"] else self.again[-1:]
        self.best = min(kept, key=lambda one: one["ratio"]["value"], default=None)

    def _remeasure(self, trial: Trial, margin: float) -> Json:
        running = self.bench.load("again", trial.setting)
        try:
            figures = self.bench.untimed_metrics(running, self.beside, trial.setting)
            self.bench.warm_up_point(running, trial.setting)
            ratio, timed = self.bench.time_rounds(running, self.beside, trial.setting, CONFIRM_ROUNDS)
        finally:
            self.bench.close(running)
        figures |= timed
        told = {
            "ratio": ratio,
            "margin": margin,
            "figures": figures,
            "missed": list(missed_constraints(self.constraints, figures)),
        }
        return told | {"verdict": verdict(read_interval(ratio), margin)}

    def _write(self, complete: bool) -> None:
        """Writes `search.json` whole."""
        body = {
            "schema": SCHEMA,
            "asked": asdict(self.asked),
            "objective": self.asked.objective,
            "where": [asdict(one) for one in self.constraints],
            "method": "exhaustive" if self.total == self.space.size else "gaussian_process",
            "spec": self.task.lease.spec.id,
            "sizes": self.sizes,
            "axes": {name: list(values) for name, values in self.space.axes.items()},
            "settings": self.space.size,
            "total": self.total,
            "data_rows": self.bench.sets.rows,
            "complete": complete,
            "default": self.default,
            "trials": [asdict(trial) for trial in self.trials],
            "best": self.best,
            "again": self.again,
        }
        part = self.file.with_name("search.json.part")
        part.write_text(json.dumps(body, allow_nan=False), "utf-8")
        part.rename(self.file)


def search_constraints(where: list[str], max_error: float) -> list[Constraint]:
    """Those of a search; outputs are bounded where none says how far they may differ."""
    constraints = [parse_constraint(text) for text in where]
    if not any(one.field == "error" for one in constraints):
        constraints.append(parse_constraint(f"error<={max_error:g}"))
    return constraints


def verdict(ratio: Interval, margin: float) -> str:
    """Better or worse than the default setting only where the whole interval lies beyond the margin."""
    return "better" if ratio.high < 1 - margin else "worse" if ratio.low > 1 + margin else "equal"


def _log(text: str) -> None:
    """A line between those of the settings' processes."""
    sys.stdout.write(f"[search] {text}\n")
    sys.stdout.flush()
