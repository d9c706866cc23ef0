"""One leased task, from its files to its report."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualprof.remote.agent.faults import Failure, Given, Outcome, Stale, of_system
from visualprof.remote.agent.files import place, remove
from visualprof.remote.agent.journal import Journal
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.link.client import Client, Stopped
from visualprof.remote.agent.link.shipper import Shipper
from visualprof.remote.agent.machine.monitor import Monitor
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Found
from visualprof.remote.agent.state import StateFolder
from visualprof.remote.agent.work import report, results
from visualprof.remote.agent.work.folders import Work, free_bytes
from visualprof.remote.agent.work.guard import CappedLog, Child
from visualprof.remote.agent.work.report import Report
from visualprof.remote.agent.work.results import Facts
from visualprof.remote.agent.work.stages import Limits, Said, Stages
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Lease, Runtime

SPARE_BYTES = 64 << 20
MEASURED = 0.85  # share of the progress that measuring is, when profile passes follow
PASSES = 0.1
UPLOADING = 0.97
PASSES_END_S = 10.0  # before the deadline, so that the result still arrives
SHIPPING_S = 5.0
MONITOR_MIN_S = 0.01


@dataclass(frozen=True)
class Here:
    """The agent, as its tasks see it. code: of the child. changed: there is news for the server."""

    client: Client
    name: str
    agent: str
    state: StateFolder
    journal: Journal
    found: Found
    nvml: Nvml
    code: Callable[[], bytes]
    memory_bytes: int
    changed: Callable[[], None]


class Task:
    """A thread of its own runs it; the others read it for the heartbeat, and end it."""

    def __init__(self, lease: Lease, here: Here, outcome: Outcome | None = None) -> None:
        """Takes a lease. outcome: how it ended already; only the report is missing."""
        self.lease = lease
        self._here = here
        self._outcome = outcome
        self._how = ""
        self._stop = threading.Event()  # the work ends
        self._leave = threading.Event()  # the report ends too
        self._work = Work(work_folder(here.state, lease))
        self._said = Said(lambda _: None, here.changed)
        self._uploading = outcome is not None
        self._stages: list[str] = []
        self._done = 0
        self._warnings = self._said.warnings
        self._started_ns = time.time_ns()

    def heartbeat(self) -> dict[str, Any]:
        """What the server is told about it."""
        phase = "uploading" if self._uploading else self._said.phase
        progress = round(UPLOADING if self._uploading else self._progress(), 3)
        told = {"task": self.lease.task, "lease": self.lease.lease, "phase": phase, "progress": progress}
        return told | ({"warnings": list(self._warnings)} if self._warnings else {})

    def _progress(self) -> float:
        passes = len(self._stages) - 1
        if self._done == 0:
            return self._said.share * (MEASURED if passes > 0 else MEASURED + PASSES)
        return MEASURED + PASSES * (self._done - 1) / max(passes, 1)

    def end(self, how: str) -> None:
        """Ends it: "cancelled", "stale" (nobody wants it), "abandoned" (the agent leaves)."""
        if how != "cancelled" or not self._how:
            self._how = how
        if how != "cancelled":
            self._leave.set()
        self._stop.set()

    def run(self) -> str:
        """Works, reports, tidies up; returns in words how it ended. What it leaves stays in the journal."""
        try:
            self._check()
            outcome = self._outcome or self._worked()
            self._here.journal.ended(self.lease, outcome)
            self._uploading = True
            self._here.changed()
            told = self._report().send(outcome)
        except Stale as stale:
            told = f"dropped: {stale}"
        except (Given, Stopped):
            if self._how == "abandoned":
                return "left; the next start goes on with it, unless the server gives it to another agent"
            told = "dropped: its lease is over"
        self._here.journal.remove(self.lease)
        remove(self._work.folder)
        return told

    def _report(self) -> Report:
        return Report(self._here.client, self.lease, self._work, self._warnings, self._stop, self._leave)

    def _worked(self) -> Outcome:
        """How the work ended, with the result's folder complete. Raises: Given: nobody wants to know."""
        outcome = self._ended()
        if outcome["reason"] == "disk_full":
            report.make_room(self._work)
        try:
            report.assemble(self._work, self.lease, self._facts(), self._said, outcome, self._warnings)
        except OSError as error:
            return of_system(error).outcome()
        except Exception as error:  # noqa: BLE001 - what a child left can be anything
            return _own_fault(error).outcome()
        return outcome

    def _ended(self) -> Outcome:
        try:
            self._do()
        except (Given, Stopped):
            if self._how != "cancelled":
                raise
            return Outcome(state="cancelled", reason=None, error=None, hint=None)
        except Failure as failure:
            return failure.outcome()
        except OSError as error:
            return of_system(error).outcome()
        except Exception as error:  # noqa: BLE001 - the agent goes on with the next task
            return _own_fault(error).outcome()
        return Outcome(state="succeeded", reason=None, error=None, hint=None)

    def _check(self) -> None:
        if self._stop.is_set():
            raise Given(self._how)

    def _do(self) -> None:
        work, lease = self._work, self.lease
        runtime = self._runtime()
        remove(work.folder)
        work.files.mkdir(parents=True)
        needed = SPARE_BYTES + sum(file.size_bytes for file in lease.files)
        if free_bytes(work.folder) < needed:
            error = f"less than {needed >> 20:,} MiB are free on the agent's disk"
            raise Failure("disk_full", error, f"free space for {self._here.state.path}")
        model, inputs = self._fetch()
        work.code.write_bytes(self._here.code())
        passes = backend(lease.spec.backend).passes if lease.request.profile.runs > 0 else ()
        self._stages = ["measure", *(f"profile:{name}" for name in passes)]
        work.lay_out(lease, model, inputs, self._stages)
        self._run_stages(runtime)

    def _runtime(self) -> Runtime:
        """The runtime that the spec wants."""
        spec = self.lease.spec
        runtime = self._here.found.runtime(spec.backend, spec.version, spec.device)
        if runtime is None:
            wanted = f"{spec.backend}{'==' if spec.version else ''}{spec.version}"
            error = f"agent {self._here.name} has no {wanted} for device {spec.device}"
            raise Failure("no_runtime", error, f"on that machine: visualprof agent install-runtime {wanted}")
        return runtime

    def _facts(self) -> Facts:
        here, spec = self._here, self.lease.spec
        runtime = here.found.runtime(spec.backend, spec.version, spec.device)
        version, python = (runtime.version, runtime.python_version) if runtime else (spec.version, "")
        return Facts(
            here.name, here.agent, here.found.capabilities, self._said.version or version, python, self._started_ns
        )

    def _fetch(self) -> tuple[Path, dict[str, Path]]:
        """The model and the inputs, as plain files with safe names."""
        model: Path | None = None
        inputs: dict[str, Path] = {}
        for i, file in enumerate(self.lease.files):
            kept = self._here.state.blob(file.sha256)
            transfer.fetch(self._here.client, file, kept, self._stop)
            name = results.model_name(self.lease.request.model.name) if file.role == "model" else f"input{i}.npy"
            target = self._work.files / name
            place(kept, target)
            if file.role == "model":
                model = target
            else:
                inputs[file.name] = target
        self._here.state.trim()
        if model is None:
            raise Failure("agent_error", "the server gave out the task without a model")
        return model, inputs

    def _run_stages(self, runtime: Runtime) -> None:
        lease, work, here = self.lease, self._work, self._here
        log = CappedLog(work.log)
        shipper = Shipper(here.client, lease.task, lease.lease, work.log, lambda: self.end("stale"))
        self._said.point = shipper.point
        gpus = [lease.spec.device] if lease.spec.device.startswith("cuda") else []
        monitor = Monitor(work.monitor, max(MONITOR_MIN_S, lease.request.monitor_interval_s), here.nvml, gpus)
        prefixes = here.found.prefixes.get(runtime.python, ())
        level = here.found.capabilities.sandbox
        stages = Stages(work, lease, runtime.python, prefixes, level, monitor, log, self._said)
        try:
            self._run_each(stages)
        finally:
            monitor.close()
            log.close()
            shipper.close(0.0 if self._leave.is_set() else SHIPPING_S)

    def _run_each(self, stages: Stages) -> None:
        timeout_s = self.lease.request.timeout_s
        end = time.monotonic() + timeout_s
        for stage in self._stages:
            measures = stage == "measure"
            deadline = end if measures else end - min(PASSES_END_S, timeout_s / 10)
            try:
                self._check()
                stages.run(stage, Limits(self._here.memory_bytes, deadline, self._check, self._started))
            except Failure as failure:
                if measures:
                    raise
                self._pass_failed(stage.removeprefix("profile:"), failure)
            self._done += 1

    def _started(self, child: Child) -> None:
        self._here.journal.child(self.lease, child.pid, child.started)

    def _pass_failed(self, name: str, failure: Failure) -> None:
        """The measured points stand whatever a profile pass does."""
        self._warnings.append(f"profile pass {name}: {failure.error}")
        self._said.profiles.append({"pass": name, "error": failure.error})


def _own_fault(error: Exception) -> Failure:
    traceback.print_exc(file=sys.stderr)
    return Failure("agent_error", f"the agent failed: {type(error).__name__}: {error}")


def work_folder(state: StateFolder, lease: Lease) -> Path:
    """A folder of its own for each attempt."""
    return state.work / f"{results.model_name(lease.task)}-{lease.attempt}"
