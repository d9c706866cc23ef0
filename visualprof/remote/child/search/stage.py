"""The stage `search`: try settings next to the default one, one after the other, and write `search.json`.

Each setting is loaded, compared by its outputs and timed in turns with the default setting, which stays loaded. A
disturbance of the machine therefore affects both. The file is complete after each trial, and a stage that finds the
file of the same search resumes it.
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
CONFIRM_ROUNDS = 45  # rounds at most when a finalist is measured again
TRIAL_ROUNDS = 27  # at most, of a trial
NOISE_ROUNDS = 15
FINALISTS = 3
MAX_STARTS = 2  # of a trial during which the agent or the machine ended


def search(task: TaskFile, events: EventLog) -> None:
    """Run the stage.

    Raises:
        TaskFailure: The default setting cannot be loaded.
    """
    SearchStage(task, events).run()


class SearchStage:
    """One search: the default setting with its process, and the trials so far."""

    def __init__(self, task: TaskFile, events: EventLog) -> None:
        """Prepare the search of a task's request."""
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
        """Measure the default setting, try settings, and measure the best trials again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self.bench = Bench(self.task, self.events, self.points, self.constraints, self.folder)
            self._resume()
            self.baseline = self.bench.load("default", {})
            try:
                self._measure_baseline()
                while self._has_trials_left() and time.monotonic() < self.end:
                    self._run_trial(self._next())
                self._confirm()
                self._write(complete=not self._has_trials_left())
            finally:
                self.baseline.process.close()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _has_trials_left(self) -> bool:
        """Whether a trial is to be started or restarted."""
        return len(self.trials) < self.total or any(trial.state == "running" for trial in self.trials)

    def _next(self) -> Trial:
        """Return the trial that an earlier start was in the middle of, otherwise a new one."""
        if interrupted := next((trial for trial in self.trials if trial.state == "running"), None):
            interrupted.starts += 1
            return interrupted
        axes = [len(values) for values in self.space.axes.values()]
        observations = [self._observation(trial) for trial in self.trials]
        number = next_setting(axes, self.space.ordinal(), self.asked.seed, observations)
        self.trials.append(Trial(number, self.space.setting(number)))
        return self.trials[-1]

    def _observation(self, trial: Trial) -> Json:
        excess = [constraint.excess(trial.figures) for constraint in self.constraints]
        return {"at": trial.at, "cost": trial.ratio["value"] if trial.ratio else None, "excess": excess}

    def _resume(self) -> None:
        """Load the trials of an earlier start of this search.

        An interrupted trial is tried once more. A trial that was interrupted twice has failed.
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
            _log(f"resuming after {len(self.trials)} trials")

    def _run_trial(self, trial: Trial) -> None:
        """Measure a trial. Any failure is recorded in its row."""
        self._write(complete=False)
        start = time.monotonic_ns()
        try:
            self._measure(trial)
        except Exception as error:  # noqa: BLE001 - a failed setting is recorded in its row
            failure = to_failure(error)
            trial.state, trial.why = "failed", f"{failure.reason}: {failure.error}"
        trial.took_ns = time.monotonic_ns() - start
        self._write(complete=False)
        self.events.emit("progress", done=len(self.trials), total=self.total + 1)
        first = next(iter(ranked(self.trials)), None)
        setting = ", ".join(f"{name} {value}" for name, value in trial.setting.items())
        outcome = " ".join(filter(None, (trial.state, f"{cost(trial):.3g} x" * bool(trial.ratio), trial.why)))
        best = f"{cost(first):.3g} x" if first else "none"
        _log(f"trial {len(self.trials)} of {self.total}: {setting}: {outcome}; best so far {best}")

    def _measure(self, trial: Trial) -> None:
        """Load, compare, time and judge a trial. Its metrics show how far it came."""
        running = self.bench.load(f"trial{trial.at}", trial.setting)
        try:
            trial.figures = self.bench.untimed_metrics(running, self.baseline, trial.setting)
            errors = [constraint for constraint in self.constraints if constraint.field == "error"]
            trial.judge(errors)
            if trial.state == "infeasible":  # the speed of wrong outputs does not matter
                return
            self.bench.warm_up_point(running, trial.setting)
            ratio, figures = self.bench.time_rounds(running, self.baseline, trial.setting, TRIAL_ROUNDS)
            trial.ratio, trial.figures = ratio, trial.figures | figures
            trial.judge(self.constraints)
        finally:
            self.bench.close(running)

    def _measure_baseline(self) -> None:
        """Compare the default setting with a second process of it: its metrics, and the noise margin of verdicts."""
        self.bench.warm_up_point(self.baseline, {})
        same, figures = self._measure_noise()
        load = self.baseline.load
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
        """Return the ratio of the default setting to itself, and its metrics."""
        twin = self.bench.load("itself", {})
        try:
            untimed = self.bench.untimed_metrics(twin, self.baseline, {})
            self.bench.warm_up_point(twin, {})
            same, figures = self.bench.time_rounds(twin, self.baseline, {}, NOISE_ROUNDS)
        finally:
            self.bench.close(twin)
        return same, untimed | figures

    def _confirm(self) -> None:
        """Measure the best trials again in new processes.

        Picking the minimum of noisy measurements is biased (winner's curse). A trial whose ratio is above the whole
        interval
        of the first one is measured only if none before it satisfies the constraints again. The best confirmed trial is
        the
        result. Its verdict uses the wider noise margin of two comparisons of the default setting with itself: at the
        start
        and now.
        """
        finalists = ranked(self.trials)[:FINALISTS]
        if not finalists:
            return
        margin = max(noise_margin(read_interval(self._measure_noise()[0])), self.default["margin"])
        if self.asked.objective == "size":
            margin = 0.0
        confirmed: list[Json] = []
        for trial in finalists:
            if confirmed and read_interval(trial.ratio).low > read_interval(finalists[0].ratio).high:
                continue  # worse than noise explains
            _log(f"trial {self.trials.index(trial) + 1} is measured again")
            try:
                self.again.append({"at": trial.at, **self._remeasure(trial, margin)})
            except TaskFailure as failure:
                self.again.append({"at": trial.at, "missed": [f"{failure.reason}: {failure.error}"]})
            confirmed += [] if self.again[-1]["missed"] else self.again[-1:]
        self.best = min(confirmed, key=lambda row: row["ratio"]["value"], default=None)

    def _remeasure(self, trial: Trial, margin: float) -> Json:
        running = self.bench.load("again", trial.setting)
        try:
            figures = self.bench.untimed_metrics(running, self.baseline, trial.setting)
            self.bench.warm_up_point(running, trial.setting)
            ratio, timed = self.bench.time_rounds(running, self.baseline, trial.setting, CONFIRM_ROUNDS)
        finally:
            self.bench.close(running)
        figures |= timed
        row = {
            "ratio": ratio,
            "margin": margin,
            "figures": figures,
            "missed": list(missed_constraints(self.constraints, figures)),
        }
        return row | {"verdict": verdict(read_interval(ratio), margin)}

    def _write(self, complete: bool) -> None:
        """Write `search.json` atomically."""
        body = {
            "schema": SCHEMA,
            "asked": asdict(self.asked),
            "objective": self.asked.objective,
            "where": [asdict(constraint) for constraint in self.constraints],
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
    """Return the constraints of a search. If no constraint bounds the outputs' error, add the default bound."""
    constraints = [parse_constraint(text) for text in where]
    if not any(constraint.field == "error" for constraint in constraints):
        constraints.append(parse_constraint(f"error<={max_error:g}"))
    return constraints


def verdict(ratio: Interval, margin: float) -> str:
    """Return better or worse only if the whole interval is beyond the noise margin."""
    return "better" if ratio.high < 1 - margin else "worse" if ratio.low > 1 + margin else "equal"


def _log(text: str) -> None:
    """Write a line to the log, between the lines of the settings' processes."""
    sys.stdout.write(f"[search] {text}\n")
    sys.stdout.flush()
