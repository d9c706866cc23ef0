"""Runs benchmark cases in a child: lays out the files, chooses an interpreter, and stores the result as a run."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.agent.child_files import link_or_copy, remove_folder
from visualprof.remote.agent.errors import CANCELLED, SUCCEEDED, Outcome, StopRequested, failed_outcome
from visualprof.remote.agent.machine.monitor import Monitor
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import probe_machine
from visualprof.remote.agent.machine.sandbox import JOB_FOLDERS
from visualprof.remote.agent.work.child_events import TaskProgress
from visualprof.remote.agent.work.child_process import CappedLog
from visualprof.remote.agent.work.result_folder import WorkFolder, complete_result, describe_environment
from visualprof.remote.agent.work.stage_runner import StageRunner
from visualprof.remote.cases import Vendor, all_vendors
from visualprof.remote.cases.bundle import unpack
from visualprof.remote.protocol import CaseRef, Lease, ModelRef, Profile, Reason, Request, Spec, TaskFailure

MONITOR_INTERVAL_S = 0.1
CHECK_TIMEOUT_S = 120.0
WORK_FOLDER = ".work"  # in the folder of a run in progress
CaseInterpreter = tuple[str, tuple[str, ...]]  # an interpreter, and the folders that it reads


@dataclass(frozen=True)
class CaseRequest:
    """A case to run on this machine.

    Attributes:
        description: Result of `Case.description`.
        files: Files of the case by their relative paths, as in `Case.files`.
        vendor: Vendor of the device.
        framework: Framework of the case.
        device: Such as "cpu" or "cuda:0".
        data_dir: Folder of the data; "" for none.
        command: Settings from the command line.
        pythons: Interpreters; the first with all requirements is used.
        level: Level of the sandbox.
        memory_bytes: Memory limit of the child.
        timeout_s: Time limit of the case.
        step_timeouts: Time limits of steps, by name.
        code: The child's archive.
        say: Takes the name of each step.
        check: Called regularly; raises StopRequested to stop the case.
    """

    description: dict[str, Any]
    files: Mapping[str, Path]
    vendor: str
    framework: str
    device: str = "cpu"
    data_dir: str = ""
    command: dict[str, Any] = field(default_factory=dict[str, Any])
    pythons: Iterable[CaseInterpreter] = ()
    level: int = 0
    memory_bytes: int = 0
    timeout_s: float = 3600.0
    step_timeouts: Mapping[str, float] = field(default_factory=dict[str, float])
    code: bytes = b""
    say: Callable[[str], object] = lambda _: None
    check: Callable[[], None] = lambda: None


def case_task(
    root: Path, vendor: str, framework: str, device: str, data_dir: str, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `task.json` of a case. `extra` has `command` and `description`."""
    fields = {"root": str(root), "vendor": vendor, "framework": framework, "device": device, "data_dir": data_dir}
    return {"case": {**fields, **extra}}


def unpack_case(bundle: Path, root: Path, lease: Lease) -> dict[str, Any]:
    """Unpack the bundle of a job and return the case's part of `task.json`.

    Raises:
        TaskFailure: The bundle is invalid, or does not contain the case.
    """
    case = lease.request.case
    root.mkdir(parents=True)
    description = unpack(bundle, root)
    if description["name"] != case.name or case.framework not in description["frameworks"]:
        raise TaskFailure(
            "input_error", msg("agent.bundle_no_case", f"the bundle has no case {case.name!r} for {case.framework!r}")
        )
    data, command = root / "data", {key: json.loads(value) for key, value in case.settings.items()}
    extra = {"command": command, "description": description}
    data_dir = str(data) if data.is_dir() else ""
    return case_task(root, case.vendor, case.framework, lease.spec.device, data_dir, extra)


