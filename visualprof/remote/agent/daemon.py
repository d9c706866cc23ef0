"""The agent's main process: sends heartbeats, leases tasks and runs each task in a thread."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from visualprof.remote.agent.errors import AgentError, StopRequested
from visualprof.remote.agent.link.client import RequestRejected, Unreachable, retry
from visualprof.remote.agent.machine import processes, runtimes
from visualprof.remote.agent.machine.probe import Machine, Say
from visualprof.remote.agent.machine.sandbox import sandbox_level
from visualprof.remote.agent.registration import Registration, Task
from visualprof.remote.agent.state import Journal, JournalEntry, Settings, StateFolder
from visualprof.remote.agent.work.agent_context import AgentContext
from visualprof.remote.agent.work.resume_cache import work_folder
from visualprof.remote.agent.work.run_mirror import RunMirror
from visualprof.remote.agent.work.task import LeasedTask
from visualprof.remote.protocol import Lease, build

BUSY_POLL_S = 2.0  # while a task runs, so that its device is soon offered again
BUSY_HEARTBEATS = 4  # heartbeats per interval while a task runs, so that a cancellation arrives soon
MIN_HEARTBEAT_GAP_S = 1.0
PROBE_INTERVAL_S = 2.0
FOLLOW_INTERVAL_S, FOLLOW_RETRY_S = 1.0, 5.0
PARENT_POLL_S = 0.5
ANSWER_MARGIN_S = 15.0  # added to the poll time
SHUTDOWN_TIMEOUT_S = 15.0
MAX_RESTARTS = 1
RESTART_WARNING = "measured again from the beginning: its agent stopped during the task and was restarted"


class AgentDaemon:
    """One agent of one server. `say` takes the lines that the user sees on the terminal."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._state = StateFolder(settings.state)
        self._nvml = settings.nvml()
        self._leaving = threading.Event()  # accepts no further task
        self._stopped = threading.Event()
        self._changed = threading.Event()
        self._probe_requested = threading.Event()
        self._fatal: AgentError | None = None
        self._parent = os.getppid()
        self._registration = Registration(settings, self._state, say, self._leaving)
        # Each task has its own thread. Tasks that share a device are run configurations of one job with repeats.
        self._tasks: list[Task] = []

    def run(self) -> int:
        """Run until a signal or the task of `--once` ends the agent.

        Raises:
            AgentError: The agent cannot start or continue.
        """
        self._state.lock()
        self._level = sandbox_level(self._settings.sandbox, self._say)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, self._handle_signal)
        if self._settings.exit_with_parent:
            threading.Thread(target=self._watch_parent, daemon=True).start()
        journal = Journal(self._state.path / "journal.sqlite", self._say)
        entries = journal.entries()
        for entry in entries:
            processes.kill_orphan(entry.pid, entry.start_ticks, str(entry.folder))
        self._state.remove_work_except({entry.folder for entry in entries})
        self._context = AgentContext(
            settings=self._settings,
            state=self._state,
            journal=journal,
            registration=self._registration,
            nvml=self._nvml,
            on_change=self._changed.set,
            machine=self._probe(),
        )
        if self._registration.join(self._context.machine.capabilities):
            self._recover(entries)
            for loop in (self._heartbeat_loop, self._lease_loop, self._probe_loop, *self._follow_loops()):
                threading.Thread(target=self._run_loop, args=(loop,), daemon=True).start()
            self._wait()
        if self._fatal:
            raise self._fatal
        return 0

    def _wait(self) -> None:
        """Wait until every task has ended. Signals are handled in this thread."""
        while not self._stopped.wait(0.2):
            if self._leaving.is_set() and (self._fatal or not self._tasks):
                self._stopped.set()
        end = time.monotonic() + SHUTDOWN_TIMEOUT_S
        while self._tasks and time.monotonic() < end:
            time.sleep(0.05)

    def _run_loop(self, loop: Callable[[], None]) -> None:
        """Run a loop of the agent. If the loop fails, the agent stops and reports the error."""
        try:
            loop()
        except StopRequested:
            return
        except AgentError as error:
            self._fatal = error
        except Exception as error:  # noqa: BLE001 - reported, and the agent ends
            traceback.print_exc(file=sys.stderr)
            hint = "check that the server and the agent have the same version"
            self._fatal = AgentError(f"the agent failed: {type(error).__name__}: {error}", hint)
        else:
            return
        self._leave(abandon=True)

    # --- machine ---

    def _probe_loop(self) -> None:
        """Probe the machine again when an environment was added or removed, or on SIGHUP."""
        last_stamp = runtimes.folder_stamp(runtimes.runtimes_folder())
        while not self._stopped.is_set():
            self._probe_requested.wait(PROBE_INTERVAL_S)
            stamp = runtimes.folder_stamp(runtimes.runtimes_folder())
            if self._probe_requested.is_set() or stamp != last_stamp:
                self._probe_requested.clear()
                last_stamp = stamp
                self._context.machine = self._probe()
                self._changed.set()

    def _probe(self) -> Machine:
        settings = self._settings
        machine = settings.probe(settings.interpreters, settings.tags, self._level, self._nvml, self._say)
        names = ", ".join(f"{runtime.backend} {runtime.version}" for runtime in machine.capabilities.runtimes)
        self._say(f"runtimes: {names or 'none; visualprof agent install-runtime onnxruntime'}")
        priced = replace(machine.capabilities, price_per_hour=settings.price_per_hour)
        return replace(machine, capabilities=priced)

    # --- heartbeats ---

    def _heartbeat_loop(self) -> None:
        reported = self._context.machine
        while not self._stopped.is_set():
            machine = self._context.machine
            try:
                self._send_heartbeat(machine if machine is not reported else None)
                reported = machine
                self._registration.report_reachable()
            except Unreachable as error:
                self._registration.report_unreachable(error)
            except RequestRejected as error:
                self._registration.handle_error(error, machine.capabilities)
            interval_s = self._registration.intervals.heartbeat_s / (BUSY_HEARTBEATS if self._tasks else 1)
            gap_s = min(MIN_HEARTBEAT_GAP_S, interval_s / 2)
            self._stopped.wait(gap_s)
            self._changed.wait(interval_s - gap_s)
            self._changed.clear()

    def _send_heartbeat(self, machine: Machine | None) -> None:
        self._registration.send_heartbeat(self._tasks, machine.capabilities if machine else None)

    # --- mirrored runs ---

    def _follow_loops(self) -> list[Callable[[], None]]:
        """Return the loops that mirror runs: one for changes and one for uploads, so that neither delays the other."""
        if not self._settings.watch_runs:
            return []
        followed = RunMirror(self._settings.watch_runs, self._registration, self._say, self._stopped)
        return [partial(self._repeat, followed.report_changes), partial(self._repeat, followed.upload_recordings)]

    def _repeat(self, step: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            start_s, pause_s = time.monotonic(), FOLLOW_INTERVAL_S
            try:
                step()
                self._registration.report_reachable()
            except Unreachable as error:
                self._registration.report_unreachable(error)
                pause_s = max(FOLLOW_RETRY_S, error.retry_after_s)
            except RequestRejected as error:
                self._registration.handle_error(error, self._context.machine.capabilities)
                pause_s = FOLLOW_RETRY_S
            self._stopped.wait(max(pause_s, time.monotonic() - start_s))

    # --- tasks ---

    def _lease_loop(self) -> None:
        exhausted = set[str]()  # jobs whose run configurations are all leased
        while not self._leaving.is_set():
            tasks = list(self._tasks)
            busy = {task.lease.spec.device for task in tasks}
            free = [device for device in self._context.machine.devices() if device not in busy]
            repeated = {task.lease.job: task.lease.spec.device for task in tasks if task.lease.request.repeat > 1}
            unfinished = {job: device for job, device in repeated.items() if job not in exhausted}
            wait_s = 0.0 if unfinished else self._poll_s()
            answer = self._request_lease({"devices": free, "begun": unfinished}, wait_s) if free or unfinished else {}
            if answer:
                self._accept_lease(build(Lease, answer))
            elif not free and not unfinished:
                self._leaving.wait(0.05)
            exhausted |= set() if answer else unfinished.keys()

    def _poll_s(self) -> float:
        """Return how long the server may hold a lease request."""
        return min(self._registration.intervals.poll_s, BUSY_POLL_S if self._tasks else float("inf"))

    def _request_lease(self, request: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """Ask the server for a task; return its lease, or an empty object."""
        registration = self._registration
        try:
            return retry(
                lambda: registration.client.post(
                    "lease", {**request, "wait_s": wait_s}, timeout_s=wait_s + ANSWER_MARGIN_S
                ),
                self._leaving,
                on_failure=registration.report_unreachable,
            )
        except RequestRejected as error:
            registration.handle_error(error, self._context.machine.capabilities)
            self._leaving.wait(1.0)
            return {}

    def _accept_lease(self, lease: Lease) -> None:
        self._context.journal.add(lease, self._settings.server, work_folder(self._state, lease))
        if not self._leaving.is_set():  # otherwise the next start resumes the task
            self._tasks.append(LeasedTask(lease, self._context))
            self._start_task(self._tasks[-1])
        if self._settings.once:
            self._leaving.set()

    def _start_task(self, task: Task) -> None:
        threading.Thread(target=self._run_task, args=(task,), name="task", daemon=True).start()

    def _run_task(self, task: Task) -> None:
        self._say(str(task))
        try:
            self._say(f"{task}: {task.run()}")
        finally:
            self._tasks.remove(task)

    def _recover(self, entries: list[JournalEntry]) -> None:
        """Resume the tasks that the previous process of this agent left in the journal.

        A finished task is reported. An unfinished task is restarted only once, because the task may crash the agent.
        After that its lease expires, and the server counts the attempts.
        """
        journal = self._context.journal
        for entry in entries:
            if entry.server != self._settings.server or (entry.outcome is None and entry.starts > MAX_RESTARTS):
                journal.remove(entry.lease)
                continue
            journal.count_start(entry.lease)
            warnings = [] if entry.outcome else [RESTART_WARNING]
            self._tasks.append(LeasedTask(entry.lease, self._context, entry.outcome, warnings))
        if self._tasks:
            with suppress(Unreachable, RequestRejected):  # the next heartbeat reports the error
                self._send_heartbeat(None)
        for task in list(self._tasks):
            self._start_task(task)

    # --- shutdown ---

    def _watch_parent(self) -> None:
        """Stop the agent when its parent has ended. PR_SET_PDEATHSIG would follow only a thread of the parent."""
        while os.getppid() == self._parent:
            if self._stopped.wait(PARENT_POLL_S):
                return
        self._leave(abandon=True)

    def _handle_signal(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            self._probe_requested.set()
        else:
            self._leave(abandon=number != signal.SIGTERM or self._leaving.is_set())

    def _leave(self, abandon: bool) -> None:
        """Accept no further task. With `abandon`, also stop the running tasks."""
        self._leaving.set()
        for task in list(self._tasks) if abandon else ():
            task.end("abandoned")
