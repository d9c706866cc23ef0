"""The agent: says every few seconds that it is alive, leases tasks and runs each in a thread."""

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
from visualprof.remote.agent.work.resume_cache import work_folder
from visualprof.remote.agent.work.run_mirror import RunMirror
from visualprof.remote.agent.work.task import AgentContext, LeasedTask
from visualprof.remote.protocol import Lease, build

BUSY_POLL_S = 2.0  # while a device is busy, so that the next poll can offer it
BUSY_BEATS = 4  # heartbeats in an interval while a task runs, so that a cancel does not wait long
BEAT_GAP_S = 1.0
LOOK_S = 2.0
FOLLOW_S, FOLLOW_AGAIN_S = 1.0, 5.0
PARENT_S = 0.5
ANSWER_S = 15.0  # beyond what a poll waits
LEAVE_S = 15.0
RESTARTS = 1
RESTART_WARNING = "measured again from the beginning: its agent ended while it ran, and was started again"


class AgentDaemon:
    """One agent of one server. say: takes a line for whoever started it."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._state = StateFolder(settings.state)
        self._nvml = settings.nvml()
        self._leaving = threading.Event()  # no further task
        self._stopped = threading.Event()
        self._changed = threading.Event()
        self._probe_requested = threading.Event()
        self._fatal: AgentError | None = None
        self._parent = os.getppid()
        self._registration = Registration(settings, self._state, say, self._leaving)
        # Each in a thread of its own; several on a device are specs of one job that is measured repeatedly.
        self._tasks: list[Task] = []

    def run(self) -> int:
        """Run until a signal, or the task of --once, ends it. Raises: AgentError."""
        self._state.lock()
        self._level = sandbox_level(self._settings.sandbox, self._say)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, self._handle_signal)
        if self._settings.exit_with_parent:
            threading.Thread(target=self._follow_parent, daemon=True).start()
        journal = Journal(self._state.path / "journal.sqlite", self._say)
        entries = journal.entries()
        for entry in entries:
            processes.kill_orphan(entry.pid, entry.started, str(entry.folder))
        self._state.remove_work_except({entry.folder for entry in entries})
        self._context = AgentContext(
            self._settings, self._state, journal, self._registration, self._nvml, self._changed.set, self._probe()
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
        """Waits until every task has ended. Signals are handled in this thread."""
        while not self._stopped.wait(0.2):
            if self._leaving.is_set() and (self._fatal or not self._tasks):
                self._stopped.set()
        end = time.monotonic() + LEAVE_S
        while self._tasks and time.monotonic() < end:
            time.sleep(0.05)

    def _run_loop(self, loop: Callable[[], None]) -> None:
        """Run a loop of the agent; when one of them fails, the agent ends and says why."""
        try:
            loop()
        except StopRequested:
            return
        except AgentError as error:
            self._fatal = error
        except Exception as error:  # noqa: BLE001 - told, and the agent ends
            traceback.print_exc(file=sys.stderr)
            hint = "is the server as new as it?"
            self._fatal = AgentError(f"the agent failed: {type(error).__name__}: {error}", hint)
        else:
            return
        self._leave(now=True)

    # --- what the machine has ---

    def _probe_loop(self) -> None:
        """Look again when an environment was made or removed, or at SIGHUP."""
        known = runtimes.folder_stamp(runtimes.runtimes_folder())
        while not self._stopped.is_set():
            self._probe_requested.wait(LOOK_S)
            stamp = runtimes.folder_stamp(runtimes.runtimes_folder())
            if self._probe_requested.is_set() or stamp != known:
                self._probe_requested.clear()
                known = stamp
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
        known = self._context.machine  # to the server
        while not self._stopped.is_set():
            machine = self._context.machine
            try:
                self._send_heartbeat(machine if machine is not known else None)
                known = machine
                self._registration.report_reachable()
            except Unreachable as error:
                self._registration.report_unreachable(error)
            except RequestRejected as error:
                self._registration.handle_error(error, machine.capabilities)
            between = self._registration.intervals.heartbeat_s / (BUSY_BEATS if self._tasks else 1)
            gap = min(BEAT_GAP_S, between / 2)
            self._stopped.wait(gap)
            self._changed.wait(between - gap)
            self._changed.clear()

    def _send_heartbeat(self, machine: Machine | None) -> None:
        self._registration.send_heartbeat(self._tasks, machine.capabilities if machine else None)

    # --- runs of others ---

    def _follow_loops(self) -> list[Callable[[], None]]:
        """Tells of the runs of a folder, and sends their recordings: neither waits for the other."""
        if not self._settings.watch_runs:
            return []
        followed = RunMirror(self._settings.watch_runs, self._registration, self._say, self._stopped)
        return [partial(self._repeat, followed.report_changes), partial(self._repeat, followed.upload_recordings)]

    def _repeat(self, turn: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            began, pause = time.monotonic(), FOLLOW_S
            try:
                turn()
                self._registration.report_reachable()
            except Unreachable as error:
                self._registration.report_unreachable(error)
                pause = max(FOLLOW_AGAIN_S, error.retry_after_s)
            except RequestRejected as error:
                self._registration.handle_error(error, self._context.machine.capabilities)
                pause = FOLLOW_AGAIN_S
            self._stopped.wait(max(pause, time.monotonic() - began))

    # --- tasks ---

    def _lease_loop(self) -> None:
        whole = set[str]()  # jobs of which the server had no further spec: they all came at once
        while not self._leaving.is_set():
            tasks = list(self._tasks)
            taken = {task.lease.spec.device for task in tasks}
            free = [device for device in self._context.machine.devices() if device not in taken]
            repeated = {task.lease.job: task.lease.spec.device for task in tasks if task.lease.request.repeat > 1}
            begun = {job: device for job, device in repeated.items() if job not in whole}
            wait_s = 0.0 if begun else self._poll_s()
            answer = self._request_lease({"devices": free, "begun": begun}, wait_s) if free or begun else {}
            if answer:
                self._accept_lease(build(Lease, answer))
            elif not free and not begun:
                self._leaving.wait(0.05)
            whole |= set() if answer else begun.keys()

    def _poll_s(self) -> float:
        """How long the server may keep a request for a task."""
        return min(self._registration.intervals.poll_s, BUSY_POLL_S if self._tasks else float("inf"))

    def _request_lease(self, wish: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """A lease, or nothing."""
        registration = self._registration
        try:
            return retry(
                lambda: registration.client.post("lease", {**wish, "wait_s": wait_s}, timeout_s=wait_s + ANSWER_S),
                self._leaving,
                on_failure=registration.report_unreachable,
            )
        except RequestRejected as error:
            registration.handle_error(error, self._context.machine.capabilities)
            self._leaving.wait(1.0)
            return {}

    def _accept_lease(self, lease: Lease) -> None:
        self._context.journal.add(lease, self._settings.server, work_folder(self._state, lease))
        if not self._leaving.is_set():  # else the next start has it
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
        """Continues the tasks that the last process of this agent left in the journal.

        Work that ended is reported. Work that did not is done again, once: a task that ends its agent would go on
        doing so; its lease runs out, and the server counts the attempts.
        """
        journal = self._context.journal
        for entry in entries:
            if entry.server != self._settings.server or (entry.outcome is None and entry.starts > RESTARTS):
                journal.remove(entry.lease)
                continue
            journal.count_start(entry.lease)
            again = [] if entry.outcome else [RESTART_WARNING]
            self._tasks.append(LeasedTask(entry.lease, self._context, entry.outcome, again))
        if self._tasks:
            with suppress(Unreachable, RequestRejected):  # the next one says it too
                self._send_heartbeat(None)
        for task in list(self._tasks):
            self._start_task(task)

    # --- the end ---

    def _follow_parent(self) -> None:
        """End the agent when its parent has ended (PR_SET_PDEATHSIG would follow a thread of the parent)."""
        while os.getppid() == self._parent:
            if self._stopped.wait(PARENT_S):
                return
        self._leave(now=True)

    def _handle_signal(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            self._probe_requested.set()
        else:
            self._leave(now=number != signal.SIGTERM or self._leaving.is_set())

    def _leave(self, now: bool) -> None:
        """Take no further task; with `now`, those that run are abandoned."""
        self._leaving.set()
        for task in list(self._tasks) if now else ():
            task.end("abandoned")
