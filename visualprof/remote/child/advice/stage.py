"""The stage `advise`: try candidates next to the original, one after the other, and write `advice.json`.

Each candidate is converted, loaded, compared by its outputs and only then timed, in turns with the original, which
stays loaded. A failure is recorded in the candidate's row. The file is complete after each candidate.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.child.advice.applicable import absence_reason, model_format, usable_converters
from visualprof.remote.child.advice.candidates import (
    Candidate,
    ConversionStep,
    combinations,
    conversion_candidates,
    folder_name,
    newest_runtime,
    round_robin,
    runtime_candidates,
    select_candidates,
    unmatched,
)
from visualprof.remote.child.advice.conversion import run_conversion
from visualprof.remote.child.advice.errors import Comparison, OutputError
from visualprof.remote.child.advice.process import ChildProcess, Json, LoadedModel, ProcessLimits, write_log_line
from visualprof.remote.child.advice.row import CandidateRow, mark_pareto_front
from visualprof.remote.child.advice.rules import (
    VERDICT_ROUNDS,
    Interval,
    judge_ratio,
    latency_interval,
    noise_margin,
    ratio_interval,
)
from visualprof.remote.child.advice.sets import InputSet, InputSets, write_input_sets
from visualprof.remote.child.advice.worker import read_outputs, spec_json
from visualprof.remote.child.failures import to_failure
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.task import EventLog, TaskFile, task_inputs
from visualprof.remote.converters import all_converters
from visualprof.remote.protocol import Spec, TaskFailure

SCHEMA = "visualprof.advice/1"
MIN_ROUNDS = 10  # rounds for a verdict when the time is used up
TURN_S = 0.01
MEMORY_SHARE = 0.6  # share of the task's memory that one process may use
MAX_MODEL_FILES = 64  # files of converted models in a result
MAX_SIZE_RATIO = 0.95


def advise(task: TaskFile, events: EventLog) -> None:
    """Run the stage.

    Raises:
        TaskFailure: The original cannot be loaded, or the data do not fit it.
    """
    AdviceStage(task, events).run()


class AdviceStage:
    """One run of the stage: the original with its process, and the rows so far."""

    def __init__(self, task: TaskFile, events: EventLog) -> None:
        """Prepare the advice of a task's request."""
        self.task, self.events = task, events
        self.request, self.asked = task.lease.request, task.lease.request.advise
        self.folder = task.work / "advice"
        self.points: list[SweepPoint] = task_inputs(task)[0]
        self.bounds = ProcessLimits.for_model(task.model, round(MEMORY_SHARE * task.memory_bytes))
        self.rows: list[CandidateRow] = []
        self.done: dict[str, Candidate] = {}
        self.margins: list[float] = []
        self.same: list[Interval] = []
        self.unsuitable: dict[str, str] = {}  # why converters do not fit the model
        self.end = time.monotonic() + self.asked.budget_s

    def run(self) -> None:
        """Measure the original, every candidate, and combinations of the best; mark the Pareto front."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.sets: InputSets = write_input_sets(self.task, self.folder / "sets")
        self.original = self._load("original", self.task.model, self.task.lease.spec)
        try:
            self._measure_baseline()
            candidates = self._candidates()
            self._run_candidates(candidates, 0, len(candidates))
            more = select_candidates(
                combinations(self._best(), {one.name: one for one in all_converters()}), self.asked.only
            )
            self._run_candidates(more, len(candidates), len(candidates) + len(more))
            self._add_unsuitable()
            self._write(complete=True)
        finally:
            self.original.process.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _add_unsuitable(self) -> None:
        """Add a row for each converter that does not fit the model, and for each name that selected nothing."""
        spec = self.task.lease.spec
        unsuitable = [
            Candidate(folder_name(name), "conversion", (ConversionStep(name),), spec) for name in self.unsuitable
        ]
        for candidate in select_candidates(unsuitable, self.asked.only):
            steps = [asdict(step) for step in candidate.steps]
            row = CandidateRow(candidate.name, candidate.kind, steps, spec_json(spec))
            row.verdict, row.why = "does not apply", self.unsuitable[candidate.steps[0].converter]
            self.rows.append(row)
        for name in unmatched(self.asked.only, [row.name for row in self.rows]):
            row = CandidateRow(folder_name(name), "runtime", [], spec_json(spec), verdict="does not apply")
            row.why = absence_reason(name)
            self.rows.append(row)

    def _run_candidates(self, candidates: Sequence[Candidate], done: int, total: int) -> None:
        for i, candidate in enumerate(candidates):
            self.events.emit("progress", done=done + i, total=total)
            row = CandidateRow(
                candidate.name, candidate.kind, [asdict(s) for s in candidate.steps], spec_json(candidate.spec)
            )
            self.rows.append(row)
            if time.monotonic() > self.end:
                row.verdict = "not tried"
                row.why = msg("child.budget_used_up", f"the time budget of {self.asked.budget_s:g} s was used up")
                continue
            write_log_line(f"candidate {done + i + 1} of {total}: {candidate.name}")  # the web UI reads this line
            try:
                self._run_candidate(candidate, row)
            except Exception as error:  # noqa: BLE001 - a failed candidate is recorded in its row
                failure = to_failure(error)
                row.verdict, row.why = "failed", f"{failure.reason}: {failure.error}"
            write_log_line(f"{candidate.name}: {row.verdict}{row.why and f': {row.why}'}")
            self.done[row.name] = candidate
            self._write(complete=False)
        self.events.emit("progress", done=total, total=max(1, total))

    def _run_candidate(self, candidate: Candidate, row: CandidateRow) -> None:
        """Convert, load, compare, time and judge a candidate. Its row shows how far it came."""
        folder = self.folder / candidate.name
        try:
            model, changed = self._converted(candidate, row, folder)
            if changed is False:
                row.verdict, row.why = (
                    "no effect",
                    msg("child.conversion_changed_no_operator", "the conversion changed no operator, weight or type"),
                )
                return
            running = self._load(candidate.name, model, candidate.spec)
            try:
                self._describe(row, running, model)
                self._compare(row, running)
                if row.verdict:
                    return
                row.points = [self._time(running, i) for i in range(len(self.points))]
                self._after(row, running)
            finally:
                running.process.close()
            row.verdict = row.points[self._judged()]["verdict"]
            row.passes = self._passes(row)
            if row.passes and candidate.steps:
                row.files = self._keep(row, model)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _converted(self, candidate: Candidate, row: CandidateRow, folder: Path) -> tuple[Path, bool | None]:
        """Return the candidate's model, and whether any conversion changed it."""
        model, changed, took_ns = self.task.model, None if not candidate.steps else False, 0
        for i, step in enumerate(candidate.steps):
            result = self._convert(step, model, folder / f"step{i}")
            model = folder / f"step{i}" / "out" / "made" / Path(str(result["file"])).name
            took_ns += int(result["took_ns"])
            row.tools |= result["tools"]
            if result["changed"] is None or result["changed"]:
                changed = changed or result["changed"]
        row.convert_ns = took_ns if candidate.steps else None
        return model, changed

    def _convert(self, step: ConversionStep, model: Path, folder: Path) -> Json:
        limit_s, data = self.asked.candidate_s, self.sets.data
        return run_conversion(
            self.task.converters[step.converter][0],
            step,
            model,
            data=data,
            folder=folder,
            bounds=self.bounds,
            limit_s=limit_s,
        )

    def _load(self, name: str, model: Path, spec: Spec) -> LoadedModel:
        """Load a model in a process, and compute its outputs for every input set."""
        runtime = newest_runtime(spec, self.task.runtimes)
        if runtime is None:
            raise TaskFailure(
                "no_runtime", msg("child.machine_no", f"this machine has no {spec.backend} for {spec.device}")
            )
        folder = self.folder / "run" / name
        process = ChildProcess(runtime.python, self.task.work, "worker", folder, self.bounds, asked=True)
        try:
            load = process.call("load", self.asked.candidate_s, model=str(model), spec=spec_json(spec))
            for input_set in self.sets.sets:
                process.call(
                    "outputs", self.asked.candidate_s, feeds=str(input_set.file), into=str(folder / input_set.name)
                )
        except BaseException:
            process.close()
            raise
        return LoadedModel(process, folder, load)

    def _measure_baseline(self) -> None:
        """Compare the original with a second process of it. Their difference determines the noise margin."""
        row = CandidateRow("original", "original", [], spec_json(self.task.lease.spec))
        self._describe(row, self.original, self.task.model)
        second_process = self._load("itself", self.task.model, self.task.lease.spec)
        try:
            self.margins = [1.0] * len(self.points)
            row.points = [self._time(second_process, i) for i in range(len(self.points))]
            self.same = [Interval(**point["ratio"]) for point in row.points]
            self.margins = [noise_margin(same) for same in self.same]
            row.random, row.data = self._errors(second_process)
        finally:
            second_process.process.close()
        self._after(row, self.original)
        for point, margin in zip(row.points, self.margins, strict=True):
            point.update(margin=margin, verdict="")
        self.rows.append(row)
        self._write(complete=False)

    def _describe(self, row: CandidateRow, running: LoadedModel, model: Path) -> None:
        row.load_ns, row.version = running.load["load_ns"], str(running.load["version"])[:100]
        row.effective = {str(k)[:100]: str(v)[:500] for k, v in list(running.load["effective"].items())[:32]}
        is_converted = model != self.task.model
        files = (
            [f for f in model.parent.rglob("*") if f.is_file()] if is_converted or model.is_dir() else self._own_files()
        )
        row.size_bytes = sum(file.stat().st_size for file in files)

    def _own_files(self) -> list[Path]:
        """Return the model's file and the files that belong to it."""
        return [self.task.model, *(self.task.model.parent / part.path for part in self.request.model.parts)]

    def _errors(self, running: LoadedModel) -> tuple[OutputError, OutputError | None]:
        """Return the errors on random inputs, and on the user's data if there are any."""
        groups = [
            [input_set for input_set in self.sets.sets if input_set.from_user == from_user]
            for from_user in (False, True)
        ]
        random, data = (self._error(running, sets) if sets else None for sets in groups)
        assert random is not None
        return random, data

    def _error(self, running: LoadedModel, sets: Sequence[InputSet]) -> OutputError:
        comparison = Comparison()
        for input_set in sets:
            comparison.add(*(read_outputs(loaded.outputs / input_set.name) for loaded in (self.original, running)))
        return comparison.error()

    def _compare(self, row: CandidateRow, running: LoadedModel) -> None:
        """Fill in errors and the user's metric. The verdict is "wrong" if an output is."""
        row.random, row.data = self._errors(running)
        judging = row.data or row.random
        broken = row.random.broken or judging.broken
        if broken:
            row.verdict, row.why = "wrong", broken
        elif judging.relative is not None and not judging.relative <= self.asked.max_error:
            on = msg("child.your_data", "your data") if row.data else msg("child.random_inputs", "random inputs")
            row.why = msg(
                "child.error_allowed",
                f"an error of {judging.relative:.2g} on {on}, the limit is {self.asked.max_error:g}",
            )
            row.verdict = "wrong"
        if self.asked.metric and not broken:
            row.metric = self._metric(running)

    def _metric(self, running: LoadedModel) -> float:
        names = [one.name for one in self.sets.sets if one.from_user] or [self.sets.sets[0].name]
        folder = self.folder / "metric"
        process = ChildProcess(sys.executable, self.task.work, "worker", folder, self.bounds, asked=True)
        folders = {"original": self.original.outputs, "candidate": running.outputs}
        paths = {name: [str(folder_path / one) for one in names] for name, folder_path in folders.items()}
        try:
            return process.call("metric", self.asked.candidate_s, source=self.asked.metric, **paths)
        finally:
            process.close()

    def _time(self, running: LoadedModel, at: int) -> Json:
        """Time alternating turns at one size. The model that starts a round alternates."""
        point, limit_s = self.points[at], self.asked.candidate_s
        pair = (self.original.process, running.process)
        self.events.emit("phase", phase="measuring", batch=point.batch)
        for process in pair:
            process.call("warm", limit_s, at=at)
        times: tuple[list[float], list[float]] = ([], [])
        end, margin = time.monotonic() + limit_s, self.margins[at]
        for rounds in VERDICT_ROUNDS:
            while len(times[0]) < rounds and time.monotonic() < end:
                for index in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
                    times[index].append(float(pair[index].call("turn", limit_s, least_s=TURN_S)))
            if len(times[0]) < MIN_ROUNDS:
                raise TaskFailure(
                    "timeout", msg("child.not_measured_after_s", f"not measured after {limit_s:g} s at {point.batch}")
                )
            if len(times[0]) < rounds or judge_ratio(ratio_interval(times[1], times[0]), margin) != "undecided":
                break
        ratio, latency = ratio_interval(times[1], times[0]), latency_interval(times[1])
        return {
            "batch": point.batch,
            "samples": point.samples,
            "rounds": len(times[0]),
            "latency_ns": asdict(latency),
            "original_ns": asdict(latency_interval(times[0])),
            "ratio": asdict(ratio),
            "margin": margin,
            "verdict": judge_ratio(ratio, margin),
            "samples_per_s": point.samples * 1e9 / latency.value,
        }

    def _after(self, row: CandidateRow, running: LoadedModel) -> None:
        """Read values after the timing: peak memory, and where the operators ran."""
        peak = running.process.call("peak", self.asked.candidate_s)
        row.rss_bytes, row.device_bytes = int(peak["rss_bytes"]), peak["device_bytes"]
        try:
            row.places = running.process.call("places", self.asked.candidate_s)
        except TaskFailure as failure:  # the measurement is valid without it
            write_log_line(f"{row.name}: where its operators ran is not known: {failure.error}")

    def _judged(self) -> int:
        """Return the number of the decisive point: the largest size for throughput, otherwise the smallest."""
        sizes = [point.samples for point in self.points]
        return sizes.index(max(sizes) if self.asked.objective == "throughput" else min(sizes))

    def _passes(self, row: CandidateRow) -> bool:
        """Whether a candidate is better by the objective. A smaller file may be slower; its verdict says so."""
        if self.asked.objective == "size":
            before = self.rows[0].size_bytes
            return bool(before and row.size_bytes is not None and row.size_bytes < MAX_SIZE_RATIO * before)
        return row.verdict == "faster"

    def _best(self) -> list[Candidate]:
        at = self._judged()
        size = self.asked.objective == "size"
        passed = [row for row in self.rows if row.passes]
        passed.sort(key=lambda row: row.size_bytes or 0 if size else row.points[at]["ratio"]["value"])
        return [self.done[row.name] for row in passed]

    def _candidates(self) -> list[Candidate]:
        spec, runtimes = self.task.lease.spec, self.task.runtimes
        usable, self.unsuitable = usable_converters(self.task, self.folder, self.bounds, self.asked.candidate_s)
        found = [
            *runtime_candidates(spec, model_format(self.task), runtimes),  # cheaper, as nothing is converted
            *conversion_candidates(spec, usable, runtimes, self.sets.calibrates),
        ]
        return select_candidates(round_robin(found), self.asked.only)

    def _keep(self, row: CandidateRow, model: Path) -> list[str]:
        """Move a converted model into the result, the model's file first. Return no files if there are too many."""
        files = sorted(model.parent.iterdir(), key=lambda file: file != model)
        file_count = sum(len(other.files) for other in self.rows)
        if file_count + len(files) > MAX_MODEL_FILES or not all(
            file.is_file() and not file.is_symlink() for file in files
        ):
            row.why = msg(
                "child.model_not_kept_no",
                "its model was not stored: it is not a file, or the result has too many files",
            )
            return []
        folder = self.task.out / f"candidate-{row.name}"
        folder.mkdir(exist_ok=True)
        for file in files:
            shutil.move(file, folder / file.name)
        return [f"{folder.name}/{file.name}" for file in files]

    def _write(self, complete: bool) -> None:
        """Write `advice.json` atomically."""
        at = self._judged()
        mark_pareto_front(self.rows, at)
        body = {
            "schema": SCHEMA,
            "objective": self.asked.objective,
            "max_error": self.asked.max_error,
            "spec": self.task.lease.spec.id,
            "judged": self.points[at].batch,
            "sizes": [point.batch for point in self.points],
            "data_rows": self.sets.rows,
            "complete": complete,
            "rows": [asdict(row) for row in self.rows],
        }
        part = self.task.out / "advice.json.part"
        part.write_text(json.dumps(body, allow_nan=False), "utf-8")
        part.rename(self.task.out / "advice.json")
