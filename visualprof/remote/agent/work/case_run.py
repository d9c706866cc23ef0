"""Benchmark cases in a child: laid out, given the interpreter that has all they need, run, and kept as a run."""

from __future__ import annotations

import importlib
import json
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
from visualprof.remote.agent.work.child_events import TaskProgress
from visualprof.remote.agent.work.child_process import CappedLog
from visualprof.remote.agent.work.result_folder import WorkFolder, complete_result, describe_environment
from visualprof.remote.agent.work.stage_runner import StageRunner
from visualprof.remote.cases import Vendor, all_vendors
from visualprof.remote.cases.bundle import unpack
from visualprof.remote.protocol import CaseRef, Lease, ModelRef, Profile, Reason, Request, Spec, TaskFailure

MONITOR_INTERVAL_S = 0.1  # of the monitor
CHECK_TIMEOUT_S = 120.0
WORK_FOLDER = ".work"  # in the folder of a run, while it goes on
CaseInterpreter = tuple[str, tuple[str, ...]]  # an interpreter, and the folders that it reads


@dataclass(frozen=True)
class CaseRequest:
    """A case that is to run on this machine.

    description: of `Case.description`. files: by their places, of `Case.files`. command: settings of the command line.
    data_dir: "" without. pythons: the first that has all that is needed is taken.
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
    """`task.json` of a case. more: `command` and `description`."""
    where = {"root": str(root), "vendor": vendor, "framework": framework, "device": device, "data_dir": data_dir}
    return {"case": {**where, **extra}}


def unpack_case(bundle: Path, root: Path, lease: Lease) -> dict[str, Any]:
    """Lay out the bundle of a job; the case's part of `task.json`. Raises: TaskFailure: it is none, or another's."""
    case = lease.request.case
    root.mkdir(parents=True)
    description = unpack(bundle, root)
    if description["name"] != case.name or case.framework not in description["frameworks"]:
        raise TaskFailure(
            "input_error", msg("agent.bundle_no_case", f"the bundle has no case {case.name!r} for {case.framework!r}")
        )
    data, command = root / "data", {key: json.loads(value) for key, value in case.settings.items()}
    more = {"command": command, "description": description}
    where = str(data) if data.is_dir() else ""
    return case_task(root, case.vendor, case.framework, lease.spec.device, where, more)


def run_case(stages: StageRunner, pythons: Iterable[CaseInterpreter], deadline: float) -> None:
    """Run a case that is laid out, in the first interpreter that lacks nothing.

    Raises: TaskFailure: no_runtime where each lacks something. StopRequested.
    """
    if isinstance(pythons, Sequence) and len(pythons) == 1:  # it says itself what it lacks
        stages.python, stages.prefixes = Path(pythons[0][0]), pythons[0][1]
    else:
        choose_interpreter(stages, pythons, deadline)
    stages.run("case", deadline)


def choose_interpreter(stages: StageRunner, pythons: Iterable[CaseInterpreter], deadline: float) -> None:
    """Take the first interpreter that lacks nothing; what it told is in `stages.progress.converted`.

    Raises: TaskFailure: each lacks something; what the one said that lacks least. StopRequested.
    """
    failures: list[TaskFailure] = []
    for python, prefixes in pythons:
        stages.python, stages.prefixes = Path(python), prefixes
        stages.progress.converted = {}
        stages.run("case-check", min(deadline, time.monotonic() + CHECK_TIMEOUT_S))
        told = {key: str(stages.progress.converted.get(key, "")) for key in ("missing", "hint", "reason")}
        if not told["missing"]:
            return
        reason: Reason = "no_runtime" if told["reason"] == "no_runtime" else "input_error"
        failures.append(TaskFailure(reason, told["missing"], told["hint"]))
    if not failures:
        raise TaskFailure(
            "no_runtime", msg("agent.there_no_interpreter_case", "there is no interpreter that the case could run in")
        )
    raise min(failures, key=lambda failure: failure.error.count("; "))  # of as many, that of the first


def device_reader(vendor: str, default: Any) -> Any:
    """What samples the devices of a vendor; the machine's own where it names none."""
    module, _, name = all_vendors().get(vendor, Vendor("", "", "cpu")).monitor.partition(":")
    return getattr(importlib.import_module(module), name)() if name else default


