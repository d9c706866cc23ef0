"""Runs stages of one run configuration on this machine without a server, and writes an ordinary result folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.agent.child_files import link_or_copy, remove_folder
from visualprof.remote.agent.errors import CANCELLED, SUCCEEDED, failed_outcome
from visualprof.remote.agent.machine.cpus import pinned_cpus
from visualprof.remote.agent.machine.monitor import Monitor
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Machine
from visualprof.remote.agent.work.child_events import TaskProgress
from visualprof.remote.agent.work.child_process import CappedLog
from visualprof.remote.agent.work.result_folder import (
    WorkFolder,
    complete_result,
    describe_environment,
    part_path,
    safe_name,
    tuning_context,
)
from visualprof.remote.agent.work.stage_runner import StageRunner, require_sandbox
from visualprof.remote.protocol import Lease, Request, Runtime, Spec, TaskFailure


@dataclass(frozen=True)
class TaskFiles:
    """Local files of a task.

    Attributes:
        model: The model.
        parts: Files that the model names, by their paths relative to the model.
        inputs: Arrays, by input name.
        data: Arrays with the user's data, by input name.
    """

    model: Path
    parts: Mapping[str, Path] = field(default_factory=dict[str, Path])
    inputs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    data: Mapping[str, Path] = field(default_factory=dict[str, Path])


def run_local_task(
    request: Request,
    files: TaskFiles,
    stages: Sequence[str],
    *,
    machine: Machine,
    memory_bytes: int,
    code: bytes,
    folder: Path,
    say: Callable[[str], object] = lambda _: None,
    earlier_trials: bytes = b"",
) -> Path:
    """Run stages of the first run configuration of a request; return the result folder.

    Args:
        request: The request.
        files: Its files.
        stages: Such as `measure:0`, `advise`, `search`.
        machine: This machine.
        memory_bytes: Memory limit of a child.
        code: The child's archive.
        folder: Work folder. It is emptied first.
        say: Takes the lines of advice and search as they are logged.
        earlier_trials: Trials of an interrupted search.

    Raises:
        TaskFailure: A stage failed. The result folder contains the failure as well.
    """
    remove_folder(folder)
    work, spec = WorkFolder(folder.absolute()), request.specs[0]
    runtime = _require_runtime(machine, spec)
    require_sandbox(request.model.name, machine.capabilities.sandbox)
    lease = Lease(task="local", job="local", run=folder.name, attempt=1, lease="", spec=spec, request=request, files=[])
    _lay_out(work, lease, files, machine, memory_bytes, code)
    if earlier_trials:
        (work.out / "search.json").write_bytes(earlier_trials)
    progress, log = TaskProgress(lambda _: None, lambda: None), _EchoingLog(work.log, say)
    monitor = Monitor(work.monitor, request.monitor_interval_s, Nvml(), [spec.device] if spec.device != "cpu" else [])
    runner = _create_runner(
        request, work, machine, runtime, memory_bytes=memory_bytes, monitor=monitor, log=log, progress=progress
    )
    started_ns, deadline, outcome = time.time_ns(), time.monotonic() + request.timeout_s, SUCCEEDED
    try:
        for stage in stages:
            runner.run(stage, deadline)
    except TaskFailure as failure:
        outcome = failed_outcome(failure)
        raise
    except KeyboardInterrupt:
        outcome = CANCELLED
        raise
    finally:
        monitor.close()
        log.close()
        env = describe_environment(spec, {"agent": "", "agent_id": ""}, machine, progress)
        complete_result(work, lease, outcome, progress, env, started_ns)
    return work.out


def _create_runner(
    request: Request,
    work: WorkFolder,
    machine: Machine,
    runtime: Runtime,
    *,
    memory_bytes: int,
    monitor: Monitor,
    log: CappedLog,
    progress: TaskProgress,
) -> StageRunner:
    """Return the runner of stages of the first run configuration."""
    return StageRunner(
        work=work,
        device=request.specs[0].device,
        timeout_s=request.timeout_s,
        python=Path(runtime.python),
        prefixes=machine.prefixes_for(runtime.python, all_interpreters=True),
        level=machine.capabilities.sandbox,
        memory_bytes=memory_bytes,
        monitor=monitor,
        log=log,
        progress=progress,
        check=lambda: None,
        on_child_start=lambda _: None,
    )


def _require_runtime(machine: Machine, spec: Spec) -> Runtime:
    """Return the newest runtime of this machine for a run configuration.

    Raises:
        TaskFailure: This machine does not have the runtime.
    """
    runtime = machine.newest_runtime(spec)
    if runtime is None:
        hint = f"visualprof agent install-runtime {spec.backend}"
        raise TaskFailure(
            "no_runtime", msg("agent.machine_no", f"this machine has no {spec.backend} for {spec.device}"), hint
        )
    return runtime


class _EchoingLog(CappedLog):
    """A log that also passes its lines of advice and search to `say`."""

    def __init__(self, path: Path, say: Callable[[str], object]) -> None:
        super().__init__(path)
        self._say = say

    def write(self, data: bytes) -> None:
        """Append the data and pass on its lines."""
        super().write(data)
        for line in data.decode("utf-8", "replace").splitlines():
            message = line.removeprefix("[advice] ").removeprefix("[search] ")
            if message != line:
                self._say(message)


def _lay_out(
    work: WorkFolder, lease: Lease, files: TaskFiles, machine: Machine, memory_bytes: int, code: bytes
) -> None:
    models = work.files / "model"
    models.mkdir(parents=True)
    model = models / safe_name(lease.request.model.name)
    link_or_copy(files.model, model)
    for path, file in files.parts.items():
        link_or_copy(file, part_path(models, path))
    arrays_by_role: dict[str, dict[str, Path]] = {"input": {}, "data": {}}
    for role, arrays in (("input", files.inputs), ("data", files.data)):
        for i, (name, file) in enumerate(arrays.items()):
            arrays_by_role[role][name] = work.files / f"{role}{i}.npy"
            link_or_copy(file, arrays_by_role[role][name])
    work.code.write_bytes(code)
    more = tuning_context(machine, arrays_by_role["data"], memory_bytes)
    work.lay_out(lease, model, arrays_by_role["input"], pinned_cpus(lease.request.pin, lease.spec.threads), more)
    shutil.copyfile(model, work.out / model.name)  # next to the result, like on the server
