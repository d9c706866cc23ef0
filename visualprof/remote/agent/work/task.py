"""Leased tasks, each from its files to its report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from visualprof.messages import msg
from visualprof.remote.agent.child_files import free_bytes, link_or_copy, remove_folder
from visualprof.remote.agent.errors import CANCELLED, SUCCEEDED, LeaseLost, Outcome, StopRequested, failed_outcome
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.link.shipper import Shipper
from visualprof.remote.agent.machine.cpus import pinned_cpus
from visualprof.remote.agent.machine.host_settings import throttled_periods
from visualprof.remote.agent.machine.measuring_lock import hold_device
from visualprof.remote.agent.machine.monitor import Monitor
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Machine
from visualprof.remote.agent.machine.quiet_host import sample_host_load, wait_for_quiet
from visualprof.remote.agent.registration import Registration
from visualprof.remote.agent.state import Journal, Settings, StateFolder
from visualprof.remote.agent.work import resume_cache
from visualprof.remote.agent.work.case_run import CaseInterpreter, device_reader, run_case, unpack_case
from visualprof.remote.agent.work.child_events import TaskProgress
from visualprof.remote.agent.work.child_process import CappedLog
from visualprof.remote.agent.work.delivery import Delivery
from visualprof.remote.agent.work.device_scheduler import DeviceScheduler, ScheduledTask
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

MEMORY_SHARE = 0.9
SPARE_BYTES = 64 << 20
MEASURE_SHARE = 0.85  # share of the progress that measuring is, when profile passes follow
PASS_SHARE = 0.1
UPLOAD_SHARE = 0.97
PASS_MARGIN_S = 10.0  # before the deadline, so that the result still arrives
SHIP_TIMEOUT_S = 5.0
MIN_MONITOR_INTERVAL_S = 0.01
TUNING_STAGES = {"advise", "search"}  # stages that start other interpreters
MIN_REPORTED_WAIT_S = 1.0


@dataclass
class AgentContext:
    """What the tasks of an agent share.

    changed: tells the server soon that there is news. machine: as it is now. relay: of the tasks on a device.
    """

    settings: Settings
    state: StateFolder
    journal: Journal
    registration: Registration
    nvml: Nvml
    on_change: Callable[[], None]
    machine: Machine
    scheduler: DeviceScheduler = field(default_factory=DeviceScheduler)

    @property
    def memory_bytes(self) -> int:
        """Memory that a task may use."""
        return self.settings.memory_bytes or round(psutil.virtual_memory().total * MEMORY_SHARE)


class LeasedTask:
    """A task that this agent has leased; it is run in a thread of its own."""

    def __init__(
        self, lease: Lease, context: AgentContext, outcome: Outcome | None = None, warnings: Sequence[str] = ()
    ) -> None:
        """Take a lease. outcome: how it ended already; only the report is missing. warnings: of its result."""
        self.lease = lease
        self._context = context
        self._machine = context.machine
        self._client = context.registration.client
        self._outcome = outcome
        self._why = ""  # it is to end
        self._stop = threading.Event()  # the work ends
        self._leave = threading.Event()  # the report ends too
        self._work = WorkFolder(resume_cache.work_folder(context.state, lease))
        self._progress = TaskProgress(lambda _: None, context.on_change, warnings=[*lease.warnings, *warnings])
        self._uploading = outcome is not None
        self._stages: list[str] = []
        self._done = 0
        self._waited_s = 0.0  # for another agent of this host
        self._settled_s = 0.0  # for a quiet host
        self._throttled = 0  # periods
        self._started_ns = time.time_ns()

    def __str__(self) -> str:
        spec = self.lease.spec
        return msg(
            "agent.task", f"task {self.lease.task}: {self.lease.request.model.name!r}, {spec.backend} on {spec.device}"
        )

    def heartbeat(self) -> dict[str, Any]:
        """The task's part of a heartbeat."""
        phase = "uploading" if self._uploading else self._progress.phase
        row = {"task": self.lease.task, "lease": self.lease.lease, "phase": phase, "progress": round(self._share(), 3)}
        warnings = self._progress.warnings
        return row | ({"warnings": list(warnings)} if warnings else {})

    def _share(self) -> float:
        if self._uploading:
            return UPLOAD_SHARE
        rounds, passes = self.lease.request.repeat, len(self._stages) - self.lease.request.repeat
        if self._done < rounds:
            done = (self._done + self._progress.share) / rounds
            return done * (MEASURE_SHARE if passes > 0 else MEASURE_SHARE + PASS_SHARE)
        return MEASURE_SHARE + PASS_SHARE * (self._done - rounds + self._progress.share) / max(passes, 1)

    def end(self, reason: str) -> None:
        """End the task. why: "cancelled", "stale" (its lease is lost) or "abandoned" (the agent leaves)."""
        if reason != "cancelled" or not self._why:
            self._why = reason
        if reason != "cancelled":
            self._leave.set()
        self._stop.set()

    def run(self) -> str:
        """Work, reports and tidies up; returns in words how it ended. An abandoned task stays in the journal."""
        journal, lease, warnings = self._context.journal, self.lease, self._progress.warnings
        try:
            self._check()
            if self._outcome:
                warnings[:] = self._earlier_warnings() or warnings
            outcome = self._outcome or self._worked()
            journal.record_outcome(lease, outcome)
            self._uploading = True
            self._context.on_change()
            ending = Delivery(self._client, lease, self._work.out, warnings, self._stop, self._leave).send(outcome)
            if outcome["state"] == "succeeded":
                resume_cache.discard(self._context.state, lease)
            elif lease.request.case.name:
                resume_cache.save(self._context.state, lease)
        except LeaseLost as lost:
            resume_cache.save(self._context.state, lease)
            ending = msg("agent.dropped", f"dropped: {lost}")
        except StopRequested:
            if self._why == "abandoned":
                return msg(
                    "agent.left_next_start_goes",
                    "left; the next start goes on with it, unless the server gives it to another agent",
                )
            resume_cache.save(self._context.state, lease)
            ending = msg("agent.dropped_lease_over", "dropped: its lease is over")
        journal.remove(lease)
        remove_folder(self._work.folder)
        return ending

    def _earlier_warnings(self) -> list[str]:
        """What the result of an earlier start warns of."""
        try:
            return read_warnings(self._work)
        except (OSError, ValueError, LookupError, TypeError):  # the disk was full, so it has none
            return []

    def _worked(self) -> Outcome:
        """Do the work and completes the result's folder. Raises: StopRequested: stale or abandoned."""
        try:
            self._do()
            outcome = SUCCEEDED
        except StopRequested:
            if self._why != "cancelled":
                raise
            outcome = CANCELLED
        except Exception as error:  # noqa: BLE001 - the agent goes on with the next task
            outcome = failed_outcome(error)
        if outcome["reason"] == "disk_full":
            self._work.free_space()
        agent = {"agent": self._context.settings.name, "agent_id": self._context.registration.agent}
        try:
            env = describe_environment(self.lease.spec, agent, self._machine, self._progress)
            complete_result(self._work, self.lease, outcome, self._progress, env, self._started_ns)
        except Exception as error:  # noqa: BLE001 - what a child left can be anything
            return failed_outcome(error)
        return outcome

    def _check(self) -> None:
        if self._stop.is_set():
            raise StopRequested(self._why)

    def _do(self) -> None:
        lease, relay = self.lease, self._context.scheduler
        place = next((i for i, spec in enumerate(lease.request.specs) if spec.id == lease.spec.id), 0)
        with relay.register(lease.spec.device, place) as runner:
            with relay.time_slot(lease.spec.device, runner, self._check):
                runtime = self._prepare()
            self._run_stages(runtime, runner)

    def _prepare(self) -> Runtime:
        """Fetch the files and lays them out; the runtime that the spec wants."""
        work, lease = self._work, self.lease
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
        needed = SPARE_BYTES + sum(file.size_bytes for file in lease.files)
        if free_bytes(work.folder) < needed:
            error = msg("agent.less_than_mib_free", f"less than {needed >> 20:,} MiB are free on the agent's disk")
            raise TaskFailure("disk_full", error, msg("agent.free_space", f"free space for {self._context.state.path}"))
        model, inputs, data = self._fetch()
        work.code.write_bytes(self._context.settings.code())
        passes = backend(lease.spec.backend).passes if lease.request.profile.runs > 0 else ()
        rounds = range(lease.request.repeat)
        self._stages = [*(f"measure:{n}" for n in rounds), *(f"profile:{name}" for name in passes)]
        more: dict[str, Any] = {}
        if case.name:
            self._stages, more = ["case"], unpack_case(model, work.files / "case", lease)
        objectives = {"advise": lease.request.advise.objective, "search": lease.request.search.objective}
        trying = [stage for stage, objective in objectives.items() if objective]
        self._stages += trying
        if trying:
            more = tuning_context(self._machine, data, self._context.memory_bytes)
        work.lay_out(lease, model, inputs, pinned_cpus(lease.request.pin, lease.spec.threads), more)
        resume_cache.restore(self._context.state, lease, work.out)
        return runtime

    def _fetch(self) -> tuple[Path, dict[str, Path], dict[str, Path]]:
        """The model, in a folder of its own with the files that it names, inputs and data, as plain files."""
        state, folder = self._context.state, self._work.files / "model"
        model = folder / safe_name(self.lease.request.model.name)
        folder.mkdir()
        inputs, data = dict[str, Path](), dict[str, Path]()
        for i, file in enumerate(self.lease.files):
            blob = state.blob_path(file.sha256)
            transfer.download(self._client, self.lease, file, blob, self._stop)
            if file.role in ("input", "data"):
                arrays = inputs if file.role == "input" else data
                target = arrays.setdefault(file.name, self._work.files / f"{file.role}{i}.npy")
            else:
                target = model if file.role == "model" else part_path(folder, file.name)
            link_or_copy(blob, target)
        state.trim_blobs()
        if not model.exists():
            raise TaskFailure(
                "agent_error", msg("agent.server_gave_out_task", "the server gave out the task without a model")
            )
        return model, inputs, data

    def _run_stages(self, runtime: Runtime, runner: ScheduledTask) -> None:
        lease, work, context = self.lease, self._work, self._context
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
            self._run_each(stages, runner)
            self._tell_waits()
        finally:
            monitor.close()
            log.close()
            shipper.close(0.0 if self._leave.is_set() else SHIP_TIMEOUT_S)

    def _run_each(self, stages: StageRunner, runner: ScheduledTask) -> None:
        """Run the stages; a pass, advice or search that fails is a warning, for the measured points stand."""
        timeout_s, progress = self.lease.request.timeout_s, self._progress
        left_s = timeout_s
        for stage in self._stages:
            kind, _, name = stage.partition(":")
            measures = kind in ("measure", "case")
            with self._device(runner):
                if measures:
                    self._settle(stages.log)
                began = time.monotonic()
                try:
                    self._check()
                    deadline = began + left_s - (0 if measures else min(PASS_MARGIN_S, timeout_s / 10))
                    if kind == "case":
                        run_case(stages, self._pythons(), deadline)
                    else:
                        stages.run(stage, deadline)
                except TaskFailure as failure:
                    if measures:
                        raise
                    none = (
                        msg("agent.no_advice", f"no advice: {failure.error}")
                        if kind == "advise"
                        else msg("agent.no_search", f"no search: {failure.error}")
                    )
                    told = msg("agent.profile_pass", f"profile pass {name}: {failure.error}") if name else none
                    progress.warnings.append(told)
                    if name:
                        progress.profiles.append({"pass": name, "error": failure.error})
                left_s -= time.monotonic() - began
            self._done += 1

    def _pythons(self) -> list[CaseInterpreter]:
        """Interpreters that a case may run in, the one with the newest runtime first."""
        runtimes = [runtime.python for runtime in self._machine.matching_runtimes(self.lease.spec)]
        return [
            (python, self._machine.prefixes_for(python, all_interpreters=False)) for python in dict.fromkeys(runtimes)
        ]

    @contextmanager
    def _device(self, runner: ScheduledTask) -> Generator[None]:
        """Hold the device for a stage: no other task of this agent, and no other agent of the host, has it."""
        device, self._progress.phase = self.lease.spec.device, "preparing"
        with (
            self._context.scheduler.time_slot(device, runner, self._check),
            hold_device(device, self._check) as waited_s,
        ):
            before = throttled_periods()
            yield
            self._waited_s += waited_s
            self._throttled += throttled_periods() - before

    def _settle(self, log: CappedLog) -> None:
        """Waits until the host is quiet, as long as the job allows for all repeats together."""
        left_s = self.lease.request.quiet_s - self._settled_s
        if left_s <= 0:
            return
        self._progress.phase = "settling"
        self._context.on_change()
        took_s, busy = wait_for_quiet(left_s, sample_host_load(), self._check)
        self._settled_s += took_s
        told = msg("agent.waited_s_quiet_host", f"waited {took_s:.0f} s for a quiet host")
        if busy:
            told = msg("agent.which_never_measured_all", f"{told}, which it never was ({busy}); measured all the same")
            self._progress.warnings.append(told)
        log.write(f"[agent] {told}\n".encode())

    def _tell_waits(self) -> None:
        """Warns of what is not the spec's own and in its numbers, or in the time that they took."""
        if self._waited_s > MIN_REPORTED_WAIT_S:
            told = msg(
                "agent.waited_s_another_agent",
                f"waited {self._waited_s:.0f} s for another agent of this host, which measured on",
            )
            self._progress.warnings.append(f"{told} {self.lease.spec.device}")
        if self._throttled:
            told = msg(
                "agent.control_group_agent_used",
                f"the control group of the agent had used up its CPU quota in {self._throttled:,} periods",
            )
            self._progress.warnings.append(msg("agent.latencies_waits_them", f"{told}: latencies have waits in them"))