def run_case(stages: StageRunner, pythons: Iterable[CaseInterpreter], deadline: float) -> None:
    """Run a case in the first interpreter that has all its requirements. Its files are laid out already.

    Raises:
        TaskFailure: `no_runtime` if every interpreter lacks a requirement.
        StopRequested: The case was stopped.
    """
    if isinstance(pythons, Sequence) and len(pythons) == 1:  # the run itself reports missing requirements
        stages.python, stages.prefixes = Path(pythons[0][0]), pythons[0][1]
    else:
        choose_interpreter(stages, pythons, deadline)
    stages.run("case", deadline)


def choose_interpreter(stages: StageRunner, pythons: Iterable[CaseInterpreter], deadline: float) -> None:
    """Choose the first interpreter that has all requirements. Its answer is in `stages.progress.converted`.

    Raises:
        TaskFailure: Every interpreter lacks a requirement. The error is that of the interpreter with the fewest.
        StopRequested: The case was stopped.
    """
    failures: list[TaskFailure] = []
    for python, prefixes in pythons:
        stages.python, stages.prefixes = Path(python), prefixes
        stages.progress.converted = {}
        stages.run("case-check", min(deadline, time.monotonic() + CHECK_TIMEOUT_S))
        answer = {key: str(stages.progress.converted.get(key, "")) for key in ("missing", "hint", "reason")}
        if not answer["missing"]:
            return
        reason: Reason = "no_runtime" if answer["reason"] == "no_runtime" else "input_error"
        failures.append(TaskFailure(reason, answer["missing"], answer["hint"]))
    if not failures:
        raise TaskFailure("no_runtime", msg("agent.there_no_interpreter_case", "no interpreter can run the case"))
    raise min(failures, key=lambda failure: failure.error.count("; "))  # the first of those with the fewest


def device_reader(vendor: str, default: Any) -> Any:
    """Return the reader of a vendor's devices; `default` if the vendor has none."""
    module, _, name = all_vendors().get(vendor, Vendor("", "", "cpu")).monitor.partition(":")
    return getattr(importlib.import_module(module), name)() if name else default


def check_local_case(case_request: CaseRequest, folder: Path) -> dict[str, Any]:
    """Check a case without running it; return `missing`, `warnings`, `changes`, `settings` and `python`.

    Raises:
        TaskFailure: A requirement is missing.
    """
    with _LocalRun(case_request, folder) as run:
        try:
            choose_interpreter(run.stages, case_request.pythons, time.monotonic() + case_request.timeout_s)
        except TaskFailure as failure:
            raise TaskFailure(failure.reason, run.shown(failure.error), run.shown(failure.hint)) from None
        return {**run.progress.converted, "python": str(run.stages.python)}


def run_local_case(case_request: CaseRequest, folder: Path) -> Outcome:
    """Run a case on this machine. `folder` becomes the run; complete results of a previous run in it are kept."""
    outcome, started_ns = SUCCEEDED, time.time_ns()
    with _LocalRun(case_request, folder / WORK_FOLDER, folder) as run:
        try:
            run_case(run.stages, case_request.pythons, time.monotonic() + case_request.timeout_s)
        except StopRequested:
            outcome = CANCELLED
        except Exception as error:  # noqa: BLE001 - any error ends the run, which is kept
            outcome = failed_outcome(error)
            outcome["error"], outcome["hint"] = (run.shown(outcome[key] or "") or None for key in ("error", "hint"))
        run.close()
        run.work.log.write_text(
            run.shown(run.work.log.read_text("utf-8", "surrogateescape")), "utf-8", "surrogateescape"
        )
        machine = probe_machine([], [], case_request.level, run.nvml, case_request.say)
        env = describe_environment(run.lease.spec, {"agent": "", "agent_id": ""}, machine, run.progress)
        complete_result(run.work, run.lease, outcome, run.progress, env, started_ns)
        _move_results(run.work.out, folder)
    return outcome


