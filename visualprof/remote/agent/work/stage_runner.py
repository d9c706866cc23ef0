"""Runs the children of a task one after another: processes their events, enforces limits, and explains failures."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args

import psutil

from visualprof.messages import msg
from visualprof.remote.agent.child_files import free_bytes
from visualprof.remote.agent.errors import StopRequested, to_task_failure
from visualprof.remote.agent.machine.monitor import PROFILE_INTERVAL_S, Monitor
from visualprof.remote.agent.machine.processes import scratch_bytes
from visualprof.remote.agent.machine.sandbox import Sandbox
from visualprof.remote.agent.work.child_events import (
    Event,
    EventReader,
    TaskProgress,
    int_field,
    is_object,
    sanitize,
    text_field,
)
from visualprof.remote.agent.work.child_process import GRACE_S, CappedLog, Child
from visualprof.remote.agent.work.result_folder import WorkFolder
from visualprof.remote.backends import all_formats
from visualprof.remote.protocol import Phase, Reason, TaskFailure

POLL_S = 0.1
MAX_PROFILES = 50
MAX_WARNINGS, MAX_WARNING_CHARACTERS = 100, 2000  # of a child
ABANDON_GRACE_S = 1.0  # when the agent must stop at once
PHASES: tuple[str, ...] = get_args(Phase)
REASONS: tuple[str, ...] = get_args(Reason)
GIB = 1 << 30
RESOURCE_LIMITS = (
    f"CORE=0 FSIZE={16 * GIB} NPROC=16384"  # NPROC counts processes and threads of the user; root has no such limit
)
MAX_PROCESSES = 1000
MIN_FREE_MEMORY_BYTES = 256 << 20
MIN_FREE_DISK_BYTES = 16 << 20  # reserve for the journal, the report and other programs
DISK_FULL_BYTES = 1 << 20
VMSTAT = Path("/proc/vmstat")
OUT_OF_MEMORY_TEXTS = ("std::bad_alloc", "MemoryError", msg("agent.out_memory", "out of memory"))
BUBBLEWRAP_LEVEL = 2  # sandbox level that hides files and the network
DISK_FULL_TEXTS = ("No space left on device", "Errno 28", "File too large", "Errno 27")


def require_sandbox(name: str, level: int, case: str = "") -> None:
    """Reject benchmark cases and models that may run code, if children have no sandbox.

    Args:
        name: Name of the model's file.
        level: Level of the sandbox.
        case: Name of the benchmark case; "" for a model.

    Raises:
        TaskFailure: The sandbox is missing.
    """
    suffix = Path(name).suffix.lower()
    if level >= BUBBLEWRAP_LEVEL:
        return
    if case:
        error = msg("agent.case_may_run_any", "a case may run any code, and this agent has no sandbox")
        raise TaskFailure(
            "model_error", error, msg("agent.install_bubblewrap_machine", "install bubblewrap on that machine")
        )
    if any(model_format.runs_code and suffix in model_format.suffixes for model_format in all_formats().values()):
        error = msg("agent.may_run_any_code", f"a {suffix} file may run any code, and this agent has no sandbox")
        raise TaskFailure(
            "model_error",
            error,
            msg(
                "agent.install_bubblewrap_machine_save",
                "install bubblewrap on that machine, or save the model in another format",
            ),
        )


@dataclass
class StageRunner:
    """Runs the stages of one task.

    Attributes:
        work: Work folder of the task.
        device: Device of the task.
        timeout_s: Time limit of the task, for messages.
        python: The interpreter.
        prefixes: Folders of the interpreter.
        level: Level of the sandbox.
        memory_bytes: Memory limit of a child.
        monitor: Samples the machine.
        log: Log of the task.
        progress: Progress of the task.
        check: Called regularly; raises StopRequested to stop the work.
        on_child_start: Called with each child.
        step_timeouts: Time limits of the steps of a case, as in `CaseRef`.
    """

    work: WorkFolder
    device: str
    timeout_s: float
    python: Path
    prefixes: tuple[str, ...]
    level: int
    memory_bytes: int
    monitor: Monitor
    log: CappedLog
    progress: TaskProgress
    check: Callable[[], None]
    on_child_start: Callable[[Child], None]
    step_timeouts: Mapping[str, float] = field(default_factory=dict[str, float])

    def run(self, stage: str, deadline: float) -> None:
        """Run one stage to its end.

        Args:
            stage: Name of the stage.
            deadline: Latest end, as `time.monotonic()`.

        Raises:
            TaskFailure: The stage failed, crashed, or exceeded a limit.
            StopRequested: The work was stopped.
        """
        self._failed: TaskFailure | None = None
        self._done = False
        self._events = EventReader(self.work.events)
        self._events.skip_partial_line()
        self.progress.share = 0.0
        kills_before = _read_oom_kills()
        child = self._start(stage)
        try:
            self.on_child_start(child)
            self._supervise(child, deadline)
        finally:
            status, signal_name = child.close()
            self.monitor.watch(None)
            last_offset = -1
            while last_offset != self._events.offset:
                last_offset = self._events.offset
                self._process_events()
        self._check_result(status, signal_name, _read_oom_kills() - kills_before)

    def _start(self, stage: str) -> Child:
        work, monitor = self.work, self.monitor
        sandbox = Sandbox(
            work=work.box,
            python=self.python,
            files=work.files,
            replaced=((work.task_inside, work.task),),
            prefixes=self.prefixes,
            device=self.device,
            mark=work.mark,
            limits=RESOURCE_LIMITS,
        )
        command, env = sandbox.command(self.level, "-I", str(work.code), str(work.box), stage)
        if self.level >= BUBBLEWRAP_LEVEL:  # no child could change the task's description
            task = json.loads(work.task.read_text("utf-8"))
            work.task_inside.write_text(json.dumps(sandbox.inside(task)), "utf-8")
        try:
            child = Child(command, env, work.box, self.log, work.mark)
        except OSError as error:
            raise TaskFailure(
                "no_runtime", msg("agent.could_not_started", f"{self.python} could not be started: {error.strerror}")
            ) from None
        self._pid, self._began_ns = child.pid, time.time_ns()
        if stage.startswith("profile:"):
            self.progress.phase = monitor.phase = "profiling"
            monitor.interval_s = min(monitor.interval_s, PROFILE_INTERVAL_S)
            self.progress.changed()
        monitor.watch(child.tree)
        monitor.start()
        return child

    def _supervise(self, child: Child, deadline: float) -> None:
        try:
            while not child.has_ended():
                if child.output_ended.wait(POLL_S):
                    child.output_ended.clear()
                    time.sleep(0.01)
                self._process_events()
                self.check()
                self._check_limits(child, deadline)
        except TaskFailure as failure:
            child.terminate(0 if failure.reason == "out_of_memory" else GRACE_S)
            raise
        except StopRequested as stop:
            child.terminate(GRACE_S if str(stop) == "cancelled" else ABANDON_GRACE_S)
            raise

    def _check_limits(self, child: Child, deadline: float) -> None:
        now, step = time.monotonic(), self.progress.step
        if now > deadline:
            raise TaskFailure(
                "timeout",
                msg("agent.not_done_after_s", f"did not finish within {self.timeout_s:g} s ({self._current_step()})"),
                self._last_lines(),
            )
        limit_s = self.step_timeouts.get(step, self.step_timeouts.get("", math.inf))
        if step and now - self.progress.step_since > limit_s:
            raise TaskFailure(
                "timeout",
                msg("agent.step_not_done_after", f"step {step} did not finish within {limit_s:g} s"),
                self._last_lines(),
            )
        if self.monitor.error:
            raise to_task_failure(self.monitor.error)
        if self.log.full_disk:
            raise TaskFailure(
                "disk_full", msg("agent.agents_disk_full_log", "the agent's disk is full: the log could not be written")
            )
        self._check_machine(child)
        used_bytes, allowed_bytes = child.tree.rss_bytes(), self.memory_bytes
        used_bytes += scratch_bytes(child.tree) if self.level == BUBBLEWRAP_LEVEL else 0
        if used_bytes > allowed_bytes:
            error = msg(
                "agent.gib_memory_use_allowed",
                f"{used_bytes / GIB:.2f} GiB of memory were in use, {allowed_bytes / GIB:.2f} are allowed "
                f"({self._current_step()})",
            )
            hint = msg(
                "agent.smaller_size_swept_dimension_larger",
                "use a smaller size of the swept dimension, or a larger --memory of the agent",
            )
            raise TaskFailure("out_of_memory", error, hint)

    def _check_machine(self, child: Child) -> None:
        """Check limits that the kernel does not enforce: the number of processes, the machine's memory and disk."""
        count = len(child.tree.processes())
        if count > MAX_PROCESSES:
            raise TaskFailure(
                "crashed",
                msg(
                    "agent.processes_started_allowed",
                    f"{count:,} processes were started, {MAX_PROCESSES} are allowed ({self._current_step()})",
                ),
            )
        if free_bytes(self.work.box) < MIN_FREE_DISK_BYTES:
            hint = msg("agent.free_space", f"free space for {self.work.folder}")
            raise TaskFailure(
                "disk_full",
                msg("agent.agents_disk_nearly_full", f"the agent's disk is nearly full ({self._current_step()})"),
                hint,
            )
        memory = psutil.virtual_memory()
        if memory.available < min(MIN_FREE_MEMORY_BYTES, memory.total // 50):
            error = msg(
                "agent.only_mib_machines_memory",
                f"only {memory.available >> 20} MiB of the machine's memory were left ({self._current_step()})",
            )
            raise TaskFailure(
                "out_of_memory",
                error,
                msg(
                    "agent.smaller_size_swept_dimension",
                    "use a smaller size of the swept dimension, or a less busy machine",
                ),
            )

    def _current_step(self) -> str:
        phase, batch = self.progress.phase, self.progress.batch
        if self.progress.step:
            return f"step {self.progress.step}"
        return phase if batch is None else f"{phase} batch {batch}"

    def _last_lines(self) -> str:
        tail = self.log.tail()
        return (
            msg("agent.log_ends", f"the log ends with:\n{tail}") if tail else msg("agent.log_empty", "the log is empty")
        )

    def _check_result(self, status: int, signal_name: str, oom_kills: int) -> None:
        """Check how a child ended. A crash after `done` is only a warning, because some runtimes crash at exit.

        Raises:
            TaskFailure: The child failed or crashed.
        """
        ending = (
            msg("agent.ended", f"ended by {signal_name}")
            if signal_name
            else msg("agent.ended_status", f"ended with status {status}")
        )
        if self._done and self._failed is None:
            if status:
                self.progress.warnings.append(
                    msg("agent.child_after_work_done", f"the child {ending} after its work was done")
                )
            return
        tail = self.log.tail()
        failure = self._failed or self._crash_failure(ending, tail, signal_name == "SIGKILL" and oom_kills > 0)
        if free_bytes(self.work.box) < DISK_FULL_BYTES or any(word in tail + failure.error for word in DISK_FULL_TEXTS):
            raise TaskFailure(
                "disk_full",
                msg("agent.no_space_left_agents", f"no space was left on the agent's disk: {failure.error}"),
                failure.hint,
            )
        raise failure

    def _crash_failure(self, ending: str, tail: str, oom_killed: bool) -> TaskFailure:
        reason: Reason = (
            "out_of_memory" if oom_killed or any(word in tail for word in OUT_OF_MEMORY_TEXTS) else "crashed"
        )
        return TaskFailure(
            reason,
            msg("agent.child_without_result", f"the child {ending} without a result ({self._current_step()})"),
            self._last_lines(),
        )

    def _process_events(self) -> None:
        for event in self._events.read():
            self._process_event(event)

    def _process_event(self, event: Event) -> None:
        progress = self.progress
        match event["event"]:
            case "phase" if event.get("phase") in PHASES:
                progress.phase, progress.batch = event["phase"], int_field(event, "batch")
                if progress.step != (step := text_field(event, "step", 40)):
                    progress.step, progress.step_since = step, time.monotonic()
                self.monitor.phase, self.monitor.batch = progress.phase, progress.batch
            case "progress":
                done, total = int_field(event, "done") or 0, int_field(event, "total") or 0
                progress.share = min(max(done / total, 0.0), 1.0) if total > 0 else 0.0
            case "point" if is_object(event.get("point")):
                if progress.load_ns is None:
                    progress.load_ns = int_field(event["point"], "load_ns")
                progress.on_point(event["point"])
            case "effective" if is_object(event.get("effective")):
                progress.effective, progress.version = sanitize(event["effective"]), text_field(event, "version", 100)
            case "converted" if is_object(event.get("converted")):
                progress.converted = sanitize(event["converted"])
            case "profile" if len(progress.profiles) < MAX_PROFILES:
                times = {"begin_ns": self._began_ns, "end_ns": time.time_ns()}
                progress.profiles.append({**event, **times, "error": None, "pid": self._pid})
            case "warning" if len(progress.warnings) < MAX_WARNINGS:
                progress.add_warning(text_field(event, "text", MAX_WARNING_CHARACTERS))
                progress.add_not_measured(int_field(event, "not_measured"))
            case "failed":
                self._failed = _parse_failure(event)
            case "done":
                self._done = True
            case _:
                return
        progress.changed()


def _parse_failure(event: Event) -> TaskFailure:
    reason = cast("Reason", event.get("reason") if event.get("reason") in REASONS else "model_error")
    error = text_field(event, "error") or msg("agent.child_failed_did_not", "the child failed without giving a reason")
    return TaskFailure(reason, error, text_field(event, "hint"))


def _read_oom_kills() -> int:
    """Return the number of processes that the kernel has killed for lack of memory since boot."""
    try:
        return next((int(x.split()[1]) for x in VMSTAT.read_text().splitlines() if x.startswith("oom_kill ")), 0)
    except OSError:
        return 0