def check_local_case(order: CaseRequest, folder: Path) -> dict[str, Any]:
    """What the child says of a case before anything of it runs: missing, warnings, changes, settings.

    Raises: TaskFailure: something is missing, which the message names.
    """
    with _Run(order, folder) as run:
        choose_interpreter(run.stages, order.pythons, time.monotonic() + order.timeout_s)
        return {**run.progress.converted, "python": str(run.stages.python)}


def run_local_case(order: CaseRequest, folder: Path) -> Outcome:
    """Run a case on this machine; `folder` becomes the run, and what an earlier one left whole there is kept."""
    outcome, started_ns = SUCCEEDED, time.time_ns()
    with _Run(order, folder / WORK_FOLDER, folder) as run:
        try:
            run_case(run.stages, order.pythons, time.monotonic() + order.timeout_s)
        except StopRequested:
            outcome = CANCELLED
        except Exception as error:  # noqa: BLE001 - whatever it was, it is the end of a run that is kept
            outcome = failed_outcome(error)
        run.close()
        machine = probe_machine([], [], order.level, run.nvml, order.say)
        env = describe_environment(run.lease.spec, {"agent": "", "agent_id": ""}, machine, run.progress)
        complete_result(run.work, run.lease, outcome, run.progress, env, started_ns)
        _move(run.work.out, folder)
    return outcome


class _Run:
    """A work folder with its stages, removed at the end. earlier: a run whose files the child may go on from."""

    def __init__(self, order: CaseRequest, folder: Path, earlier: Path | None = None) -> None:
        self.work = work = WorkFolder(folder.absolute())
        if earlier and work.out.is_dir():  # of a command that was killed
            _move(work.out, earlier)
            work.log.replace(earlier / work.log.name)
        remove_folder(folder)
        work.out.mkdir(parents=True)
        root = work.files / "case"
        for place, file in order.files.items():
            target = root / place
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(file, target)
        work.code.write_bytes(order.code)
        more = {"command": order.command, "description": order.description}
        data = case_task(root, order.vendor, order.framework, order.device, order.data_dir, more)
        work.task.write_text(json.dumps(data), "utf-8")
        for file in _results(earlier) if earlier else ():
            target = work.out / file.relative_to(earlier or folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(file, target)
        if earlier and (earlier / work.log.name).is_file():
            shutil.copyfile(earlier / work.log.name, work.log)  # it goes on, too
        self.lease = _lease(order)
        self.progress = TaskProgress(lambda _: None, self._changed)
        self.nvml = device_reader(order.vendor, Nvml())
        self.log, gpus = CappedLog(work.log), [] if order.device == "cpu" else [order.device]
        self._tell, self._last = order.say, ""
        self._monitor = Monitor(work.monitor, MONITOR_INTERVAL_S, self.nvml, gpus)
        self.stages = StageRunner(
            work=work,
            device=order.device,
            timeout_s=order.timeout_s,
            python=Path(),
            prefixes=(),
            level=order.level,
            memory_bytes=order.memory_bytes,
            monitor=self._monitor,
            log=self.log,
            progress=self.progress,
            check=order.check,
            on_child_start=lambda _: None,
            step_timeouts=order.step_timeouts,
        )

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        remove_folder(self.work.folder)

    def close(self) -> None:
        """End the monitor and the log."""
        self._monitor.close()
        self.log.close()

    def _changed(self) -> None:
        if self.progress.step and self.progress.step != self._last:
            self._last = self.progress.step
            self._tell(self._last)


def _lease(order: CaseRequest) -> Lease:
    """A task that no server gave out, for the files of its result."""
    name, compiler = (
        order.description["name"],
        order.command.get("compiler") or order.description["case"].get("compiler"),
    )
    spec = Spec(str(compiler or order.framework), str(compiler or order.framework), device=order.device)
    case = CaseRef(name, order.vendor, order.framework, {key: json.dumps(one) for key, one in order.command.items()})
    request = Request("", ModelRef("", name), [spec], name, profile=Profile(0), timeout_s=order.timeout_s, case=case)
    return Lease(task="", job="", run="", attempt=1, lease="", spec=spec, request=request, files=[])


def _results(folder: Path) -> list[Path]:
    """The files of a run that a step may have left."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return [file for file in files if file.relative_to(folder).parts[0] != WORK_FOLDER]


def _move(out: Path, folder: Path) -> None:
    """Put the files of a result where the run is."""
    for file in _results(out):
        target = folder / file.relative_to(out)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