class _LocalRun:
    """A work folder with its stages, deleted at the end. The child may resume from the files of `previous_run`."""

    def __init__(self, case_request: CaseRequest, folder: Path, previous_run: Path | None = None) -> None:
        self.work = work = WorkFolder(folder.absolute())
        self._request = case_request
        if previous_run and work.out.is_dir():  # left by a killed command
            _move_results(work.out, previous_run)
            work.log.replace(previous_run / work.log.name)
        remove_folder(folder)
        work.out.mkdir(parents=True)
        root = work.files / "case"
        for place, file in case_request.files.items():
            target = root / place
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(file, target)
        work.code.write_bytes(case_request.code)
        more = {"command": case_request.command, "description": case_request.description}
        data = case_task(
            root, case_request.vendor, case_request.framework, case_request.device, case_request.data_dir, more
        )
        work.task.write_text(json.dumps(data), "utf-8")
        for file in _result_files(previous_run) if previous_run else ():
            target = work.out / file.relative_to(previous_run or folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(file, target)
        if previous_run and (previous_run / work.log.name).is_file():
            shutil.copyfile(previous_run / work.log.name, work.log)  # the log continues
        self.lease = _local_lease(case_request)
        self.progress = TaskProgress(lambda _: None, self._changed)
        self.nvml = device_reader(case_request.vendor, Nvml())
        self.log, gpus = CappedLog(work.log), [] if case_request.device == "cpu" else [case_request.device]
        self._say, self._last_step = case_request.say, ""
        self._monitor = Monitor(work.monitor, MONITOR_INTERVAL_S, self.nvml, gpus)
        self.stages = StageRunner(
            work=work,
            device=case_request.device,
            timeout_s=case_request.timeout_s,
            python=Path(),
            prefixes=(),
            level=case_request.level,
            memory_bytes=case_request.memory_bytes,
            monitor=self._monitor,
            log=self.log,
            progress=self.progress,
            check=case_request.check,
            on_child_start=lambda _: None,
            step_timeouts=case_request.step_timeouts,
        )

    def __enter__(self) -> _LocalRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        remove_folder(self.work.folder)

    def shown(self, text: str) -> str:
        """Return a text in which the paths of the case's files replace the paths of their copies."""
        places = *(Path(folder, self.work.files.name, "case") for folder in JOB_FOLDERS), self.work.files / "case"
        folders = "|".join(re.escape(f"{place}/") for place in places)
        return re.sub(
            rf"(?:{folders})([\w./-]*\w)", lambda match: str(self._request.files.get(match[1], match[0])), text
        )

    def close(self) -> None:
        """Stop the monitor and close the log."""
        self._monitor.close()
        self.log.close()

    def _changed(self) -> None:
        if self.progress.step and self.progress.step != self._last_step:
            self._last_step = self.progress.step
            self._say(self._last_step)


def _local_lease(case_request: CaseRequest) -> Lease:
    """Return a lease that no server granted, for the files of the result."""
    name, compiler = (
        case_request.description["name"],
        case_request.command.get("compiler") or case_request.description["case"].get("compiler"),
    )
    spec = Spec(
        str(compiler or case_request.framework), str(compiler or case_request.framework), device=case_request.device
    )
    case = CaseRef(
        name,
        case_request.vendor,
        case_request.framework,
        {key: json.dumps(setting) for key, setting in case_request.command.items()},
    )
    request = Request(
        "", ModelRef("", name), [spec], name, profile=Profile(0), timeout_s=case_request.timeout_s, case=case
    )
    return Lease(task="", job="", run="", attempt=1, lease="", spec=spec, request=request, files=[])


def _result_files(folder: Path) -> list[Path]:
    """Return the files of a run that steps may have left."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return [file for file in files if file.relative_to(folder).parts[0] != WORK_FOLDER]


def _move_results(out: Path, folder: Path) -> None:
    """Move the files of a result into the folder of the run."""
    for file in _result_files(out):
        target = folder / file.relative_to(out)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
