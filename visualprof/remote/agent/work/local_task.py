"""A task that no server gave out: stages of one spec on this machine, into a result folder like any other."""

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
from visualprof.remote.protocol import Lease, Request, TaskFailure


@dataclass(frozen=True)
class TaskFiles:
    """Local files of a task: the model, those that it names by their paths beside it, arrays by the input's name."""

    model: Path
    parts: Mapping[str, Path] = field(default_factory=dict[str, Path])
    inputs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    data: Mapping[str, Path] = field(default_factory=dict[str, Path])


def run_local_task(
    request: Request,
    files: TaskFiles,
    stages: Sequence[str],
    machine: Machine,
    memory_bytes: int,
    code: bytes,
    folder: Path,
    say: Callable[[str], object] = lambda _: None,
    earlier_trials: bytes = b"",
) -> Path:
    """Runs stages of the first spec of a request; the result folder.

    Args:
        stages: `measure:0`, `advise`, `search`.
        memory_bytes: that a child may use. code: the child's archive.
        folder: gets everything, and is emptied first. say: takes the lines of the log as they come.
        begun: the trials of an earlier start of a search.
    Raises: TaskFailure: a stage failed; the result folder says it, too.
    """
    remove_folder(folder)
    work, spec = WorkFolder(folder.absolute()), request.specs[0]
    runtime = machine.newest_runtime(spec)
    if runtime is None:
        hint = f"visualprof agent install-runtime {spec.backend}"
        raise TaskFailure(
            "no_runtime", msg("agent.machine_no", f"this machine has no {spec.backend} for {spec.device}"), hint
        )
    require_sandbox(request.model.name, machine.capabilities.sandbox)
    lease = Lease(task="local", job="local", run=folder.name, attempt=1, lease="", spec=spec, request=request, files=[])
    _lay_out(work, lease, files, machine, memory_bytes, code)
    if earlier_trials:
        (work.out / "search.json").write_bytes(earlier_trials)
    progress, log = TaskProgress(lambda _: None, lambda: None), _SpokenLog(work.log, say)
    monitor = Monitor(work.monitor, request.monitor_interval_s, Nvml(), [spec.device] if spec.device != "cpu" else [])
    runner = StageRunner(
        work=work,
        device=spec.device,
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
    started_ns, end, outcome = time.time_ns(), time.monotonic() + request.timeout_s, SUCCEEDED
    try:
        for stage in stages:
            runner.run(stage, end)
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


class _SpokenLog(CappedLog):
    """A log whose lines of advice and search are also told."""

    def __init__(self, path: Path, say: Callable[[str], object]) -> None:
        super().__init__(path)
        self._say = say

    def write(self, data: bytes) -> None:
        """Append, and tells."""
        super().write(data)
        for line in data.decode("utf-8", "replace").splitlines():
            said = line.removeprefix("[advice] ").removeprefix("[search] ")
            if said != line:
                self._say(said)


def _lay_out(
    work: WorkFolder, lease: Lease, files: TaskFiles, machine: Machine, memory_bytes: int, code: bytes
) -> None:
    models = work.files / "model"
    models.mkdir(parents=True)
    model = models / safe_name(lease.request.model.name)
    link_or_copy(files.model, model)
    for path, file in files.parts.items():
        link_or_copy(file, part_path(models, path))
    laid: dict[str, dict[str, Path]] = {"input": {}, "data": {}}
    for role, arrays in (("input", files.inputs), ("data", files.data)):
        for i, (name, file) in enumerate(arrays.items()):
            laid[role][name] = work.files / f"{role}{i}.npy"
            link_or_copy(file, laid[role][name])
    work.code.write_bytes(code)
    more = tuning_context(machine, laid["data"], memory_bytes)
    work.lay_out(lease, model, laid["input"], pinned_cpus(lease.request.pin, lease.spec.threads), more)
    shutil.copyfile(model, work.out / model.name)  # beside its result, as the server puts it
