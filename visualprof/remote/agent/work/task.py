"""Leased tasks: download, preparation, stages, result and report."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.agent.child_files import free_bytes, link_or_copy, remove_folder
from visualprof.remote.agent.errors import CANCELLED, SUCCEEDED, LeaseLost, Outcome, StopRequested, failed_outcome
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.link.shipper import Shipper
from visualprof.remote.agent.machine.cpus import pinned_cpus
from visualprof.remote.agent.machine.host_settings import throttled_periods
from visualprof.remote.agent.machine.measuring_lock import hold_device
from visualprof.remote.agent.machine.monitor import Monitor
from visualprof.remote.agent.machine.quiet_host import sample_host_load, wait_for_quiet
from visualprof.remote.agent.work import resume_cache
from visualprof.remote.agent.work.agent_context import AgentContext
from visualprof.remote.agent.work.case_run import CaseInterpreter, device_reader, run_case, unpack_case
from visualprof.remote.agent.work.child_events import TaskProgress
from visualprof.remote.agent.work.child_process import CappedLog
from visualprof.remote.agent.work.delivery import Delivery
from visualprof.remote.agent.work.device_scheduler import ScheduledTask
from visualprof.remote.agent.work.repeats import Repeats
from visualprof.remote.agent.work.result_folder import (
    WorkFolder,
    complete_result,
    describe_environment,
    part_path,
    read_warnings,
    safe_name,
    tuning_context,
)
from visualprof.remote.agent.work.stage_runner import StageRunner, require_sandbox
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Lease, Runtime, TaskFailure

SPARE_BYTES = 64 << 20
MEASURE_SHARE = 0.85  # share of the measuring stages in the progress, if profile passes follow
PASS_SHARE = 0.1
UPLOAD_SHARE = 0.97
PASS_MARGIN_S = 10.0  # profile passes end this long before the deadline, so that the result still arrives
SHIP_TIMEOUT_S = 5.0
MIN_MONITOR_INTERVAL_S = 0.01
TUNING_STAGES = {"advise", "search"}  # stages that start other interpreters
MIN_REPORTED_WAIT_S = 1.0


class LeasedTask:
    """A task that this agent has leased. It runs in its own thread."""

    def __init__(
        self, lease: Lease, context: AgentContext, outcome: Outcome | None = None, warnings: Sequence[str] = ()
    ) -> None:
        """Take a lease.

        Args:
            lease: The lease.
            context: State of the agent.
            outcome: Outcome of an earlier run, if only the report is missing.
            warnings: Further warnings of the result.
        """
        self.lease = lease
        self._context = context
        self._machine = context.machine
        self._client = context.registration.client
        self._outcome = outcome
        self._end_reason = ""  # set when the task must stop
        self._stop = threading.Event()  # stops the work
        self._leave = threading.Event()  # also stops the report
        self._folder = WorkFolder(resume_cache.work_folder(context.state, lease))
        self._progress = TaskProgress(lambda _: None, context.on_change, warnings=[*lease.warnings, *warnings])
        self._uploading = outcome is not None
        self._stages: list[str] = []
        self._finished_stages = 0
        self._device_wait_s = 0.0  # waiting for another agent of this host
        self._quiet_wait_s = 0.0  # waiting for a quiet host
        self._throttled_periods = 0
        self._started_ns = time.time_ns()

    def __str__(self) -> str:
        spec = self.lease.spec
        return msg(
            "agent.task", f"task {self.lease.task}: {self.lease.request.model.name!r}, {spec.backend} on {spec.device}"
        )

    def heartbeat(self) -> dict[str, Any]:
        """Return the task's row of a heartbeat."""
        phase = "uploading" if self._uploading else self._progress.phase
        row = {
            "task": self.lease.task,
            "lease": self.lease.lease,
            "phase": phase,
            "progress": round(self._progress_ratio(), 3),
        }
        warnings = self._progress.warnings
        return row | ({"warnings": list(warnings)} if warnings else {})

    def _progress_ratio(self) -> float:
        if self._uploading:
            return UPLOAD_SHARE
        repeats, passes = self.lease.request.repeat, len(self._stages) - self.lease.request.repeat
        if self._finished_stages < repeats:
            finished = (self._finished_stages + self._progress.share) / repeats
            return finished * (MEASURE_SHARE if passes > 0 else MEASURE_SHARE + PASS_SHARE)
        return MEASURE_SHARE + PASS_SHARE * (self._finished_stages - repeats + self._progress.share) / max(passes, 1)

    def end(self, reason: str) -> None:
        """Stop the task.

        Args:
            reason: "cancelled", "stale" (its lease is lost) or "abandoned" (the agent is shutting down).
        """
        if reason != "cancelled" or not self._end_reason:
            self._end_reason = reason
        if reason != "cancelled":
            self._leave.set()
        self._stop.set()

    def run(self) -> str:
        """Run the task, report it and clean up; return how it ended. An abandoned task stays in the journal."""
        journal, lease, warnings = self._context.journal, self.lease, self._progress.warnings
        try:
            self._check()
            if self._outcome:
                warnings[:] = self._stored_warnings() or warnings
            outcome = self._outcome or self._run_and_complete()
            journal.record_outcome(lease, outcome)
            self._uploading = True
            self._context.on_change()
            ending = Delivery(self._client, lease, self._folder.out, warnings, self._stop, self._leave).send(outcome)
            if outcome["state"] == "succeeded":
                resume_cache.discard(self._context.state, lease)
            elif lease.request.case.name:
                resume_cache.save(self._context.state, lease)
        except LeaseLost as lost:
            resume_cache.save(self._context.state, lease)
            ending = msg("agent.dropped", f"dropped: {lost}")
        except StopRequested:
            if self._end_reason == "abandoned":
                return msg(
                    "agent.left_next_start_goes",
                    "interrupted; the next start resumes it, unless the server gives it to another agent",
                )
            resume_cache.save(self._context.state, lease)
            ending = msg("agent.dropped_lease_over", "dropped: its lease has expired")
        journal.remove(lease)
        remove_folder(self._folder.folder)
        return ending

    def _stored_warnings(self) -> list[str]:
        """Return the warnings of the result that an earlier start completed."""
        try:
            return read_warnings(self._folder)
        except (OSError, ValueError, LookupError, TypeError):  # no status.json: the disk was full
            return []

    def _run_and_complete(self) -> Outcome:
        """Run the task and complete its result folder.

        Raises:
            StopRequested: The task is stale or abandoned.
        """
        try:
            self._run_on_device()
            outcome = SUCCEEDED
        except StopRequested:
            if self._end_reason != "cancelled":
                raise
            outcome = CANCELLED
        except Exception as error:  # noqa: BLE001 - the agent continues with the next task
            outcome = failed_outcome(error)
        if outcome["reason"] == "disk_full":
            self._folder.free_space()
        agent = {"agent": self._context.settings.name, "agent_id": self._context.registration.agent}
        try:
            env = describe_environment(self.lease.spec, agent, self._machine, self._progress)
            complete_result(self._folder, self.lease, outcome, self._progress, env, self._started_ns)
        except Exception as error:  # noqa: BLE001 - a child may leave anything
            return failed_outcome(error)
        return outcome

    def _check(self) -> None:
        if self._stop.is_set():
            raise StopRequested(self._end_reason)

    def _run_on_device(self) -> None:
        lease, scheduler = self.lease, self._context.scheduler
        position = next((i for i, spec in enumerate(lease.request.specs) if spec.id == lease.spec.id), 0)
        with scheduler.register(lease.spec.device, position) as scheduled:
            with scheduler.time_slot(lease.spec.device, scheduled, self._check):
                runtime = self._prepare()
            self._run_stages(runtime, scheduled)

    def _prepare(self) -> Runtime:
        """Download the files and lay them out; return the runtime of the run configuration."""
        work, lease = self._folder, self.lease
        runtime, spec = self._machine.newest_runtime(lease.spec), lease.spec
        if runtime is None:
            wanted = f"{spec.backend}{'==' if spec.version else ''}{spec.version}"
            error = msg(
                "agent.agent_no_device", f"agent {self._context.settings.name} has no {wanted} for device {spec.device}"
            )
            raise TaskFailure(
                "no_runtime",
                error,
                msg(
                    "agent.machine_visualprof_agent_install",
                    f"on that machine: visualprof agent install-runtime {wanted}",
                ),
            )
        case = lease.request.case
        require_sandbox(lease.request.model.name, self._machine.capabilities.sandbox, case.name)
        resume_cache.save(self._context.state, lease)
        remove_folder(work.folder)
        work.files.mkdir(parents=True)
        needed_bytes = SPARE_BYTES + sum(file.size_bytes for file in lease.files)
        if free_bytes(work.folder) < needed_bytes:
            error = msg(
                "agent.less_than_mib_free", f"less than {needed_bytes >> 20:,} MiB are free on the agent's disk"
            )
            raise TaskFailure("disk_full", error, msg("agent.free_space", f"free space for {self._context.state.path}"))
        model, inputs, data = self._download_files()
        work.code.write_bytes(self._context.settings.code())
        passes = backend(lease.spec.backend).passes if lease.request.profile.runs > 0 else ()
        rounds = range(lease.request.repeat)
        self._stages = [*(f"measure:{n}" for n in rounds), *(f"profile:{name}" for name in passes)]
        extra: dict[str, Any] = {}
        if case.name:
            self._stages, extra = ["case"], unpack_case(model, work.files / "case", lease)
        objectives = {"advise": lease.request.advise.objective, "search": lease.request.search.objective}
        tuning_stages = [stage for stage, objective in objectives.items() if objective]
        self._stages += tuning_stages
        if tuning_stages:
            extra = tuning_context(self._machine, data, self._context.memory_bytes)
        work.lay_out(lease, model, inputs, pinned_cpus(lease.request.pin, lease.spec.threads), extra)
        resume_cache.restore(self._context.state, lease, work.out)
        return runtime

    def _download_files(self) -> tuple[Path, dict[str, Path], dict[str, Path]]:
        """Download the model with the files that it names, the inputs and the data. The model gets its own folder."""
        state, folder = self._context.state, self._folder.files / "model"
        model = folder / safe_name(self.lease.request.model.name)
        folder.mkdir()
        inputs, data = dict[str, Path](), dict[str, Path]()
        for i, file in enumerate(self.lease.files):
            blob = state.blob_path(file.sha256)
            transfer.download(self._client, self.lease, file, blob, self._stop)
            if file.role in ("input", "data"):
                arrays = inputs if file.role == "input" else data
                target = arrays.setdefault(file.name, self._folder.files / f"{file.role}{i}.npy")
            else:
                target = model if file.role == "model" else part_path(folder, file.name)
            link_or_copy(blob, target)
        state.trim_blobs()
        if not model.exists():
            raise TaskFailure(
                "agent_error", msg("agent.server_gave_out_task", "the server sent the task without a model")
            )
        return model, inputs, data

    def _run_stages(self, runtime: Runtime, scheduled: ScheduledTask) -> None:
        lease, work, context = self.lease, self._folder, self._context
        log = CappedLog(work.log)
        shipper, repeats = Shipper(self._client, lease, work.log, lambda: self.end("stale")), Repeats()
        self._progress.on_point = lambda point: shipper.queue_point(repeats.add(point))
        gpus = [lease.spec.device] if lease.spec.device.startswith("cuda") else []
        nvml = device_reader(lease.request.case.vendor, context.nvml)
        monitor = Monitor(work.monitor, max(MIN_MONITOR_INTERVAL_S, lease.request.monitor_interval_s), nvml, gpus)
        stages = StageRunner(
            work=work,
            device=lease.spec.device,
            timeout_s=lease.request.timeout_s,
            python=Path(runtime.python),
            prefixes=self._machine.prefixes_for(runtime.python, all_interpreters=bool({*self._stages} & TUNING_STAGES)),
            level=self._machine.capabilities.sandbox,
            memory_bytes=context.memory_bytes,
            monitor=monitor,
            log=log,
            progress=self._progress,
            check=self._check,
            on_child_start=lambda child: context.journal.record_child(lease, child.pid, child.start_ticks),
            step_timeouts=lease.request.case.step_timeouts,
        )
        try:
            self._run_stage_list(stages, scheduled)
            self._warn_of_disturbances()
        finally:
            monitor.close()
            log.close()
            shipper.close(0.0 if self._leave.is_set() else SHIP_TIMEOUT_S)

    def _run_stage_list(self, stages: StageRunner, scheduled: ScheduledTask) -> None:
        """Run the stages. A failed profile pass, advice or search is a warning, because the points stay valid."""
        timeout_s, progress = self.lease.request.timeout_s, self._progress
        left_s = timeout_s
        for stage in self._stages:
            kind, _, name = stage.partition(":")
            measures = kind in ("measure", "case")
            with self._hold_device(scheduled):
                if measures:
                    self._wait_for_quiet_host(stages.log)
                start_s = time.monotonic()
                try:
                    self._check()
                    deadline = start_s + left_s - (0 if measures else min(PASS_MARGIN_S, timeout_s / 10))
                    if kind == "case":
                        run_case(stages, self._case_interpreters(), deadline)
                    else:
                        stages.run(stage, deadline)
                except TaskFailure as failure:
                    if measures:
                        raise
                    warning = (
                        msg("agent.no_advice", f"no advice: {failure.error}")
                        if kind == "advise"
                        else msg("agent.no_search", f"no search: {failure.error}")
                    )
                    message = msg("agent.profile_pass", f"profile pass {name}: {failure.error}") if name else warning
                    progress.warnings.append(message)
                    if name:
                        progress.profiles.append({"pass": name, "error": failure.error})
                left_s -= time.monotonic() - start_s
            self._finished_stages += 1

    def _case_interpreters(self) -> list[CaseInterpreter]:
        """Return interpreters that a case may run in; the one with the newest runtime comes first."""
        runtimes = [runtime.python for runtime in self._machine.matching_runtimes(self.lease.spec)]
        return [
            (python, self._machine.prefixes_for(python, all_interpreters=False)) for python in dict.fromkeys(runtimes)
        ]

    @contextmanager
    def _hold_device(self, scheduled: ScheduledTask) -> Generator[None]:
        """Hold the device for a stage, so that no other task of this agent and no other agent of the host uses it."""
        device, self._progress.phase = self.lease.spec.device, "preparing"
        with (
            self._context.scheduler.time_slot(device, scheduled, self._check),
            hold_device(device, self._check) as waited_s,
        ):
            periods_before = throttled_periods()
            yield
            self._device_wait_s += waited_s
            self._throttled_periods += throttled_periods() - periods_before

    def _wait_for_quiet_host(self, log: CappedLog) -> None:
        """Wait until the host is quiet. The job's limit applies to the waits of all repeats together."""
        left_s = self.lease.request.quiet_s - self._quiet_wait_s
        if left_s <= 0:
            return
        self._progress.phase = "settling"
        self._context.on_change()
        waited_s, load = wait_for_quiet(left_s, sample_host_load(), self._check)
        self._quiet_wait_s += waited_s
        message = msg("agent.waited_s_quiet_host", f"waited {waited_s:.0f} s for a quiet host")
        if load:
            message = msg(
                "agent.which_never_measured_all", f"{message}, but it never was quiet ({load}); measured anyway"
            )
            self._progress.warnings.append(message)
        log.write(f"[agent] {message}\n".encode())

    def _warn_of_disturbances(self) -> None:
        """Add warnings about disturbances from outside that influenced the measurement or delayed it."""
        if self._device_wait_s > MIN_REPORTED_WAIT_S:
            message = msg(
                "agent.waited_s_another_agent",
                f"waited {self._device_wait_s:.0f} s for another agent of this host, "
                f"which used {self.lease.spec.device}",
            )
            self._progress.warnings.append(message)
        if self._throttled_periods:
            message = msg(
                "agent.control_group_agent_used",
                f"the control group of the agent exhausted its CPU quota in {self._throttled_periods:,} periods",
            )
            self._progress.warnings.append(msg("agent.latencies_waits_them", f"{message}: latencies include waits"))
