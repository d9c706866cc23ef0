"""The children of a task, one after the other: what they say, what they use, how they end."""

from __future__ import annotations

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
ABANDON_GRACE_S = 1.0  # for a child of an agent that is told to leave at once
PHASES: tuple[str, ...] = get_args(Phase)
REASONS: tuple[str, ...] = get_args(Reason)
GIB = 1 << 30
RESOURCE_LIMITS = (
    f"CORE=0 FSIZE={16 * GIB} NPROC=16384"  # processes of the user, threads included; root has no such limit
)
MAX_PROCESSES = 1000
MIN_FREE_MEMORY_BYTES = 256 << 20
MIN_FREE_DISK_BYTES = 16 << 20  # for the journal, the report, and other programs
DISK_FULL_BYTES = 1 << 20
VMSTAT = Path("/proc/vmstat")
OUT_OF_MEMORY_TEXTS = ("std::bad_alloc", "MemoryError", msg("agent.out_memory", "out of memory"))
BUBBLEWRAP_LEVEL = 2  # the level of a sandbox that hides files and network
DISK_FULL_TEXTS = ("No space left on device", "Errno 28", "File too large", "Errno 27")


def require_sandbox(name: str, level: int, case: str = "") -> None:
    """Keep a model that may run its maker's code, and a benchmark case, out of children without a sandbox.

    Args: name: of the model's file. level: of the sandbox. case: its name, "" for a model.
    Raises: TaskFailure: it is such a model, or a case.
    """
    suffix = Path(name).suffix.lower()
    if level >= BUBBLEWRAP_LEVEL:
        return
    if case:
        error = msg("agent.case_may_run_any", "a case may run any code, and there is no sandbox here")
        raise TaskFailure(
            "model_error", error, msg("agent.install_bubblewrap_machine", "install bubblewrap on that machine")
        )
    if any(one.runs_code and suffix in one.suffixes for one in all_formats().values()):
        error = msg("agent.may_run_any_code", f"a {suffix} may run any code, and there is no sandbox here")
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

    device, timeout_s: of the task. prefixes: folders of the interpreter. level: of the sandbox. memory_bytes: that a
    child may use. check: raises StopRequested when somebody wants the work to end. started: gets each child.
    step_timeouts: of `CaseRef`.
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
        """Run one stage to its end. deadline: time.monotonic().

        Raises: TaskFailure: it failed, crashed, was too slow or too large. StopRequested.
        """
        self._failed: TaskFailure | None = None
        self._done = False
        self._events = EventReader(self.work.events)
        self._events.skip_partial_line()
        self.progress.share = 0.0
        kills = _oom_kills()
        child = self._start(stage)
        try:
            self.on_child_start(child)
            self._follow(child, deadline)
        finally:
            status, signal_name = child.close()
            self.monitor.watch(None)
            before = -1
            while before != self._events.offset:
                before = self._events.offset
                self._take_events()
        self._judge(status, signal_name, _oom_kills() - kills)

    def _start(self, stage: str) -> Child:
        work, monitor = self.work, self.monitor
        sandbox = Sandbox(
            work.box, self.python, (work.files, work.task), self.prefixes, self.device, work.mark, RESOURCE_LIMITS
        )
        command, env = sandbox.command(self.level, "-I", str(work.code), str(work.box), stage)
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

    def _follow(self, child: Child, deadline: float) -> None:
        try:
            while not child.has_ended():
                if child.output_ended.wait(POLL_S):
                    child.output_ended.clear()
                    time.sleep(0.01)
                self._take_events()
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
                msg("agent.not_done_after_s", f"not done after {self.timeout_s:g} s ({self._doing()})"),
                self._last_lines(),
            )
        limit_s = self.step_timeouts.get(step, self.step_timeouts.get("", math.inf))
        if step and now - self.progress.step_since > limit_s:
            raise TaskFailure(
                "timeout",
                msg("agent.step_not_done_after", f"the step {step} was not done after {limit_s:g} s"),
                self._last_lines(),
            )
        if self.monitor.error:
            raise to_task_failure(self.monitor.error)
        if self.log.full_disk:
            raise TaskFailure(
                "disk_full", msg("agent.agents_disk_full_log", "the agent's disk is full: the log could not be written")
            )
        self._check_machine(child)
        used, allowed = child.tree.rss_bytes(), self.memory_bytes
        used += scratch_bytes(child.tree) if self.level == BUBBLEWRAP_LEVEL else 0
        if used > allowed:
            error = msg(
                "agent.gib_memory_use_allowed",
                f"{used / GIB:.2f} GiB of memory were in use, {allowed / GIB:.2f} are allowed ({self._doing()})",
            )
            hint = msg(
                "agent.smaller_size_swept_dimension_larger",
                "a smaller size of the swept dimension, or a larger --memory of the agent",
            )
            raise TaskFailure("out_of_memory", error, hint)

    def _check_machine(self, child: Child) -> None:
        """Limits that the kernel does not keep for one process: their number, the machine's memory and disk."""
        count = len(child.tree.processes())
        if count > MAX_PROCESSES:
            raise TaskFailure(
                "crashed",
                msg(
                    "agent.processes_started_allowed",
                    f"{count:,} processes were started, {MAX_PROCESSES} are allowed ({self._doing()})",
                ),
            )
        if free_bytes(self.work.box) < MIN_FREE_DISK_BYTES:
            hint = msg("agent.free_space", f"free space for {self.work.folder}")
            raise TaskFailure(
                "disk_full",
                msg("agent.agents_disk_nearly_full", f"the agent's disk is nearly full ({self._doing()})"),
                hint,
            )
        memory = psutil.virtual_memory()
        if memory.available < min(MIN_FREE_MEMORY_BYTES, memory.total // 50):
            error = msg(
                "agent.only_mib_machines_memory",
                f"only {memory.available >> 20} MiB of the machine's memory were left ({self._doing()})",
            )
            raise TaskFailure(
                "out_of_memory",
                error,
                msg(
                    "agent.smaller_size_swept_dimension",
                    "a smaller size of the swept dimension, or a less busy machine",
                ),
            )

    def _doing(self) -> str:
        phase, batch = self.progress.phase, self.progress.batch
        if self.progress.step:
            return f"step {self.progress.step}"
        return phase if batch is None else f"{phase} batch {batch}"

    def _last_lines(self) -> str:
        tail = self.log.tail()
        return (
            msg("agent.log_ends", f"the log ends with:\n{tail}") if tail else msg("agent.log_empty", "the log is empty")
        )

    def _judge(self, status: int, signal_name: str, oom_kills: int) -> None:
        """Judge a child that ended by itself; a crash after `done` is a warning: some runtimes crash at exit."""
        how = (
            msg("agent.ended", f"ended by {signal_name}")
            if signal_name
            else msg("agent.ended_status", f"ended with status {status}")
        )
        if self._done and self._failed is None:
            if status:
                self.progress.warnings.append(
                    msg("agent.child_after_work_done", f"the child {how} after its work was done")
                )
            return
        tail = self.log.tail()
        failure = self._failed or self._crash(how, tail, signal_name == "SIGKILL" and oom_kills > 0)
        if free_bytes(self.work.box) < DISK_FULL_BYTES or any(word in tail + failure.error for word in DISK_FULL_TEXTS):
            raise TaskFailure(
                "disk_full",
                msg("agent.no_space_left_agents", f"no space was left on the agent's disk: {failure.error}"),
                failure.hint,
            )
        raise failure

    def _crash(self, how: str, tail: str, killed: bool) -> TaskFailure:
        reason: Reason = "out_of_memory" if killed or any(word in tail for word in OUT_OF_MEMORY_TEXTS) else "crashed"
        return TaskFailure(
            reason,
            msg("agent.child_without_result", f"the child {how} and without a result ({self._doing()})"),
            self._last_lines(),
        )

    def _take_events(self) -> None:
        for event in self._events.read():
            self._take(event)

    def _take(self, event: Event) -> None:
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
            case "failed":
                self._failed = _failure(event)
            case "done":
                self._done = True
            case _:
                return
        progress.changed()


def _failure(event: Event) -> TaskFailure:
    reason = cast("Reason", event.get("reason") if event.get("reason") in REASONS else "model_error")
    error = text_field(event, "error") or msg("agent.child_failed_did_not", "the child failed and did not say why")
    return TaskFailure(reason, error, text_field(event, "hint"))


def _oom_kills() -> int:
    """Processes that the kernel has killed for memory since boot."""
    try:
        return next((int(x.split()[1]) for x in VMSTAT.read_text().splitlines() if x.startswith("oom_kill ")), 0)
    except OSError:
        return 0
