"""The children of a task, one after the other: what they say, what they use, how they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

import psutil

from visualprof.remote.agent.faults import REASONS, Failure, Given, of_system
from visualprof.remote.agent.machine.monitor import PROFILE_INTERVAL_S, Monitor
from visualprof.remote.agent.machine.processes import scratch_bytes
from visualprof.remote.agent.work import events, sandbox
from visualprof.remote.agent.work.events import Event, EventFile
from visualprof.remote.agent.work.folders import Work, free_bytes
from visualprof.remote.agent.work.guard import GRACE_S, CappedLog, Child
from visualprof.remote.agent.work.sandbox import Place
from visualprof.remote.protocol import Lease, Phase, Reason

TICK_S = 0.1
PROFILES_MAX = 50
HURRY_S = 1.0  # for a child of an agent that is told to leave at once
PHASES: tuple[str, ...] = get_args(Phase)
GIB = 1 << 30
FILE_MAX = 16 * GIB
PROCESSES_MAX = 16384  # of the user, threads included; root has no such limit
TREE_MAX = 1000
SPARE_MEMORY = 256 << 20
SPARE_DISK = 16 << 20  # for the journal, the report, and other programs
SPARE_BYTES = 1 << 20
OOM_KILLS = Path("/proc/vmstat")
NO_MEMORY = ("std::bad_alloc", "MemoryError", "out of memory")
NO_SPACE = ("No space left on device", "Errno 28", "File too large", "Errno 27")


@dataclass
class Said:
    """What the children of a task said so far. point: called with each point, progressed: when there is news."""

    point: Callable[[dict[str, Any]], None]
    progressed: Callable[[], None]
    phase: str = "preparing"
    batch: int | None = None
    share: float = 0.0  # of the stage
    version: str = ""
    effective: dict[str, Any] = field(default_factory=dict[str, Any])
    profiles: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    warnings: list[str] = field(default_factory=list[str])
    load_ns: int | None = None
    points: int = 0


@dataclass(frozen=True)
class Limits:
    """Of a stage. deadline: time.monotonic(). check: raises Given when somebody wants it to end. started: is told."""

    memory_bytes: int
    deadline: float
    check: Callable[[], None]
    started: Callable[[Child], None]


class Stages:
    """Runs the stages of one task."""

    def __init__(
        self,
        work: Work,
        lease: Lease,
        python: str,
        prefixes: tuple[str, ...],
        level: int,
        monitor: Monitor,
        log: CappedLog,
        said: Said,
    ) -> None:
        self._work = work
        self._lease = lease
        self._python = Path(python)
        self._prefixes = prefixes
        self._level = level
        self._monitor = monitor
        self._log = log
        self._said = said
        self._events = EventFile(work.events)
        self._failed: Failure | None = None
        self._done = False
        self._pid = 0
        self._began_ns = 0

    def run(self, stage: str, limits: Limits) -> None:
        """Runs one stage to its end.

        Raises: Failure: it failed, crashed, was too slow or too large. Given.
        """
        self._failed, self._done = None, False
        self._events.skip_half_line()
        self._said.share = 0.0
        kills = _oom_kills()
        child = self._start(stage)
        try:
            limits.started(child)
            self._follow(child, limits)
        finally:
            status, signal_name = child.close()
            self._monitor.watch(None)
            before = -1
            while before != self._events.offset:
                before = self._events.offset
                self._take_events()
        self._judge(status, signal_name, _oom_kills() - kills)

    def _start(self, stage: str) -> Child:
        work, monitor = self._work, self._monitor
        limits = f"CORE=0 FSIZE={FILE_MAX} NPROC={PROCESSES_MAX}"
        fixed = (work.files, work.task)
        place = Place(work.box, fixed, self._python, self._prefixes, self._lease.spec.device, work.mark, limits)
        command, env = sandbox.command(place, self._level, ["-I", str(work.code), str(work.box), stage])
        try:
            child = Child(command, env, work.box, self._log, work.mark)
        except OSError as error:
            raise Failure("no_runtime", f"{self._python} could not be started: {error.strerror}") from None
        self._pid, self._began_ns = child.pid, time.time_ns()
        if stage.startswith("profile:"):
            self._begin_pass(stage)
        monitor.watch(child.tree)
        monitor.start()
        return child

    def _begin_pass(self, stage: str) -> None:
        self._said.phase = self._monitor.phase = "profiling"
        self._monitor.interval_s = min(self._monitor.interval_s, PROFILE_INTERVAL_S)
        self._said.progressed()

    def _follow(self, child: Child, limits: Limits) -> None:
        try:
            while not child.ended():
                if child.noticed.wait(TICK_S):
                    child.noticed.clear()
                    time.sleep(0.01)
                self._take_events()
                limits.check()
                self._check(child, limits)
        except Failure as failure:
            child.terminate(0 if failure.reason == "out_of_memory" else GRACE_S)
            raise
        except Given as given:
            child.terminate(GRACE_S if given.how == "cancelled" else HURRY_S)
            raise

    def _check(self, child: Child, limits: Limits) -> None:
        if time.monotonic() > limits.deadline:
            timeout = self._lease.request.timeout_s
            raise Failure("timeout", f"not done after {timeout:g} s ({self._doing()})", self._last_lines())
        if self._monitor.error:
            raise of_system(self._monitor.error)
        if self._log.full_disk:
            raise Failure("disk_full", "the agent's disk is full: the log could not be written")
        self._check_machine(child)
        used, allowed = child.tree.rss_bytes() + self._scratch_bytes(child), limits.memory_bytes
        if used > allowed:
            error = f"{used / GIB:.2f} GiB of memory were in use, {allowed / GIB:.2f} are allowed ({self._doing()})"
            hint = "a smaller size of the swept dimension, or a larger --memory of the agent"
            raise Failure("out_of_memory", error, hint)

    def _check_machine(self, child: Child) -> None:
        """What a limit of a process cannot keep: many of them, memory that is nobody's, the disk of others."""
        count = len(child.tree.processes())
        if count > TREE_MAX:
            raise Failure("crashed", f"{count:,} processes were started, {TREE_MAX} are allowed ({self._doing()})")
        if free_bytes(self._work.box) < SPARE_DISK:
            hint = f"free space for {self._work.folder}"
            raise Failure("disk_full", f"the agent's disk is nearly full ({self._doing()})", hint)
        memory = psutil.virtual_memory()
        if memory.available < min(SPARE_MEMORY, memory.total // 50):
            error = f"only {memory.available >> 20} MiB of the machine's memory were left ({self._doing()})"
            raise Failure("out_of_memory", error, "a smaller size of the swept dimension, or a less busy machine")

    def _scratch_bytes(self, child: Child) -> int:
        return scratch_bytes(child.tree) if self._level == 2 else 0

    def _doing(self) -> str:
        return self._said.phase if self._said.batch is None else f"{self._said.phase} batch {self._said.batch}"

    def _last_lines(self) -> str:
        tail = self._log.tail()
        return f"the log ends with:\n{tail}" if tail else "the log is empty"

    def _judge(self, status: int, signal_name: str, oom_kills: int) -> None:
        """How a child that ended by itself ended. Some runtimes crash at their exit, when all is done."""
        how = f"ended by {signal_name}" if signal_name else f"ended with status {status}"
        if self._done and self._failed is None:
            if status:
                self._said.warnings.append(f"the child {how} after its work was done")
            return
        tail = self._log.tail()
        failure = self._failed or self._crash(how, tail, signal_name == "SIGKILL" and oom_kills > 0)
        if free_bytes(self._work.box) < SPARE_BYTES or any(word in tail + failure.error for word in NO_SPACE):
            raise Failure("disk_full", f"no space was left on the agent's disk: {failure.error}", failure.hint)
        raise failure

    def _crash(self, how: str, tail: str, killed: bool) -> Failure:
        short = killed or any(word in tail for word in NO_MEMORY)
        reason: Reason = "out_of_memory" if short else "crashed"
        return Failure(reason, f"the child {how} and without a result ({self._doing()})", self._last_lines())

    def _take_events(self) -> None:
        for event in self._events.read():
            self._take(event)

    def _take(self, event: Event) -> None:
        said = self._said
        match event["event"]:
            case "phase" if event.get("phase") in PHASES:
                said.phase, said.batch = event["phase"], events.whole(event, "batch")
                self._monitor.phase, self._monitor.batch = said.phase, said.batch
            case "progress":
                done, total = events.whole(event, "done") or 0, events.whole(event, "total") or 0
                said.share = min(max(done / total, 0.0), 1.0) if total > 0 else 0.0
            case "point" if events.is_object(event.get("point")):
                said.points += 1
                said.load_ns = said.load_ns if said.load_ns is not None else events.whole(event["point"], "load_ns")
                said.point(event["point"])
            case "effective" if events.is_object(event.get("effective")):
                said.effective, said.version = events.plain(event["effective"]), events.text(event, "version", 100)
            case "profile" if len(said.profiles) < PROFILES_MAX:
                times = {"begin_ns": self._began_ns, "end_ns": time.time_ns()}
                said.profiles.append({**event, **times, "error": None, "pid": self._pid})
            case "failed":
                self._failed = _failure(event)
            case "done":
                self._done = True
            case _:
                return
        said.progressed()


def _failure(event: Event) -> Failure:
    reason = event.get("reason")
    known = cast("Reason", reason if reason in REASONS else "model_error")
    return Failure(
        known, events.text(event, "error") or "the child failed and did not say why", events.text(event, "hint")
    )


def _oom_kills() -> int:
    """Processes that the kernel has killed for memory since boot."""
    try:
        return next((int(x.split()[1]) for x in OOM_KILLS.read_text().splitlines() if x.startswith("oom_kill ")), 0)
    except OSError:
        return 0
